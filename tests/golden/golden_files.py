"""Files of golden stores: input as version control gives it back, and rows of sinks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import holdfast as hf

Row = dict[str, Any]

MTIME_NS = 1_600_000_000_000_000_000
"""Version control keeps no times; sources know their files by size and time."""


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def set_times(directory: Path) -> None:
    for path in directory.rglob("*.json"):
        os.utime(path, ns=(MTIME_NS, MTIME_NS))


def rows_of(directory: Path, pattern: str = "part-*.json") -> list[Row]:
    """The rows of all files, by the names of the files."""
    paths = sorted(directory.glob(pattern))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def totals_of(orders: hf.Stream) -> hf.Stream:
    """What each user has ordered so far."""
    amount = "amount"
    least, most, mean = hf.min(amount), hf.max(amount), hf.avg(amount)
    named = {"n": hf.count(), "total": hf.sum(amount), "low": least, "top": most, "mean": mean}
    return orders.aggregate("user", **named, name="totals")


def copy_as_checked_out(golden: Path, root: Path) -> None:
    """Version control keeps neither empty directories nor modes nor times."""
    for path in golden.rglob("*"):
        if path.is_file():
            target = root / path.relative_to(golden)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    set_times(root / "input")
