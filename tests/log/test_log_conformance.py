"""The log of plain files passes the suite of all logs, with one large tail as well as with one segment per few frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.testing.log_conformance import LogConformance
from holdfast.testing.log_interface import LogLike


class TestLogOfFiles(LogConformance):
    def make_log(self, path: Path, **settings: Any) -> LogLike:
        return hf.Log(path, upkeep_every=None, **settings)


class TestLogWithoutMemory(LogConformance):
    """Readers of the writer's own process find nothing in memory."""

    def make_log(self, path: Path, **settings: Any) -> LogLike:
        return hf.Log(path, upkeep_every=None, memory_bytes=0, **settings)


class TestLogOfSmallSegments(LogConformance):
    """Every group of appends begins a segment."""

    def make_log(self, path: Path, **settings: Any) -> LogLike:
        return hf.Log(path, upkeep_every=None, segment_bytes=1, **settings)
