"""Signals stop a training once it has saved; a closed terminal is one of them."""

import os
import signal
import subprocess
import sys

import pytest

from experiments.core import interrupt
from experiments.core.paths import ROOT


@pytest.mark.parametrize("signum", interrupt.SIGNALS)
def test_a_training_ends_after_its_step(signum):
    saved = []

    def train():
        with interrupt.handled(), interrupt.deferred():
            signal.raise_signal(signum)
            saved.append(interrupt.requested())

    with pytest.raises(interrupt.Interrupted) as stopped:
        train()
    assert saved == [True]
    assert stopped.value.status == 128 + signum


def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupt.handled():
            signal.raise_signal(signal.SIGHUP)
            assert not interrupt.requested()
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


PROGRAM = """
import sys
from experiments.core import interrupt
with interrupt.handled(), interrupt.deferred():
    print("ready", flush=True)
    while not interrupt.requested():
        pass
    print("a progress bar", file=sys.stderr, flush=True)  # an OSError, if the terminal is gone
    open(sys.argv[1], "w").write("saved")
"""


def test_a_closed_terminal_does_not_stop_the_saving(tmp_path):
    mine, theirs = os.openpty()
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "checkpoint")]
    # setsid -c makes the terminal that of the program, so that closing it sends SIGHUP
    program = subprocess.Popen(["setsid", "-c", *words], cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    assert os.read(mine, 100).strip() == b"ready"
    os.close(mine)
    assert program.wait(timeout=60) == 1, "the exception itself has nowhere to go"
    assert (tmp_path / "checkpoint").read_text() == "saved"
