"""The rows of an output directory, read as they stand there, for those who compare two outputs of the same sink."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from holdfast.sinks.output.form import Form


def rows_of(files: Iterable[Path], form: Form, directory: Path) -> list[Mapping[str, Any]]:
    """In the order in which the files were shown. Text stays text; names of partitions are columns."""
    found: list[Mapping[str, Any]] = []
    for path in sorted(files, key=lambda path: (path.stat().st_mtime_ns, path.name)):
        parts = path.relative_to(directory).parts[:-1]
        partition = dict(part.split("=", 1) for part in parts if "=" in part)
        found += [{**row, **partition} for row in _rows(path, form)]
    return found


def _rows(path: Path, form: Form) -> Iterator[Mapping[str, Any]]:
    if form.format == "parquet":
        yield from pq.ParquetFile(path).read().to_pylist()
        return
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = io.StringIO(data.decode(), newline="")
    if form.format == "json":
        yield from (json.loads(line) for line in lines if line.strip())
    elif form.header:
        yield from csv.DictReader(lines)
    else:
        yield from ({str(n): value for n, value in enumerate(row)} for row in csv.reader(lines))
