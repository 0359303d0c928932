"""What running sums and windows of a second must have written, by loops over their input."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


def written(here: Path, name: str) -> list[dict[str, Any]]:
    """The rows of an exactly-once sink."""
    return [row for path in (here / name).glob("part-*.parquet") for row in pq.read_table(path).to_pylist()]


def check(here: Path) -> None:
    """Of rows (at, k, v) in `in`: `sums` tells every change of n and total once, `seconds` has each second but the last."""
    rows = [row for path in sorted((here / "in").iterdir()) for row in pq.read_table(path).to_pylist()]
    running: dict[str, list[int]] = defaultdict(list)
    seconds: dict[Any, list[int]] = defaultdict(list)
    for row in rows:
        running[row["k"]].append(row["v"])
        seconds[row["at"].replace(microsecond=0), row["k"]].append(row["v"])
    told = [(row["k"], row["n"], row["total"]) for row in written(here, "sums")]
    assert len(set(told)) == len(told), "a change was told twice"
    assert all(total == sum(running[k][:n]) for k, n, total in told)
    counts = {k: max(n for key, n, _ in told if key == k) for k in running}
    assert counts == {k: len(values) for k, values in running.items()}
    last = max(moment for moment, _ in seconds)
    wanted = Counter((m, k, len(v), sum(v)) for (m, k), v in seconds.items() if m < last)
    found = Counter((r["window_start"], r["k"], r["n"], r["total"]) for r in written(here, "seconds"))
    assert found == wanted
