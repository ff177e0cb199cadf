"""Printed lines of progress, without a terminal or without rich."""

from __future__ import annotations

import pytest

from ngn.train import progress


def test_a_line_is_printed_every_30_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with progress.ProgressLine("cora s0 grown", 1000, replicas=2) as bar:
        assert not bar.due()
        clock[0] += progress.SECONDS
        assert bar.due()
        bar.show(250, "t 1.50")
        assert not bar.due()
    assert capsys.readouterr().err == "cora s0 grown: step 250 of 1,000, 17 steps/s, 1:30 left, t 1.50\n"
    with progress.ProgressLine("slow", 10, unit="question") as bar:
        clock[0] += progress.SECONDS
        bar.show(4, "")
    assert capsys.readouterr().err == "slow: question 4 of 10, 7.5 s/question, 0:45 left\n"
    assert not progress.ProgressLine("silent", 10, mode="never").shown


def test_lines_replace_the_bar_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress.ProgressLine("bar", 10, mode="always").drawn
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    assert not progress.ProgressLine("lines", 10, mode="always").drawn
