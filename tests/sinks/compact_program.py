"""A compaction that dies. argv: directory, size."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.sinks.output.compaction import compact

compact(Path(sys.argv[1]), int(sys.argv[2]))
