"""The report of the committed records, made once in a process, as several files of tests look at it."""

from __future__ import annotations

import functools

from experiments.analysis.collect import Reader
from experiments.core.paths import RESULTS
from experiments.report.content import ReportContent, build_content
from experiments.store.records import Store


@functools.cache
def reader() -> Reader:
    return Reader(Store(RESULTS))


@functools.cache
def report() -> ReportContent:
    return build_content(reader())
