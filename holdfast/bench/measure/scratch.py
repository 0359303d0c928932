"""A directory for one benchmark."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch() -> Iterator[Path]:
    """Gone at the end of the block."""
    root = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)
