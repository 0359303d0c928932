"""Appending to a log against writing the same bytes to one file and fsyncing as often. No Spark.

Our side begins with Arrow batches: encoding, checksums, rolling, upkeep and acknowledgements count. The other side has its bytes ready, and writes as
many of them between two fsyncs as our groups had on average. Sides alternate; the bytes on disk are compared. Latency is that of
one append that waits for its acknowledgement, against one write and fsync.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from holdfast.bench.measure.ratios import Ratio, quantile, ratio_of
from holdfast.bench.measure.report import figure
from holdfast.bench.measure.scratch import scratch
from holdfast.errors import HoldfastError
from holdfast.log.log import Log

HALF_WIDTH_MAX = 0.1


@dataclass(frozen=True)
class Work:
    """Sizes of the benchmark."""

    widths: tuple[int, ...] = (256, 1024, 4096)
    batch_bytes: int = 256 << 10
    stretch_bytes_max: int = 2 << 30
    window: int = 64
    single_appends: int = 200
    bout_s: float = 0.5
    single_bytes: int = 16 << 10


@dataclass(frozen=True)
class Done:
    """What one side did in some bouts."""

    seconds: float = 0.0
    bytes: int = 0
    syncs: int = 0
    cpu_s: float = 0.0

    def __add__(self, other: Done) -> Done:
        return Done(
            self.seconds + other.seconds,
            self.bytes + other.bytes,
            self.syncs + other.syncs,
            self.cpu_s + other.cpu_s,
        )


def bench_append(work: Work = Work(), *, pairs: int, seconds: float, quiet: bool) -> dict[str, Any]:
    console = Console(stderr=True, quiet=quiet)
    result: dict[str, Any] = {
        "configuration": {"window": work.window, "batch_bytes": work.batch_bytes},
    }
    shown: dict[str, Ratio] = {}
    with scratch() as root:
        for width in work.widths:
            batches = make_batches(width, work.batch_bytes)
            rounds = alternate(root, batches, work, pairs, seconds, console)
            ratio = ratio_of(
                [raw.seconds / ours.seconds for ours, raw in rounds], half_width_max=HALF_WIDTH_MAX
            )
            shown[f"append_ratio_{width}"] = ratio
            result |= figure(f"append_ratio_{width}", ratio) | sides(width, batches[0].num_rows, rounds)
        result |= latencies(root, work)
    show(console, shown, result)
    return result


def make_batches(width: int, size: int) -> list[pa.RecordBatch]:
    """More than a processor's cache holds: what is written has to be fetched, on both sides."""
    return [make_batch(width, size, seed) for seed in range(64)]


def make_batch(width: int, size: int, seed: int = 0) -> pa.RecordBatch:
    """Rows of `width` bytes: a number, a time, a double, and text for the rest."""
    rows = max(1, size // width)
    dice = np.random.default_rng([width, seed])
    text = max(1, width - 28)
    letters = pa.py_buffer(dice.integers(97, 123, rows * text, dtype=np.uint8).tobytes())
    ends = pa.py_buffer((np.arange(rows + 1, dtype=np.int32) * text).tobytes())
    columns = {
        "id": pa.array(np.arange(rows)),
        "at": pa.array(np.arange(rows), pa.timestamp("us", "UTC")),
        "value": pa.array(dice.random(rows)),
        "text": pa.StringArray.from_buffers(rows, ends, letters),
    }
    return pa.RecordBatch.from_pydict(columns)


def alternate(
    root: Path, batches: list[pa.RecordBatch], work: Work, pairs: int, seconds: float, console: Console
) -> list[tuple[Done, Done]]:
    """Pairs of (ours, raw). Within a pair the sides take turns in short bouts: what disturbs a disk for a second hits both."""
    appends = 64
    for _ in range(2):  # warm up, and see how long it takes
        pace = append_all(root, batches, appends, work.window).seconds / appends
        appends = max(work.window, min(round(work.bout_s / pace), work.stretch_bytes_max // work.batch_bytes))
    rounds = []
    group = max(1, work.window // 4)
    for number in range(pairs):
        ours = raw = Done()
        while min(ours.seconds, raw.seconds) < seconds:
            ours += (now := append_all(root, batches, appends, work.window))
            group = max(1, round(appends / now.syncs))
            raw += write_all(root, batches, appends, group)
            raw += write_all(root, batches, appends, group)
            ours += append_all(root, batches, appends, work.window)
        rounds.append((ours, raw))
        rates = f"{ours.bytes / ours.seconds / 1e6:.0f} and {raw.bytes / raw.seconds / 1e6:.0f} MB/s"
        console.print(f"pair {number + 1} of {pairs}: log and raw {rates}, {group} appends per fsync")
    return rounds


def append_all(root: Path, batches: list[pa.RecordBatch], appends: int, window: int) -> Done:
    """Our side; from the first append until the last one is acknowledged."""
    path = _fresh(root)
    with Log(path, schema=batches[0].schema) as log:
        log.owner()
        writer = log.writer("bench", window=window)
        begin, cpu = time.perf_counter(), time.process_time()
        for number in range(appends):
            writer.append(batches[number % len(batches)])
        writer.flush()
        took, worked = time.perf_counter() - begin, time.process_time() - cpu
        groups = log.owner().appenders[0].groups
        end = log.bounds().end
    if end != appends * batches[0].num_rows:
        raise HoldfastError(f"the log has {end} rows instead of {appends * batches[0].num_rows}.")
    size = sum(each.stat().st_size for each in (path / "p00000").iterdir())
    shutil.rmtree(path)
    return Done(took, size, groups, worked)


def write_all(root: Path, batches: list[pa.RecordBatch], appends: int, group: int) -> Done:
    """The other side: one file, as many bytes."""
    path = _fresh(root)
    path.mkdir()
    made = [bytes(120) + batch.serialize().to_pybytes() for batch in batches]
    fd = os.open(path / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    begin, cpu = time.perf_counter(), time.process_time()
    left, syncs = appends, 0
    while left:
        now = min(group, left)
        together = [made[(left - number) % len(made)] for number in range(now)]
        if os.writev(fd, together) != sum(map(len, together)):
            raise HoldfastError("the disk took less than it was given.")
        os.fsync(fd)
        left -= now
        syncs += 1
    took, worked = time.perf_counter() - begin, time.process_time() - cpu
    os.close(fd)
    shutil.rmtree(path)
    return Done(took, appends * len(made[0]), syncs, worked)


def _fresh(root: Path) -> Path:
    path = root / "log"
    shutil.rmtree(path, ignore_errors=True)
    os.sync()  # what the other side left behind is not paid for here
    return path


def sides(width: int, rows: int, rounds: Sequence[tuple[Done, Done]]) -> dict[str, Any]:
    """What both sides did, over all pairs."""
    ours, raw = [pair[0] for pair in rounds], [pair[1] for pair in rounds]
    total = sum(each.bytes for each in ours)
    return {
        f"side_{width}": {
            "log_mb_per_s": round(total / sum(each.seconds for each in ours) / 1e6, 1),
            "raw_mb_per_s": round(
                sum(each.bytes for each in raw) / sum(each.seconds for each in raw) / 1e6, 1
            ),
            "log_cpu_s_per_gb": round(sum(each.cpu_s for each in ours) / total * 1e9, 2),
            "raw_cpu_s_per_gb": round(
                sum(each.cpu_s for each in raw) / sum(each.bytes for each in raw) * 1e9, 2
            ),
            "rows_per_batch": rows,
            "bytes_per_fsync": round(total / max(1, sum(each.syncs for each in ours))),
            "seconds": [round(each.seconds, 2) for each in ours],
        }
    }


def latencies(root: Path, work: Work) -> dict[str, Any]:
    """One append after the other, each waits; a write and fsync of as many bytes beside each."""
    batch = make_batch(256, work.single_bytes)
    data = bytes(120) + batch.serialize().to_pybytes()
    path = _fresh(root)
    ours: list[float] = []
    raw: list[float] = []
    with Log(path, schema=batch.schema) as log:
        log.owner()
        fd = os.open(root / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for _ in range(work.single_appends):
            begin = time.perf_counter()
            log.append(batch)
            ours.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            os.write(fd, data)
            os.fsync(fd)
            raw.append(time.perf_counter() - begin)
        os.close(fd)
    shutil.rmtree(path)
    return {
        "latency_ms": {
            name: {f"p{round(100 * q)}": round(1000 * quantile(values, q), 3) for q in (0.5, 0.9, 0.99)}
            for name, values in (("log", ours), ("raw", raw))
        },
        "added_latency_p50_ms": round(1000 * (quantile(ours, 0.5) - quantile(raw, 0.5)), 3),
    }


def show(console: Console, shown: dict[str, Ratio], result: dict[str, Any]) -> None:
    table = Table(
        "figure", "median", "interval", title="log against raw write and fsync", title_justify="left"
    )
    for name, ratio in shown.items():
        verdict = "" if ratio.conclusive else " (inconclusive: the machine is too noisy)"
        table.add_row(name, f"{ratio.median:.3f}", f"± {ratio.half_width:.3f}{verdict}")
    console.print(table)
    console.print(
        f"latency of an append: {result['latency_ms']}, added p50 {result['added_latency_p50_ms']} ms"
    )
