"""What the runs of a study need of a machine. Imports no torch."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from experiments.core.blocks import Closed, Positive


class Needs(Closed):
    """What one task of a study needs. Its data and its pretrained model are those of its runs."""

    gpus: Annotated[int, Field(ge=0)] = 0
    """GPUs of one task; 0 for a study that a CPU can train."""
    gpu_gb: Positive | None = None
    """Memory of the GPU in GB (10^9 bytes), as in the name of a card."""
    memory_gb: Positive | None = None
    """Memory of the host in GiB."""
    disk_gb: Positive | None = None
    """Disk for the model, the data, and the two checkpoints that a run keeps, in GB."""
    hours: Positive | None = None
    """Time limit of a task on a cluster, unless ``task_minutes`` gives another."""

    def __str__(self) -> str:
        card = "a GPU" + (f" of {self.gpu_gb:g} GB" if self.gpu_gb else "") if self.gpus == 1 else f"{self.gpus} GPUs"
        parts = [card] if self.gpus else []
        parts += [f"{self.memory_gb:g} GiB of memory"] if self.memory_gb else []
        parts += [f"{self.disk_gb:g} GB of disk"] if self.disk_gb else []
        return " and ".join(parts)

    def lacking(self, cards: list[int]) -> str | None:
        """Say what a machine lacks; None if it has everything.

        Args:
            cards: bytes of memory of every GPU that a task may use; 0 where unknown.
        """
        if len(cards) < self.gpus:
            return f"needs {self}, but finds {len(cards) or 'none'} here"
        # A card has up to a twentieth less than its name says.
        small = [size for size in cards[: self.gpus] if size and self.gpu_gb and size < 0.95e9 * self.gpu_gb]
        return f"needs {self}, but the one here has {small[0] / 1e9:.0f} GB" if small else None


NOTHING = Needs()
"""What every machine has."""
