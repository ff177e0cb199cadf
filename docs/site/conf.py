"""The documentation site: ``make docs``. Its sources are the checkout, so links are those between files."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

ROOT = Path(__file__).resolve().parents[2]
GALLERY = ROOT / "examples" / "gallery"
sys.path[:0] = [str(ROOT), str(GALLERY), str(Path(__file__).parent)]

import explorer  # noqa: E402
import torch  # noqa: E402

import ngn  # noqa: E402

torch.set_num_threads(1)  # the models of the gallery are small, and threads get into each other's way

project, author, release = "NGN", "NGN suite developers", ngn.__version__
html_title = f"NGN {release}"
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**", "examples/*.ipynb", "build/gallery/**"]
exclude_patterns = [
    ".*",
    "build/docs",
    "build/gallery/*.ipynb",
    "conf",
    "experiments",
    "ngn",
    "results",
    "runs",
    "scratch",
    "tests",
]
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
html_theme = "furo"
html_extra_path = ["redirect"]
html_static_path, html_css_files = ["static"], ["site.css"]
html_show_sphinx = html_show_copyright = html_copy_source = False
html_math_renderer = "mathml"
pygments_style, pygments_dark_style = "a11y-light", "a11y-high-contrast-dark"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # `make notebook` executes it; it is committed with what it printed

autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
autodoc_type_aliases = {"Scalar": "Scalar", "Shape": "Shape", "Mode": "Mode"}
copybutton_prompt_text, copybutton_prompt_is_regexp = r">>> |\.\.\. |\$ ", True

sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": "examples/gallery",  # from the root
    "gallery_dirs": "build/gallery",
    "filename_pattern": "",
    "ignore_pattern": r"picture\.py$",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
}


NAVIGATION = {
    "index": ["Start <tutorial>", "Your model <library>", "front", "when", "study", "Add your own <extending>",
              "results", "architecture", "faq", "evidence"],
    "tutorial": ["README </README>", "/examples/smaller_cnn"],
    "library": ["budgets", "/build/gallery/index", "site/api"],
    "study": ["data", "language"],
    "extending": [f"extending/{part}" for part in ("task", "method", "study", "size", "library")],
    "architecture": ["equations"],
    "evidence": ["disagreements", "about_the_paper", "verdicts", "benchmarks", "models", "reliability", "records",
                 "formats", "report", "log", "versioning", "/CONTRIBUTING", "/CHANGELOG"],
    "log": [f"log/{part}" for part in ("settings", "decisions", "tried", "studies", "plans")],
}  # fmt: skip
"""Page of docs/ → the pages below it in the sidebar: nine for users, and Evidence. They stand here, since a plain
checkout would show the directives as text."""


def _complete(app: Any, name: str, source: list[str]) -> None:
    lines = "\n".join(NAVIGATION.get(name.removeprefix("docs/"), []))
    if lines:
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{lines}\n```\n"
    if "<!-- explorer -->" in source[0]:
        source[0] = source[0].replace("<!-- explorer -->", f"```{{raw}} html\n{explorer.page()}```")


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div style="text-align: center; margin: 1em 0">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def _plain_text(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are written to be read as they stand: their shapes and equations are literal text."""
    lines[:] = [re.sub(r"(?<=\[)\*(?=[A-Z])|(?<!`)\|(?!`)", lambda sign: "\\" + sign[0], line) for line in lines]
    if what == "module":  # an indented part is a block of equations
        for number in range(len(lines) - 1, 0, -1):
            if lines[number].startswith("  ") and not lines[number - 1].strip():
                ahead = next((line for line in reversed(lines[:number]) if line.strip()), "")
                if not ahead.startswith("  "):
                    lines[number:number] = ["::", ""]


def setup(app: Any) -> None:
    """Equations as MathML, which browsers draw themselves."""
    app.connect("source-read", _complete)
    app.connect("autodoc-process-docstring", _plain_text, priority=400)  # before napoleon
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
