"""Counting rows for people in the background: whole files are handed to Spark without anybody knowing their rows."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from holdfast.ids import OperatorName
from holdfast.language.connectors import Slice
from holdfast.runtime.element.evaluation import Work
from holdfast.runtime.element.worker import Worker
from holdfast.runtime.metrics import ElementMetrics

_counters = ThreadPoolExecutor(1, thread_name_prefix="holdfast-count")


def count_later(worker: Worker, work: Work, metrics: ElementMetrics, now: float) -> None:
    """Add the rows of slices that do not know their number, as soon as somebody has counted them."""
    for run in worker.sources:
        piece = work.slices.get(run.name)
        if piece is not None and piece.rows is None:
            source, name = run.source, str(run.name)
            future = _counters.submit(source.count_rows, piece)
            future.add_done_callback(partial(_counted, metrics, now, name))


def _counted(metrics: ElementMetrics, now: float, source: str, done: Future[int | None]) -> None:
    if done.exception() is None:
        metrics.add_rows(now, done.result() or 0, source)


def count_now(worker: Worker, name: OperatorName, piece: Slice) -> int:
    """The rows of a slice, found with some work if need be; 0 if its source cannot tell."""
    return worker.source(name).count_rows(piece) or 0


def uncounted_of(work: Work) -> list[tuple[OperatorName, Slice]]:
    """Slices of a step whose rows nobody has counted."""
    return [(name, piece) for name, piece in work.slices.items() if piece.rows is None]
