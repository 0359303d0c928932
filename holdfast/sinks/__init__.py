"""Where rows go: files and databases (exactly-once), memory, the console, and the user's own function.

Importing this package needs no Java: pyspark is imported only inside the methods that are handed a frame. A sink is imported when it is
first named.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.sinks.console import ConsoleSink as ConsoleSink
    from holdfast.sinks.database.sink import DatabaseSink as DatabaseSink
    from holdfast.sinks.files import FileSink as FileSink
    from holdfast.sinks.foreach_batch import ForeachBatch as ForeachBatch
    from holdfast.sinks.log_sink import LogSink as LogSink
    from holdfast.sinks.memory import MemorySink as MemorySink

_HOMES = {
    "ConsoleSink": "console",
    "DatabaseSink": "database.sink",
    "FileSink": "files",
    "ForeachBatch": "foreach_batch",
    "LogSink": "log_sink",
    "MemorySink": "memory",
}

__all__ = sorted(_HOMES)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
