"""What every `Sink` that takes part in epochs must pass, and a tiny run to crash it with. Nothing here needs Spark.

    class TestMySink(SinkConformance):
        def make(self): return MySink(self.place)
        def visible(self): return read(self.place)     # rows as (int, str) tuples

`MiniRun` is the smallest honest runtime: steps, seal, prepare, publish (one durable JSON file), commit, restore. A test
kills or fails it at a failpoint, runs it again under the next owner token and looks at what is visible.
"""

from __future__ import annotations

import json
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgpack
import pyarrow as pa

from holdfast.durable import write_file
from holdfast.errors import HoldfastError
from holdfast.ids import Attempt, Epoch, OwnerToken
from holdfast.language.connectors import POSITION_FIELDS, Sink, SinkContext, StepId
from holdfast.testing.source_conformance import assert_plain

SINK_FAILPOINTS = (
    "sink.write",
    "sink.prepare",
    "sink.prepared",
    "sink.commit.begin",
    "sink.commit.applied",
    "sink.commit.recorded",
    "reset.sink.rollback",
)
S = TypeVar("S", bound=Sink)
SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string())])


def context(
    token: int = 1, *, job: str = "job-1", region: str | None = "r", sink: str = "out"
) -> SinkContext:
    return SinkContext(job, "topology", sink, region, OwnerToken(token))


def rows(first: int, count: int = 2) -> pa.Table:
    numbers = list(range(first, first + count))
    return pa.table({"n": numbers, "word": [f"w{n}" for n in numbers]}, schema=SCHEMA)


def tuples(first: int, count: int = 2) -> list[tuple[Any, ...]]:
    return [(n, f"w{n}") for n in range(first, first + count)]


def opened_sink(sink: S, token: int = 1, epoch: int = 0, prepared: Any = None, **settings: Any) -> S:
    """The sink as an owner has it at the beginning of a run."""
    sink.open(context(token, **settings))
    if settings.get("region", "r") is not None:
        sink.restore(Epoch(epoch), prepared)
    return sink


class SinkConformance(ABC):
    """The suite. Each test is a sentence about sinks."""

    @abstractmethod
    def make(self) -> Sink:
        """A sink on the same place each time."""

    @abstractmethod
    def visible(self) -> list[tuple[Any, ...]]:
        """What a reader sees now, in any order."""

    def opened(self, token: int = 1, epoch: int = 0, prepared: Any = None, **settings: Any) -> Sink:
        return opened_sink(self.make(), token, epoch, prepared, **settings)

    def epoch(self, sink: Sink, number: int, *tables: pa.Table, attempt: int = 0, step: int = 0) -> Any:
        """Write, seal and prepare an epoch; its rows are not visible yet."""
        for offset, table in enumerate(tables):
            sink.write_arrow(table, StepId(Attempt(attempt), step or 100 * number + offset))
        return sink.prepare(Epoch(number), sink.seal(Epoch(number)))

    def shows(self, wanted: list[tuple[Any, ...]]) -> None:
        assert sorted(self.visible()) == sorted(wanted)

    def test_rows_are_invisible_until_commit_and_visible_once_after_it(self) -> None:
        sink = self.opened()
        prepared = self.epoch(sink, 1, rows(0), rows(2))
        self.shows([])
        sink.commit(Epoch(1), prepared)
        self.shows(tuples(0, 4))
        sink.commit(Epoch(1), prepared)
        self.shows(tuples(0, 4))

    def test_what_is_prepared_is_plain_data(self) -> None:
        prepared = self.epoch(self.opened(), 1, rows(0))
        assert_plain(prepared)
        assert msgpack.unpackb(msgpack.packb(prepared)) == prepared

    def test_later_steps_do_not_slip_into_a_sealed_epoch(self) -> None:
        sink = self.opened()
        sink.write_arrow(rows(0), StepId(Attempt(0), 1))
        sealed = sink.seal(Epoch(1))
        sink.write_arrow(rows(2), StepId(Attempt(0), 2))
        prepared = sink.prepare(Epoch(1), sealed)
        sink.write_arrow(rows(4), StepId(Attempt(0), 3))
        sink.commit(Epoch(1), prepared)
        self.shows(tuples(0, 2))
        sink.commit(Epoch(2), sink.prepare(Epoch(2), sink.seal(Epoch(2))))
        self.shows(tuples(0, 6))

    def test_restore_rolls_a_published_epoch_forward_and_withdraws_the_rest(self) -> None:
        sink = self.opened()
        prepared = self.epoch(sink, 1, rows(0), rows(2))
        self.epoch(sink, 2, rows(90))
        sink.write_arrow(rows(95), StepId(Attempt(0), 900))
        sink.restore(Epoch(1), prepared)
        self.shows(tuples(0, 4))
        sink.restore(Epoch(1), prepared)
        again = self.epoch(sink, 2, rows(4), attempt=1)
        sink.commit(Epoch(2), again)
        self.shows(tuples(0, 6))

    def test_restore_to_the_beginning_withdraws_everything_unpublished(self) -> None:
        sink = self.opened()
        self.epoch(sink, 1, rows(90))
        sink.restore(Epoch(0), None)
        sink.commit(Epoch(1), self.epoch(sink, 1, rows(0), attempt=1))
        self.shows(tuples(0))

    def test_empty_steps_and_epochs_are_fine(self) -> None:
        sink = self.opened()
        sink.commit(Epoch(1), self.epoch(sink, 1))
        sink.commit(Epoch(2), self.epoch(sink, 2, rows(0, 0), rows(0, 1), rows(1, 0)))
        sink.commit(Epoch(3), self.epoch(sink, 3, rows(0, 0)))
        self.shows(tuples(0, 1))

    def test_position_columns_are_not_shown(self) -> None:
        sink = self.opened()
        table = rows(0)
        for field in POSITION_FIELDS:
            table = table.append_column(field, pa.array([0, 1], field.type))
        sink.commit(Epoch(1), self.epoch(sink, 1, table))
        self.shows(tuples(0))

    def test_a_new_owner_rolls_forward_what_the_old_one_published(self) -> None:
        old = self.opened(1)
        old.commit(Epoch(1), self.epoch(old, 1, rows(0)))
        prepared = self.epoch(old, 2, rows(2), rows(4))
        old.write_arrow(rows(90), StepId(Attempt(0), 900))
        new = self.opened(2, 2, prepared) if self.survives_restart else old
        new.restore(Epoch(2), prepared)
        new.commit(Epoch(3), self.epoch(new, 3, rows(6)))
        self.shows(tuples(0, 8))

    survives_restart = True
    """False for sinks whose staging dies with the process."""

    def test_what_tasks_write_counts_once_and_only_if_it_is_adopted(self) -> None:
        sink = self.opened()
        writer = sink.task_writer(StepId(Attempt(0), 1))
        if writer is None:
            return  # a sink need not let tasks write
        travelled = pickle.loads(pickle.dumps(writer))
        won = [travelled(rows(0), 0, 11), travelled(rows(2), 1, 12), travelled(rows(0, 0), 2, 13)]
        travelled(rows(0), 0, 14)  # a second attempt, done as well and too late
        sink.adopt(StepId(Attempt(0), 1), won)
        given_up = sink.task_writer(StepId(Attempt(0), 2))
        assert given_up is not None
        given_up(rows(90), 0, 15)
        prepared = self.epoch(sink, 1, rows(4))
        self.shows([])
        sink.commit(Epoch(1), prepared)
        self.shows(tuples(0, 6))
        sink.restore(Epoch(1), prepared)
        self.shows(tuples(0, 6))

    def test_outside_a_region_every_step_is_final(self) -> None:
        sink = self.opened(region=None)
        sink.write_arrow(rows(0), StepId(Attempt(0), 1))
        self.shows(tuples(0))
        sink.write_arrow(rows(2), StepId(Attempt(0), 2))
        self.shows(tuples(0, 4))

    def test_describes_itself(self) -> None:
        assert self.make().describe()
        assert self.make().reason


@dataclass
class MiniRun:
    """Writes epochs of two steps with two rows each until `epochs` are committed; what it publishes lies in `book`."""

    book: Path
    make: Callable[[], Sink]
    epochs: int = 3
    between: Callable[[], None] = lambda: None

    def published(self) -> tuple[int, Any]:
        if not self.book.exists():
            return 0, None
        found = json.loads(self.book.read_text())
        return int(found["epoch"]), found["prepared"]

    def run(self, token: int) -> None:
        """One life of a driver."""
        sink = self.make()
        sink.open(context(token))
        epoch, prepared = self.published()
        sink.restore(Epoch(epoch), prepared)
        while epoch < self.epochs:
            for step in range(2):
                sink.write_arrow(rows(4 * epoch + 2 * step), StepId(Attempt(token), 2 * epoch + step))
                self.between()
            epoch += 1
            prepared = sink.prepare(Epoch(epoch), sink.seal(Epoch(epoch)))
            write_file(self.book, json.dumps({"epoch": epoch, "prepared": prepared}).encode())
            sink.commit(Epoch(epoch), prepared)
            self.between()
        sink.close()

    def run_to_the_end(self, first_token: int = 1) -> int:
        """Start again after every failure, under the next token; returns the number of failures."""
        for token in range(first_token, first_token + 10):
            try:
                self.run(token)
                return token - first_token
            except HoldfastError:
                continue
            except Exception as error:
                if type(error).__name__ not in ("FaultInjected", "OSError"):
                    raise
        raise AssertionError("the run does not get through")

    def expected(self) -> list[tuple[Any, ...]]:
        return tuples(0, 4 * self.epochs)
