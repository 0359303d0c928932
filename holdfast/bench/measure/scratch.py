"""A directory for one benchmark, or for one stretch of it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch(prefix: str = "holdfast-bench", inside: Path | None = None) -> Iterator[Path]:
    """Gone at the end of the block."""
    path = Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=inside))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
