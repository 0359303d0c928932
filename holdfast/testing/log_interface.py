"""What the conformance suite of logs asks of an implementation, and the rows it works with."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Protocol

import pyarrow as pa

SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string())])
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)


class LogLike(Protocol):
    """What the suite asks of a log; the meaning is that of `holdfast.log.log.Log`."""

    def append(self, rows: Any, *, time: Any = None, partition: int = 0, epoch: int = -1) -> Any: ...

    def writer(self, name: str, *, window: int = 16, partition: int = 0) -> Any: ...

    def reader(
        self, from_: Any = "beginning", *, committed: bool = True, partitions: list[int] | None = None
    ) -> Any: ...

    def notes(
        self, writer: str, *, backwards: bool = True, partition: int = 0, committed: bool = True
    ) -> Any: ...

    def seal_epoch(self, epoch: int) -> None: ...

    def withdraw_after(self, epoch: int) -> None: ...

    @property
    def sealed_epoch(self) -> int: ...

    def consumer(self, name: str, at: Any, *, epoch: int | None = None, expires: Any = None) -> Any: ...

    def forget_consumer(self, name: str) -> None: ...

    def pin(self, name: str, at: Any) -> None: ...

    def unpin(self, name: str) -> None: ...

    def compact(self) -> Any: ...

    def retain(self) -> Any: ...

    def trim(self, before: Any, *, force: bool = False) -> Any: ...

    def close(self) -> None: ...


def some(start: int, count: int) -> list[dict[str, Any]]:
    return [{"n": n, "word": f"w{n}"} for n in range(start, start + count)]


def noted(log: LogLike, writer: str, **settings: Any) -> list[tuple[int, int, bytes]]:
    """What a writer noted, the newest first."""
    return [tuple(note)[:3] for note in log.notes(writer, **settings)]


def numbers(reader: Any) -> list[int]:
    """The rows up to the live edge; positions must follow each other within a batch."""
    return [n for batch in reader for n in batch.rows.column("n").to_pylist()]
