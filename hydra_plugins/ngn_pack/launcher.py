"""Hydra plugins: jobs that differ in seed and scalars are one stacked training.

``hydra/launcher=pack`` is the default of multiruns; ``hydra/launcher=basic`` trains the jobs one by one. Every job
keeps what Hydra's users expect: its folder, its ``.hydra/*.yaml``, its callbacks and its place in the results.
"""

# No annotations from __future__: Hydra runs this module before it is in sys.modules, where dataclasses would look.
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf, open_dict

from ngn.compose import GROUPS


class ComposedOnce:
    """Composes a selection of YAML files once and sets the scalars of the other jobs in a copy of it.

    Hydra takes about 0.1 s to compose a job from its files. Jobs of a sweep mostly share their files and differ in
    plain values, which need no composing.
    """

    def __init__(self, loader: ConfigLoader) -> None:
        self.loader = loader
        self.composed: dict[tuple[str, ...], DictConfig] = {}
        self.parser = OverridesParser.create(config_loader=loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """What the wrapped loader would return."""
        overrides = self.parser.parse_overrides(sweep_overrides)
        files = [o for o in overrides if o.key_or_group in GROUPS or "hydra" in o.get_key_element()]
        scalars = [o for o in overrides if o not in files]
        key = tuple(str(o.input_line) for o in files)
        if key not in self.composed:
            self.composed[key] = self.loader.load_sweep_config(master_config, sweep_overrides)
            return copy.deepcopy(self.composed[key])
        job = copy.deepcopy(self.composed[key])
        for override in scalars:
            OmegaConf.update(job, override.key_or_group, override.value(), merge=True)
        with open_dict(job):
            job.hydra.overrides.task = [o for o in sweep_overrides if not o.startswith("hydra")]
            job.hydra.job.override_dirname = self._dirname(job, overrides)
        return job

    def _dirname(self, job: DictConfig, overrides: Sequence[Any]) -> str:
        from hydra._internal.config_loader_impl import get_overrides_dirname

        settings = job.hydra.job.config.override_dirname
        task = [o for o in overrides if not o.is_hydra_override()]
        name: str = get_overrides_dirname(
            overrides=task,
            kv_sep=settings.kv_sep,
            item_sep=settings.item_sep,
            exclude_keys=settings.exclude_keys,
        )
        return name


class PackLauncher(BasicLauncher):  # type: ignore[misc]
    """Trains the batch as stacks first; then every job picks up its own outcome, in job order."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """See :class:`hydra.plugins.launcher.Launcher`."""
        from ngn.cli import app

        if self.hydra_context is None:
            raise RuntimeError("setup() must be called before launch()")
        app.train_ahead(initial_job_idx, len(job_overrides))
        loader: Any = ComposedOnce(self.hydra_context.config_loader)
        self.hydra_context = HydraContext(config_loader=loader, callbacks=self.hydra_context.callbacks)
        returns: Sequence[JobReturn] = super().launch(job_overrides, initial_job_idx)
        return returns


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
