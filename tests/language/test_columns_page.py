"""docs/language.md, "Columns that come out": as it says, so it is."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.language.graph import StreamRef
from tests.language.fakes import FakeSink, FakeSource, compiled, refused

TIME = pa.timestamp("us", tz="UTC")
COLUMNS = pa.schema([("k", pa.string()), ("at", TIME), ("price", pa.int64())])
TABLE = pa.table({"k": ["a"], "price": [1], "name": ["x"]})

CASES: dict[str, tuple[Callable[[hf.Stream, hf.Stream], hf.Stream], str]] = {
    "aggregate": (lambda a, b: a.aggregate("k", n=hf.count(), name="x"), "k n"),
    "window": (
        lambda a, b: a.group_by("k").agg(n=hf.count(), window=hf.tumbling("1 minute"), name="x"),
        "window_start window_end k n",
    ),
    "session": (
        lambda a, b: a.aggregate("k", n=hf.count(), window=hf.session("1 minute"), name="x"),
        "window_start window_end k n",
    ),
    "rows": (lambda a, b: a.aggregate("k", n=hf.count(), window=hf.tumbling(rows=2), name="x"), "k window_rows n"),
    "join": (lambda a, b: a.join(b, "k", within=1, name="x"), "k at price at_right price_right"),
    "asof_join": (lambda a, b: a.asof_join(b, "k", suffix="_b", name="x"), "k at price at_b price_b"),
    "lookup": (lambda a, b: a.lookup(TABLE, "k", name="x"), "k at price price_right name"),
    "zip": (lambda a, b: a.zip(b, by="k", name="x"), "k at price at_2 price_2"),
    "top_n": (lambda a, b: a.top_n(1, by="k", order="-price", name="x"), "rank k at price"),
    "top_n in windows": (
        lambda a, b: a.top_n(1, by="k", order="-price", window=hf.tumbling("1 minute"), name="x"),
        "window_start window_end rank k at price",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_columns_are_those_of_the_page(name: str) -> None:
    make, wanted = CASES[name]
    topology = hf.Topology("columns")
    sources = [topology.source(FakeSource(COLUMNS), each).event_time("at", delay=0) for each in "ab"]
    make(*sources).sink(FakeSink(), "out")
    assert " ".join(compiled(topology).schemas[StreamRef("x", 0)].names) == wanted


def test_who_misspells_the_event_time_is_told_which_columns_could_be_it() -> None:
    topology = hf.Topology("columns")
    topology.source(FakeSource(COLUMNS), "a").event_time("att", delay=0).sink(FakeSink(), "out")
    assert "Name a timestamp column ('at')" in refused(topology).cure
