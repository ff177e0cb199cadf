"""Run a function in two processes that talk by gloo; ``two_processes.py RANK FOLDER`` is one of them."""

import datetime
import os
import pickle
import sys
from pathlib import Path


def process(rank, folder):
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=120)
    )
    work, args = pickle.loads((folder / "work").read_bytes())
    torch.save(work(rank, *args), folder / f"{rank}.pt")
    distributed.destroy_process_group()


def results(folder, work, *args):
    """Return what ``work(rank, *args)``, a function of a test module, gives in each process."""
    import programs
    import torch

    (folder / "work").write_bytes(pickle.dumps((work, args)))
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(sys.modules[work.__module__].__file__).parent), *sys.path])
    }
    logs = [folder / f"{rank}.log" for rank in (0, 1)]
    started = [
        programs.start(__file__, str(rank), folder, cwd=folder, env=env, log=log) for rank, log in enumerate(logs)
    ]
    assert [program.wait() for program in started] == [0, 0], "\n".join(log.read_text() for log in logs)
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


if __name__ == "__main__":
    process(int(sys.argv[1]), Path(sys.argv[2]))
