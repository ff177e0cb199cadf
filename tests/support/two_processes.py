"""Run a function in two processes that talk by gloo."""

import datetime

import torch
from torch import distributed, multiprocessing


def process(rank, folder, work, args):
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=2,
        timeout=datetime.timedelta(seconds=120),
    )
    torch.save(work(rank, *args), folder / f"{rank}.pt")
    distributed.destroy_process_group()


def results(folder, work, *args):
    """Return what ``work(rank, *args)``, a function of a module, gives in each process."""
    multiprocessing.spawn(process, (folder, work, args), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]
