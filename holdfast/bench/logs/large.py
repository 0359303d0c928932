"""A log that is larger than anybody's memory: what its writer and a reader hold, each in a process of its own, and how long it takes to
make all indexes again. No Spark."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from holdfast.bench.logs.filled import WIDTH, batches
from holdfast.bench.measure.scratch import scratch
from holdfast.errors import HoldfastError
from holdfast.log.log import Log

BYTES = 4 << 30
LOOKS = 8
"""How often a process tells what it holds."""


def measure_large(scale: float) -> dict[str, Any]:
    with scratch() as root:
        rows = max(LOOKS, round(scale * BYTES) // WIDTH)
        writer = _apart("write", root / "log", rows)
        reader = _apart("read", root / "log", rows)
        indexes = list((root / "log" / "p00000").glob("*.index"))
        for path in indexes:
            path.unlink()
        with Log(root / "log", upkeep_every=None) as log:
            log.owner()
            begun = time.perf_counter()
            made = log.rebuild_index()
            took = time.perf_counter() - begun
        if made < len(indexes):
            raise HoldfastError(f"{made} of {len(indexes)} indexes were made again.")
        size = sum(each.stat().st_size for each in (root / "log" / "p00000").iterdir())
    return {
        "large_log_bytes": size,
        "large_index_rebuild_s": round(took, 3),
        "large_indexes": made,
        "large_writer_peak_mb": writer["peak_mb"],
        "large_reader_peak_mb": reader["peak_mb"],
        "large_writer_s": writer["seconds"],
        "large_reader_s": reader["seconds"],
        "large_memory_growth": {
            name: round(told["peak_mb"][-1] / told["peak_mb"][LOOKS // 4 - 1], 3)
            for name, told in (("writer", writer), ("reader", reader))
        },
    }


def _apart(what: str, path: Path, rows: int) -> dict[str, Any]:
    """In a process of its own: its peak after each eighth of the rows."""
    done = subprocess.run(
        [sys.executable, "-m", __name__, what, str(path), str(rows)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise HoldfastError(f"the {what}r of the large log failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _write(path: Path, rows: int) -> Any:
    first = next(batches(1))
    with Log(path, schema=first.schema, time="at", upkeep_every=None) as log:
        writer = log.writer("bench")
        for batch in batches(rows):
            writer.append(batch)
            yield batch.num_rows
        writer.flush()


def _read(path: Path, rows: int) -> Any:
    for batch in Log(path).reader():
        yield batch.rows.num_rows


def _peak_mb() -> float:
    """Since this program began: what getrusage tells has that of the process it was forked from in it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return round(int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024, 1)


def _main(what: str, path: str, rows: int) -> None:
    done, begun = 0, time.perf_counter()
    peaks: list[float] = []
    for count in {"write": _write, "read": _read}[what](Path(path), rows):
        done += count
        while len(peaks) < LOOKS and done >= rows * (len(peaks) + 1) // LOOKS:
            peaks.append(_peak_mb())
    if done != rows:
        raise HoldfastError(f"{done} rows instead of {rows}.")
    print(json.dumps({"peak_mb": peaks, "seconds": round(time.perf_counter() - begun, 2)}))


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
