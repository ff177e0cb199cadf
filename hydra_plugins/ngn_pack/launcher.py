"""Hydra plugins: jobs that differ in seed and scalars are one stacked training.

``hydra/launcher=pack`` is the default of multiruns; ``hydra/launcher=basic`` trains the jobs one by one. Every job
keeps what Hydra's users expect: its folder with ``.hydra/*.yaml``, its return value, its place in the results.
"""

# No annotations from __future__: Hydra runs this module before it is in sys.modules, where dataclasses would look.
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
from hydra.core.utils import JobReturn, JobStatus, configure_log, setup_globals
from omegaconf import DictConfig, OmegaConf, open_dict

from ngn.compose import GROUPS


class ComposedOnce:
    """The configurations of a sweep's jobs, composed from files once a selection of files.

    Hydra takes about 0.1 s to compose a job, and 10 ms to copy the result. The jobs of a sweep mostly share their
    files and differ in the values of the same keys, which are set in place.
    """

    def __init__(self, loader: ConfigLoader, master: DictConfig) -> None:
        self.loader, self.master = loader, master
        self.parser = OverridesParser.create(config_loader=loader)
        self.composed: dict[tuple[str, ...], DictConfig] = {}

    def job(self, overrides: Sequence[str], number: int) -> DictConfig:
        """What Hydra would compose for job ``number``; it is good until the next call."""
        parsed = self.parser.parse_overrides(list(overrides))
        files = tuple(str(o.input_line) for o in parsed if o.key_or_group in GROUPS or o.is_hydra_override())
        if files not in self.composed:
            self.composed[files] = self.loader.load_sweep_config(self.master, list(overrides))
        config = self.composed[files]
        own = [o for o in parsed if not o.is_hydra_override()]
        for override in own:
            if override.key_or_group not in GROUPS:
                OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
        form = config.hydra.job.config.override_dirname
        with open_dict(config):
            config.hydra.overrides.task = [str(o.input_line) for o in own]
            config.hydra.job.override_dirname = get_overrides_dirname(
                overrides=own, kv_sep=form.kv_sep, item_sep=form.item_sep, exclude_keys=form.exclude_keys
            )
            config.hydra.job.id = config.hydra.job.num = number
        return config


def _write_folder(config: DictConfig) -> str:
    """The job's folder, with the files that Hydra puts there."""
    folder = Path(str(config.hydra.sweep.dir)) / str(config.hydra.sweep.subdir)
    with open_dict(config):
        config.hydra.runtime.output_dir = str(folder.absolute())
    nested = OmegaConf.to_container(config, enum_to_str=True)
    if not isinstance(nested, dict):
        raise TypeError("a job's configuration is a mapping")
    own = nested.pop("hydra")
    if config.hydra.output_subdir is not None:
        place = folder / str(config.hydra.output_subdir)
        place.mkdir(parents=True, exist_ok=True)
        files = {"config": nested, "hydra": {"hydra": own}, "overrides": own["overrides"]["task"]}
        for name, content in files.items():
            # libyaml's writer takes a tenth of the time of the one written in Python, where it is installed.
            text = yaml.dump(content, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)
            (place / f"{name}.yaml").write_text(text)
    return str(folder)


class PackLauncher(BasicLauncher):  # type: ignore[misc]
    """Trains a batch as stacks first; then every job, in order, gets its folder and reports its own outcome."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """See :class:`hydra.plugins.launcher.Launcher`."""
        from ngn.cli import app

        if self.hydra_context is None or self.config is None:
            raise RuntimeError("setup() must be called before launch()")
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        self.train_ahead(initial_job_idx, len(job_overrides))
        configs = ComposedOnce(self.hydra_context.config_loader, self.config)
        done = []
        for number, overrides in enumerate(job_overrides, initial_job_idx):
            config = configs.job(overrides, number)
            returned = JobReturn(overrides=list(overrides), working_dir=_write_folder(config))
            returned.task_name = str(config.hydra.job.name)
            app.finish(number, overrides)
            returned.status = JobStatus.COMPLETED  # what failed is in the command's own summary and exit status
            returned.return_value = None
            done.append(returned)
        return done

    def train_ahead(self, first: int, count: int) -> None:
        """Train ``count`` jobs from number ``first``; :mod:`ngn.cli.app` keeps their outcomes."""
        from ngn.cli import app

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
