"""Hydra plugins: jobs that differ in seed and scalars are one stacked training.

``hydra/launcher=pack`` is the default of multiruns; ``hydra/launcher=basic`` trains the jobs one by one. Every job
keeps what Hydra's users expect: its folder with ``.hydra/*.yaml``, its return value, its place in the results.
"""

# No annotations from __future__: Hydra runs this module before it is in sys.modules, where dataclasses would look.
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.config_loader_impl import get_overrides_dirname
from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn, JobStatus, configure_log, setup_globals
from omegaconf import DictConfig, OmegaConf, open_dict

from experiments.config.compose import GROUPS


class ComposedOnce:
    """The configurations of a sweep's jobs, composed from files once a selection of files.

    Hydra takes about 0.1 s to compose a job, and 10 ms to copy the result. The jobs of a sweep mostly share their
    files and differ in the values of the same keys, which are set in place.
    """

    def __init__(self, loader: ConfigLoader, master: DictConfig) -> None:
        self.loader, self.master = loader, master
        self.parser = OverridesParser.create(config_loader=loader)
        self.composed: dict[tuple[str, ...], tuple[DictConfig, HydraFile]] = {}
        self.parsed: dict[str, Override] = {}

    def job(self, overrides: Sequence[str], number: int) -> tuple[DictConfig, "HydraFile"]:
        """What Hydra would compose for job ``number``, and its ``hydra.yaml``; they are good until the next call."""
        for text in overrides:
            if text not in self.parsed:
                (self.parsed[text],) = self.parser.parse_overrides([text])
        parsed = [self.parsed[text] for text in overrides]
        files = tuple(str(o.input_line) for o in parsed if o.key_or_group in GROUPS or o.is_hydra_override())
        if files not in self.composed:
            composed = self.loader.load_sweep_config(self.master, list(overrides))
            self.composed[files] = (composed, HydraFile(composed))
        config, file = self.composed[files]
        job = config.hydra.job  # looked up once: every step of a path takes OmegaConf microseconds
        own = [o for o in parsed if not o.is_hydra_override()]
        for override in own:
            if override.key_or_group not in GROUPS:
                OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
        form = job.config.override_dirname
        with open_dict(config):
            config.hydra.overrides.task = [str(o.input_line) for o in own]
            job.override_dirname = get_overrides_dirname(
                overrides=own, kv_sep=form.kv_sep, item_sep=form.item_sep, exclude_keys=form.exclude_keys
            )
            job.id = job.num = number
        return config, file


def _dump(content: object) -> str:
    """YAML. libyaml's writer takes a tenth of the time of the one written in Python, where it is installed."""
    return str(yaml.dump(content, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False))


class HydraFile:
    """A job's ``hydra.yaml``. Jobs of the same files differ in five values of some two hundred: the rest is text."""

    OWN = (("overrides", "task"), ("job", "override_dirname"), ("job", "id"), ("job", "num"), ("runtime", "output_dir"))

    def __init__(self, config: DictConfig) -> None:
        nested: Any = OmegaConf.to_container(config.hydra, enum_to_str=True)
        for number, (section, key) in enumerate(self.OWN):
            nested[section][key] = f"<own value {number}>"
        self.text = _dump({"hydra": nested})

    def of(self, job: DictConfig, task: list[str], folder: Path) -> str:
        """The file of one job, by its ``hydra.job`` and ``hydra.overrides.task``: JSON is YAML, too."""
        own = (task, job.override_dirname, job.id, job.num, str(folder.absolute()))
        return re.sub(r"<own value (\d)>", lambda at: json.dumps(own[int(at[1])], ensure_ascii=False), self.text)


def _write_folder(config: DictConfig, file: HydraFile) -> str:
    """The job's folder, with the files that Hydra puts there."""
    hydra = config.hydra
    sweep, output = hydra.sweep, hydra.output_subdir
    folder = Path(str(sweep.dir)) / str(sweep.subdir)
    if output is not None:
        place, task = folder / str(output), list(hydra.overrides.task)
        folder.mkdir(parents=True, exist_ok=True)  # first, as it is there to make the other in one call
        place.mkdir(parents=True, exist_ok=True)
        raw = config.items_ex(resolve=False, keys=[key for key in config if key != "hydra"])
        own = {key: OmegaConf.to_container(v, enum_to_str=True) if OmegaConf.is_config(v) else v for key, v in raw}
        (place / "config.yaml").write_text(_dump(own))
        (place / "hydra.yaml").write_text(file.of(hydra.job, task, folder))
        (place / "overrides.yaml").write_text(_dump(task))
    return str(folder)


class PackLauncher(BasicLauncher):  # type: ignore[misc]
    """Trains a batch as stacks first; then every job, in order, gets its folder and reports its own outcome."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """See :class:`hydra.plugins.launcher.Launcher`."""
        from experiments.cli import app

        if self.hydra_context is None or self.config is None:
            raise RuntimeError("setup() must be called before launch()")
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        self.train_ahead(initial_job_idx, len(job_overrides))
        configs = ComposedOnce(self.hydra_context.config_loader, self.config)
        done = []
        for number, overrides in enumerate(job_overrides, initial_job_idx):
            config, file = configs.job(overrides, number)
            returned = JobReturn(overrides=list(overrides), working_dir=_write_folder(config, file))
            returned.task_name = str(config.hydra.job.name)
            app.finish(number, overrides)
            returned.status = JobStatus.COMPLETED  # what failed is in the command's own summary and exit status
            returned.return_value = None
            done.append(returned)
        return done

    def train_ahead(self, first: int, count: int) -> None:
        """Train ``count`` jobs from number ``first``; :mod:`experiments.cli.app` keeps their outcomes."""
        from experiments.cli import app

        app.train_ahead(first, count)


class CheckedSweeper(BasicSweeper):  # type: ignore[misc]
    """Hydra's sweeper without its second check: ``run.py`` has composed and checked every job before Hydra started."""

    def validate_batch_is_legal(self, batch: Any) -> None:
        """Nothing is left to check."""


@dataclass
class PackLauncherConf:
    """``hydra/launcher=pack``"""

    _target_: str = "hydra_plugins.ngn_pack.launcher.PackLauncher"


@dataclass
class CheckedSweeperConf:
    """``hydra/sweeper=checked``"""

    _target_: str = "hydra_plugins.ngn_pack.launcher.CheckedSweeper"
    max_batch_size: int | None = None
    params: dict[str, str] | None = None


ConfigStore.instance().store(group="hydra/launcher", name="pack", node=PackLauncherConf, provider="ngn")
ConfigStore.instance().store(group="hydra/sweeper", name="checked", node=CheckedSweeperConf, provider="ngn")
