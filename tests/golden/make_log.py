"""Makes the golden log of the present format: `.venv/bin/python tests/golden/make_log.py`. Kept for ever, like golden stores.

It holds what a log can hold: segments of several owners, a Parquet segment, a closed tail with its index, a torn tail, two partitions, sealed,
withdrawn and open epochs, trimmed rows, a consumer and a pin; notes with rows and alone, in every kind of segment and of every fate.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast as hf
from holdfast.log.place import FORMAT, Origin

HERE = Path(__file__).resolve().parent
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [("n", pa.int64()), ("text", pa.string()), ("list", pa.list_(pa.float64())), ("day", pa.date32())]
)


def rows(start: int, count: int = 4) -> list[dict[str, Any]]:
    return [
        {
            "n": n,
            "text": None if n % 5 == 4 else f"Text {n} é",
            "list": [n / 4, None],
            "day": (BEGIN + timedelta(days=n)).date(),
        }
        for n in range(start, start + count)
    ]


def at(minutes: int) -> datetime:
    return BEGIN + timedelta(minutes=minutes)


def opened(root: Path, **settings: Any) -> hf.Log:
    return hf.Log(
        root, schema=SCHEMA, partitions=2, origin=Origin("shop", "orders", "0"), upkeep_every=None, **settings
    )


def fill(root: Path) -> None:
    with opened(root) as log:
        for n in range(5):
            log.writer("feed").append(
                rows(4 * n), time=at(n), sequence=10 * n + 10, wait=True, note=b"feed %d" % n
            )
            log.append(rows(100 + 4 * n), time=at(n), partition=1, epoch=n // 2)
            log.writer("clerk").note(b"alone %d" % n, wait=True)
        log.seal_epoch(1)  # the rows of epoch 2 are open
    with opened(root) as log:
        log.compact()
        log.withdraw_after(1)
        clerk = log.writer("clerk", partition=1)
        clerk.append(rows(116, 2), time=at(6), epoch=2, wait=True, note=bytes(range(256)))
        log.seal_epoch(2)
    with opened(root, segment_bytes=2500) as log:
        for n in range(5, 14):
            log.append(rows(4 * n), time=at(n))
            log.writer("clerk").note(b"alone %d" % n, wait=True)
        log.consumer("report", {0: 12, 1: 5}, epoch=3, expires="1 day")
        log.pin("before-upgrade", {0: 9, 1: 2})
        log.trim({0: 6})
    log = opened(root)
    log.append(rows(56), time=at(20))
    clerk = log.writer("clerk", partition=1)
    clerk.append(rows(118, 3), time=at(21), epoch=3, wait=True, note=b"open")
    tail = max((root / "p00000").glob("*.tail"))
    kept = tail.read_bytes()
    log.append(rows(60), time=at(22))
    torn = tail.read_bytes()[: len(kept) + 150]  # the owner dies while it writes the second frame
    log.owner().abandon()
    tail.write_bytes(torn)


def content(root: Path) -> dict[str, Any]:
    """What a reader of the copy must find."""
    log = hf.Log(root)
    found: dict[str, Any] = {
        which: {
            str(partition): [
                [batch.position + n, json.loads(json.dumps(row, default=str)), time.isoformat()]
                for batch in log.reader(committed=which == "committed", partitions=[partition])
                for n, (row, time) in enumerate(
                    zip(batch.rows.to_pylist(), batch.times.to_pylist(), strict=True)
                )
            ]
            for partition in range(2)
        }
        for which in ("committed", "all")
    }
    if log.facts.format > 1:
        found["notes"] = {
            f"{writer} {partition} {which}": [
                [note.position, note.sequence, note.rows, note.payload.decode("latin-1")]
                for note in log.notes(writer, partition=partition, committed=which == "committed")
            ]
            for writer in ("feed", "clerk")
            for partition in range(2)
            for which in ("committed", "all")
        }
    return found


def main() -> None:
    target = HERE / f"log-{FORMAT}"
    if target.exists():
        sys.exit(f"{target} exists; a golden log is made once. Remove it yourself if it was never released.")
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "log")
        fill(root)
        shutil.copytree(root, target / "log", ignore=shutil.ignore_patterns("tmp"))
    (target / "expected.json").write_text(json.dumps(content(target / "log"), ensure_ascii=False) + "\n")
    print(target)


if __name__ == "__main__":
    main()
