"""Logs with a past: rows out of order, without a time, with notes, of epochs that were sealed, withdrawn or are under way; merged, trimmed."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast as hf
from holdfast.log.rows import microseconds

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
TIMES = {
    "appended": None,
    "us UTC": pa.timestamp("us", "UTC"),
    "ms Berlin": pa.timestamp("ms", "Europe/Berlin"),
    "s": pa.timestamp("s"),
    "us": pa.timestamp("us"),
    "ns": pa.timestamp("ns", "UTC"),
    "date": pa.date32(),
}
"""Kinds of time: of appending, or of a column of such a type."""


class RandomLog:
    """A log, and how a row of it is made. All drawn from a seed."""

    def __init__(self, path: Path, seed: str, kind: str) -> None:
        self.path, self.dice, self.kind = path, random.Random(seed), kind
        column = TIMES[kind]
        self.schema = pa.schema([("n", pa.int64()), *([("at", column)] if column is not None else [])])
        self.step = timedelta(days=1) if kind == "date" else timedelta(seconds=1)
        self.number, self.epoch = 0, 0

    def fill(self, appends: int) -> None:
        partitions = self.dice.choice([1, 1, 2])
        log = self._open(partitions=partitions)
        for _ in range(appends):
            partition = self.dice.randrange(partitions)
            self._append(log, partition)
            match self.dice.randrange(12):
                case 0 | 1:
                    log.close()
                    log = self._open()
                    if self.dice.random() < 0.6:
                        log.compact()
                case 2:
                    log.seal_epoch(self.epoch)
                case 3:
                    log.withdraw_after(self.epoch - 1)
                case 4:
                    end = log.bounds(partition).end
                    log.trim({partition: self.dice.randrange(end // 2 + 1)})
        log.close()

    def _open(self, **settings: Any) -> hf.Log:
        time = None if self.kind == "appended" else "at"
        size = self.dice.choice([1, 1 << 20])
        return hf.Log(
            self.path, schema=self.schema, time=time, segment_bytes=size, upkeep_every=None, **settings
        )

    def _append(self, log: hf.Log, partition: int) -> None:
        at = [self._time() for _ in range(self.dice.randrange(1, 6))]
        table = pa.table({"n": range(self.number, self.number + len(at))})
        self.number += len(at)
        if self.kind != "appended":
            zone = getattr(TIMES[self.kind], "tz", None)
            values = [None if time is None else time if zone else time.replace(tzinfo=None) for time in at]
            dated = [v if v is None else v.date() for v in values] if self.kind == "date" else values
            table = table.append_column("at", pa.array(dated, TIMES[self.kind]))
        self.epoch += self.dice.random() < 0.3
        epoch = self.epoch if self.dice.random() < 0.5 and log.sealed_epoch < self.epoch else -1
        moment = (self._time() or BEGIN) if self.kind == "appended" else None
        note = b"note" if self.dice.random() < 0.2 else None
        writer = log.writer("random", partition=partition)
        writer.append(table, time=moment, epoch=epoch, note=note, wait=True).result()
        if self.dice.random() < 0.1:
            writer.note(b"alone", wait=True)

    def _time(self) -> datetime | None:
        """Mostly ascending, now and then late, far ahead, or none."""
        luck = self.dice.random()
        if luck < 0.05:
            return None
        at = self.number + self.dice.randrange(-3, 4) + (self.dice.randrange(-60, 60) if luck < 0.1 else 0)
        return BEGIN + at * self.step

    def some_time(self) -> datetime | None:
        if self.dice.random() < 0.1:
            return None
        return (
            BEGIN
            + self.dice.randrange(-5, self.number + 5) * self.step
            + timedelta(seconds=self.dice.choice([0, 0, 0.5]))
        )

    def stretch(self) -> tuple[datetime | None, datetime | None]:
        one, other = self.some_time(), self.some_time()
        return (other, one) if one is not None and other is not None and one > other else (one, other)


def scanned(path: Path, since: datetime | None = None, until: datetime | None = None) -> list[int]:
    """A full scan with a filter."""
    found = []
    for batch in hf.Log(path).reader():
        for n, at in zip(
            batch.rows.column("n").to_pylist(), batch.times.cast(pa.int64()).to_pylist(), strict=True
        ):
            after = since is None or (at is not None and at >= microseconds(since))
            before = until is None or (at is not None and at < microseconds(until))
            if after and before:
                found.append(n)
    return sorted(found)
