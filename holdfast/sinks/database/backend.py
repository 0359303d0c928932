"""What a `DatabaseSink` asks of a database. One object per run, in the driver; several threads may call it.

Must hold: `show` and the ledger's row change in one transaction; a stage is either there with all rows of every writer that
answered, or it is gone; after `settle` what was staged survives a crash of the server.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from holdfast.errors import FencedError, MismatchError
from holdfast.sinks.database.columns import Columns
from holdfast.sinks.database.rows import Origin, staged_rows, staged_schema
from holdfast.sinks.database.statements import Entry


class Staged(NamedTuple):
    """What one writer put into a stage. Plain: it travels as JSON."""

    stage: str
    writer: int
    rows: int


Ingest = Callable[[str, pa.Schema, Iterator[pa.RecordBatch]], None]
"""(stage, schema, batches): all rows or none. Picklable; runs in any process."""


@dataclass(frozen=True)
class StageWriter:
    """Stages rows of one step, in any process. What it answers counts if the step adopts it."""

    ingest: Ingest
    stage: str
    columns: Columns
    step: int

    def __call__(self, table: pa.Table, partition: int, attempt: int) -> list[int]:
        return self.write(iter([table]), partition)

    def write(self, tables: Iterator[pa.Table], partition: int) -> list[int]:
        """[writer, rows]. No rows, no connection."""
        origin = Origin(secrets.randbits(62), self.step, partition)
        first = next((table for table in tables if table.num_rows), None)
        if first is None:
            return [origin.writer, 0]
        written = _Count()

        def batches() -> Iterator[pa.RecordBatch]:
            came = 0
            for table in chain([first], tables):
                rows = staged_rows(table, self.columns, origin, came)
                came += table.num_rows
                written.rows += rows.num_rows
                yield from rows.to_batches()

        self.ingest(self.stage, staged_schema(self.columns), batches())
        return [origin.writer, written.rows]


@dataclass
class _Count:
    rows: int = 0


class Backend(ABC):
    """A table of a database and what lies beside it: the ledger, and stages."""

    columns: Columns

    @abstractmethod
    def start(self, entry: Entry | None) -> Entry | None:
        """Look at everything before anything is written; make the table, if asked, and the ledger. ConfigError in one
        sentence. `entry`: whose row of the ledger it will be, returned with the table's full name: one table has one row,
        however it is called; None outside of regions, where there is no ledger."""

    @abstractmethod
    def ingest(self) -> Ingest:
        """How tasks fill a stage."""

    @abstractmethod
    def make_stage(self, name: str, durable: bool) -> None:
        """An empty stage. One that is not durable may lose its rows when the server crashes."""

    @abstractmethod
    def settle(self, stage: str, writers: Sequence[int], rows: int) -> str | None:
        """Check the rows against the table, fold them if there is a key, make them durable; InputError if the table would
        not take one. The table that `show` reads, if it is another than the stage."""

    @abstractmethod
    def read_entry(self, entry: Entry) -> Entry | None:
        """The ledger's row as it is."""

    @abstractmethod
    def note(self, entry: Entry) -> None:
        """Set the ledger's row, unless a newer owner or another job has it."""

    @abstractmethod
    def show(self, entry: Entry, staged: str, writers: Sequence[int]) -> None:
        """Move the rows and set the ledger's row in one transaction; nothing if the row says that it was done."""

    @abstractmethod
    def show_now(self, staged: str, writers: Sequence[int]) -> None:
        """Move the rows of a step, outside of regions."""

    @abstractmethod
    def stages(self, prefix: str) -> list[str]:
        """Tables whose names begin so."""

    @abstractmethod
    def drop(self, names: Sequence[str]) -> None:
        """Remove tables, as far as nobody uses them."""

    @abstractmethod
    def is_empty(self) -> bool:
        """True if the table has no row."""

    @abstractmethod
    def close(self) -> None:
        """The run ends."""


GONE_CURE = (
    "Put it back. To write all rows again, run with a new store; to go on without them, with a fork of this one: "
    "`holdfast checkpoints fork`."
)


def refuse_dropped(found: Entry | None, shown: str) -> None:
    """There is no table. MismatchError if the ledger says that something was written into it."""
    if found is not None and found.epoch:
        raise MismatchError(
            f"{shown}, into which epochs up to {found.epoch} were written, is gone.", cure=GONE_CURE
        )


def accept(found: Entry | None, entry: Entry, shown: str) -> bool:
    """Whether `entry` may become the ledger's row `found`; False: it was done. Raises if it is another's."""
    if found is None:
        return True
    if found.job != entry.job:
        raise MismatchError(
            f"the ledger of {shown} says that the sink {entry.sink!r} of topology {entry.topology!r} was run by another job "
            f"({found.job}, not {entry.job}).",
            cure="Use the store this output was made with, write into another table, or rename the sink if rows shall be "
            "added behind those of the other job.",
        )
    if found.token > entry.token:
        raise FencedError(
            f"the ledger of {shown} was written by a newer owner.",
            cure="Stop this run; the newer one goes on.",
        )
    return found.epoch < entry.epoch


def claimed(found: Entry | None, entry: Entry) -> Entry:
    """The row with this owner in it, and the epoch as it was."""
    return replace(entry, epoch=0 if found is None else found.epoch)
