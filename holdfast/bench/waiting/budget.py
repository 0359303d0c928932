"""Where the driver's time goes: the calls of a small step and of a small epoch, measured where they are made."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

from holdfast.bench.measure.ratios import quantile
from holdfast.runtime.element.worker import Worker
from holdfast.runtime.engines.spark.engine import SparkEngine
from holdfast.runtime.region.epochs import RegionEpochs
from holdfast.runtime.runs.keyed_run import KeyedRun
from holdfast.runtime.runs.operator_runs import SourceRun
from holdfast.sinks.files import FileSink
from holdfast.sources.files import Files

STEP: Sequence[tuple[str, type, str]] = (
    ("find_input", SourceRun, "next_slice"),
    ("whole_step", Worker, "step"),
    ("read", SparkEngine, "read"),
    ("keyed", SparkEngine, "keyed_step"),
    ("write", SparkEngine, "write"),
    ("verify_input", Files, "processed"),
)
EPOCH: Sequence[tuple[str, type, str]] = (
    ("pin", Worker, "pin"),
    ("upload", Worker, "upload"),
    ("state", KeyedRun, "part_of"),
    ("prepare_sink", FileSink, "prepare"),
    ("publish", RegionEpochs, "publish"),
    ("make_visible", RegionEpochs, "make_visible"),
    ("commit_sink", FileSink, "commit"),
)


class Budget:
    """Seconds by call. Calls that find nothing to do are left out."""

    def __init__(self) -> None:
        self._spent: dict[str, list[float]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def measuring(self) -> Iterator[None]:
        with ExitStack() as stack:
            for label, owner, name in (*STEP, *EPOCH):
                timed = self._timed(label, getattr(owner, name))
                stack.enter_context(patch.object(owner, name, timed))
            yield

    def _timed(self, label: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def run(*args: Any, **options: Any) -> Any:
            begun = time.perf_counter()
            result = call(*args, **options)
            took = time.perf_counter() - begun
            if result is not None or label != "find_input":
                with self._lock:
                    self._spent.setdefault(label, []).append(took)
            return result

        return run

    def of(self, calls: Sequence[tuple[str, type, str]]) -> dict[str, float]:
        """Median milliseconds of each call that was made."""
        found = {label: self._spent.get(label, []) for label, _, _ in calls}
        return {label: round(1000 * quantile(spent, 0.5), 2) for label, spent in found.items() if spent}
