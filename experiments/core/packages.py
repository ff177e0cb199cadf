"""Packages of the extras in pyproject.toml: a missing one is a sentence with the command that installs it."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import TracebackType

from experiments.core.paths import ROOT

EXTRAS = {
    "suite": ("hydra", "omegaconf", "pydantic", "pydantic_core", "pandas", "rich", "filelock", "yaml", "scipy"),
    "graph": ("torch_geometric",),
    "paper": ("matplotlib", "jinja2", "markupsafe"),
    "logging": ("tensorboard", "wandb"),
    "mlflow": ("mlflow",),
    "cluster": ("submitit", "hydra_plugins.hydra_submitit_launcher"),
    "tinystories": ("datasets",),
    "mamba": ("mamba_ssm",),
    "language": ("transformers", "tokenizers", "huggingface_hub", "peft", "gguf"),
    "rivals": ("torch_pruning",),
    "eightbit": ("torchao",),
    "zoo": ("torchvision", "timm", "transformers", "torch_pruning"),
    "docs": ("sphinx", "latex2mathml"),
    "dev": ("pytest", "lightning"),
}
"""Extra → the modules that the code imports from its packages."""


def missing(*modules: str) -> str | None:
    """Return the first module that is not installed, or None."""
    return next((name for name in modules if not _installed(name)), None)


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def sentence(what: str, module: str) -> str | None:
    """Say which extra to install for ``what``; None for a module of no extra."""
    extra = next((extra for extra, names in EXTRAS.items() if module in names), None)
    if extra is None:
        return None
    made = ROOT / ".venv" / "bin" / "python"
    unused = extra == "suite" and made.exists() and Path(sys.prefix).resolve() != made.parents[1].resolve()
    other = f", or use {made}" if unused else ""
    return f"{what} needs the package {module}: pip install -e '.[{extra}]'{other}"


def name_extras() -> None:
    """From now on, a program of this process that ends because a package is missing says which extra to install."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, ModuleNotFoundError) and error.name is not None and not os.environ.get("HYDRA_FULL_ERROR"):
            for module in (error.name, error.name.partition(".")[0]):
                if (told := sentence(sys.argv[0] or "this program", module)) is not None:
                    print(told, file=sys.stderr)
                    return
        before(kind, error, trace)

    sys.excepthook = hook
