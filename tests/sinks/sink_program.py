"""A driver that dies: runs a file sink through MiniRun in a process of its own. argv: directory, format, token, and perhaps roll."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.sinks import FileSink
from holdfast.testing.sink_conformance import MiniRun

directory, format, token = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
roll = sys.argv[4] if len(sys.argv) > 4 else None
MiniRun(directory / "book.json", lambda: FileSink(str(directory / "out"), format, roll=roll)).run(token)  # type: ignore[arg-type]
