"""Hydra plugins that train jobs as stacks: jobs that differ only in seed and scalars form one stack.

``hydra/launcher=pack`` is the default of multiruns. ``hydra/launcher=basic`` trains the jobs one by one.
"""

from collections.abc import Sequence
from pathlib import Path

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus, configure_log, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from experiments.cli.arguments import key_of
from experiments.cli.session import Session, write_folder


def _session(task_function: TaskFunction) -> Session:
    session = getattr(task_function, "__self__", None)
    if not isinstance(session, Session):
        raise TypeError(
            "this plugin is for the jobs of run.py; use hydra/launcher=basic hydra/sweeper=basic for others"
        )
    return session


class PackLauncher(Launcher):
    """Train a batch of jobs as stacks; then give every job, in order, its folder, its log and its outcome."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """See :class:`hydra.plugins.launcher.Launcher`; ``task_function`` is the ``job`` of a :class:`Session`."""
        self.config, self.session = config, _session(task_function)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """See :class:`hydra.plugins.launcher.Launcher`."""
        from experiments.runs.launch import share  # imported here: Hydra loads this module in every command

        setup_globals()
        hydra = self.config.hydra
        configure_log(hydra.hydra_logging, hydra.verbose)
        jobs = [self.session.of(number, each) for number, each in enumerate(job_overrides, initial_job_idx)]
        outcomes, done = share([job.run for job in jobs]), []
        for number, (job, overrides) in enumerate(zip(jobs, job_overrides, strict=True), initial_job_idx):
            folder = self._folder(number, list(overrides))
            configure_log(hydra.job_logging, hydra.verbose)
            if hydra.output_subdir is not None:
                write_folder(folder / hydra.output_subdir, job.run.config, hydra, overrides)
            value = self.session.report(number, job, outcomes[job.run.id], hydra)
            returned = JobReturn(overrides=list(overrides), working_dir=str(folder), task_name=str(hydra.job.name))
            returned.status = JobStatus.COMPLETED  # the summary and the exit status of the command report failures
            returned.return_value = value
            done.append(returned)
        configure_log(hydra.hydra_logging, hydra.verbose)
        return done

    def _folder(self, number: int, overrides: list[str]) -> Path:
        """Make the folder of a job, whose name may contain its number and overrides, and let Hydra's settings name it.

        Composing each job with Hydra would take a tenth of a second, and the session has the configuration.
        """
        hydra = self.config.hydra
        form = hydra.job.config.override_dirname
        named = sorted(token for token in overrides if key_of(token) not in form.exclude_keys)
        with read_write(hydra), open_dict(hydra):
            hydra.job.id = hydra.job.num = number
            hydra.job.override_dirname = str(form.item_sep).join(named).replace("=", str(form.kv_sep))
            hydra.overrides.task = overrides
            folder = Path(str(hydra.sweep.dir)).absolute() / str(hydra.sweep.subdir)
            hydra.runtime.output_dir = str(folder)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


class CheckedSweeper(Sweeper):
    """Launch the jobs of a command, which ``run.py`` has composed and checked before Hydra starts."""

    def __init__(self, max_batch_size: int | None) -> None:
        self.max_batch_size = max_batch_size

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """See :class:`hydra.plugins.sweeper.Sweeper`; ``task_function`` is the ``job`` of a :class:`Session`."""
        self.config, self.session = config, _session(task_function)
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> list[Sequence[JobReturn]]:
        """Launch all jobs of the session, in batches of ``max_batch_size``; ``arguments`` have been read before."""
        folder = Path(str(self.config.hydra.sweep.dir))
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        jobs = [job.tokens for job in self.session.jobs]
        size = self.max_batch_size or len(jobs)
        done = [self.launcher.launch(jobs[at : at + size], initial_job_idx=at) for at in range(0, len(jobs), size)]
        for returned in (each for batch in done for each in batch):
            _ = returned.return_value  # raises the error of a job that failed
        return done


_HERE, _STORE = "hydra_plugins.ngn_pack.launcher", ConfigStore.instance()
_STORE.store(group="hydra/launcher", name="pack", node={"_target_": f"{_HERE}.PackLauncher"}, provider="ngn")
_SWEEPER = {"_target_": f"{_HERE}.CheckedSweeper", "max_batch_size": None}
_STORE.store(group="hydra/sweeper", name="checked", node=_SWEEPER, provider="ngn")
