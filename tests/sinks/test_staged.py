"""Staged sinks: what becomes of a staged epoch, against the story of a run; and a sink of a few lines passes the whole suite."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from holdfast.errors import DamagedError, MismatchError
from holdfast.ids import Attempt, Epoch
from holdfast.language.connectors import POSITION_COLUMNS, Sink, StepId
from holdfast.sinks.staged import Fate, StagedSink, fate_of
from holdfast.testing.sink_conformance import SinkConformance, context, rows


def story(staged: int, epoch: int, committed: int) -> Fate:
    """The same told slowly: epochs are published one after the other, and shown one after the other behind that."""
    published, shown = set(range(1, epoch + 1)), set(range(1, committed + 1))
    if not shown <= published:
        return "refuse"  # somebody has seen rows that this store does not know
    if staged in shown or staged not in published:
        return "drop"
    return "commit" if published - shown == {staged} or staged == epoch else "refuse"


@pytest.mark.parametrize(("epoch", "committed"), list(itertools.product(range(5), range(6))))
@pytest.mark.fault("X04", "N05")
def test_the_fate_of_a_staged_epoch_follows_from_two_numbers(epoch: int, committed: int) -> None:
    for staged in range(1, 7):
        assert fate_of(staged, epoch, committed) == story(staged, epoch, committed)


def test_an_output_that_does_not_know_what_it_shows_is_given_the_newest_epoch_alone() -> None:
    assert [fate_of(staged, 3, None) for staged in range(1, 6)] == ["drop", "drop", "commit", "drop", "drop"]


class Table:
    """A table elsewhere that shows rows and remembers the epoch in one change."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.epoch: Epoch | None = None
        self.staged: dict[int, list[tuple[Any, ...]]] = {}


class TableSink(StagedSink):
    """All that a sink into a database must say."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self._table = table

    def write_spark(self, frame: Any, step: StepId) -> int | None:
        return self.write_arrow(frame.toArrow(), step)

    def write_arrow(self, table: pa.Table, step: StepId) -> int | None:
        kept = table.select([name for name in table.column_names if name not in POSITION_COLUMNS])
        made = [tuple(row.values()) for row in kept.to_pylist()]
        if self.is_staged:
            self.stage(made)
        else:
            self._table.rows += made
        return len(made)

    def committed_epoch(self) -> Epoch | None:
        return self._table.epoch

    def make_durable(self, epoch: Epoch, sealed: list[Any]) -> dict[str, Any]:
        self._table.staged[int(epoch)] = [row for step in sealed for row in step]
        return {}

    def show(self, epoch: Epoch, prepared: Any) -> None:
        self._table.rows += self._table.staged.pop(int(epoch))
        self._table.epoch = epoch

    def note_committed(self, epoch: Epoch) -> None:
        self._table.epoch = epoch

    def abandon(self, epoch: Epoch) -> None:
        self._table.staged = {}


class TestTableSink(SinkConformance):
    @pytest.fixture(autouse=True)
    def _table(self) -> None:
        self.table = Table()

    def make(self) -> Sink:
        return TableSink(self.table)

    def visible(self) -> list[tuple[Any, ...]]:
        return self.table.rows

    @pytest.mark.fault("C07", "D06")
    def test_an_output_ahead_of_the_store_is_refused_and_nothing_changes(self) -> None:
        sink = self.opened()
        for epoch in (1, 2):
            sink.commit(Epoch(epoch), self.epoch(sink, epoch, rows(2 * epoch)))
        before = list(self.table.rows)
        with pytest.raises(MismatchError, match="older than the output"):
            self.opened(2, epoch=1, prepared={"after": 0})
        assert self.table.rows == before

    def test_an_epoch_is_not_shown_before_the_one_before_it(self) -> None:
        sink = self.opened()
        sink.commit(Epoch(1), self.epoch(sink, 1, rows(0)))
        self.epoch(sink, 2, rows(2))
        third = self.epoch(sink, 3, rows(4))
        with pytest.raises(DamagedError, match="epoch 2 before it is not visible"):
            sink.commit(Epoch(3), third)
        assert self.table.epoch == 1

    def test_a_job_that_begins_with_a_later_epoch_owns_the_output_from_there(self) -> None:
        self.opened(epoch=7)
        assert self.table.epoch == 7


def test_outside_of_regions_nothing_is_staged() -> None:
    table = Table()
    sink = TableSink(table)
    sink.open(context(region=None))
    sink.write_arrow(rows(0), StepId(Attempt(0), 0))
    assert sink.prepare(Epoch(1), sink.seal(Epoch(1))) is None
    assert len(table.rows) == 2
