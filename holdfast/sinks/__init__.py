"""Where rows go: files and databases (exactly-once), memory, the console, and the user's own function.

Importing this package needs no Java: pyspark is imported only inside the methods that are handed a frame.
"""

from __future__ import annotations

from holdfast.sinks.console import ConsoleSink
from holdfast.sinks.database.sink import DatabaseSink
from holdfast.sinks.files import FileSink
from holdfast.sinks.foreach_batch import ForeachBatch
from holdfast.sinks.log_sink import LogSink
from holdfast.sinks.memory import MemorySink

__all__ = ["ConsoleSink", "DatabaseSink", "FileSink", "ForeachBatch", "LogSink", "MemorySink"]
