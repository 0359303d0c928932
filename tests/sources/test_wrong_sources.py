"""Sources of one's own that repeat their position or go back: one sentence, and no row is doubled or lost in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.errors import InputError
from holdfast.language.connectors import Slice, Stamp
from holdfast.testing import MemorySink, Rows, run_local, submit_local


class Wrong(Rows):
    """Rows of a list whose positions become wrong behind row 20."""

    def __init__(self, how: str) -> None:
        super().__init__([(n,) for n in range(60)], "n long", rows_per_step=5)
        self.how = how

    def next_slice(self) -> Slice | None:
        piece = super().next_slice()
        if piece is None or piece.start < 20:
            return piece
        if self.how == "stays":
            return Slice(piece.end, piece.end, piece.rows)
        if self.how == "backwards":
            return Slice(piece.end, piece.start, piece.rows)
        return Slice(piece.start - 10, piece.end, piece.rows)


def topology(how: str, shelf: str, region: bool) -> hf.Topology:
    made = hf.Topology("wrong")
    rows = made.source(Wrong(how), name="rows")
    rows = rows.consistent("r", period=0.02) if region else rows
    rows.sink(MemorySink(shelf), name="out")
    return made


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("stays", "stayed at 25"),
        ("backwards", "went back from 25 to 20"),
        ("again", "went back from 20 to 10"),
    ],
)
@pytest.mark.fault("I09")
def test_it_ends_the_run_with_one_sentence_and_what_is_visible_is_right(
    how: str, words: str, tmp_path: Path
) -> None:
    shelf = f"wrong-{how}"
    with pytest.raises(InputError, match=f"source 'rows' .*{words}"):
        run_local(topology(how, shelf, region=True), f"file:{tmp_path}/store")
    seen = [row["n"] for row in MemorySink.rows(shelf)]
    assert sorted(seen) == list(range(len(seen)))
    assert len(seen) <= 20
    MemorySink.clear(shelf)


class Repeats(Rows):
    """A source that is asked for ever, as it gives rows without end and without a step."""

    def next_slice(self) -> Slice | None:
        return Slice(0, 0, 1)

    def read_arrow(self, piece: Slice, stamp: Stamp | None) -> pa.Table:
        return pa.table({"n": [0]})


@pytest.mark.fault("I09", "SR14")
def test_a_source_that_stands_still_is_not_read_for_ever(tmp_path: Path) -> None:
    made = hf.Topology("still")
    made.source(Repeats([(0,)], "n long"), name="rows").consistent("r").sink(MemorySink("still"), name="out")
    job: Any = submit_local(made, f"file:{tmp_path}/store", until=None)
    with pytest.raises(InputError, match="stayed at 0"):
        job.await_termination(timeout=30)
    job.close()
    MemorySink.clear("still")
