"""Trainings that are interrupted, as by a kill, when a checkpoint of a step is there."""

import numpy as np
import pytest
import torch


class Stop(Exception):
    """The exception that interrupts a training."""


def stop_after(step):
    """Return an ``on_step`` that interrupts at the first call after ``step``, when its checkpoint is written."""

    def stop(done):
        if done > step:
            raise Stop

    return stop


def resumed(trainer, folder, stop):
    """Stop and resume a training of ``trainer()``, and return what it gives: bit by bit what a whole one does."""
    whole = trainer()
    curves = whole.fit().curves
    with pytest.raises(Stop):
        trainer(folder=folder, checkpoint_seconds=0.0, on_step=stop_after(stop)).fit()
    again = trainer(folder=folder, checkpoint_seconds=1e9)
    history = again.fit()
    assert history.resumed == 1
    for name, value in curves.items():
        assert np.array_equal(history.curves[name], value, equal_nan=True), name
    expected, state = whole.learner.state(), again.learner.state()
    assert expected.keys() == state.keys()
    for name, tensor in expected.items():
        assert torch.equal(state[name], tensor), name
    return again.learner, history
