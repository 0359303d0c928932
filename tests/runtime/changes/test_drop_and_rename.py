"""`drop` and `rename` without Spark: columns, positions and event time."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.errors import TopologyError
from holdfast.testing.local import run_local

AT = [datetime.datetime(2026, 1, 1, 0, 0, second, tzinfo=datetime.UTC) for second in (1, 4, 12, 3, 25)]
ROWS = [(moment, n, n % 2) for n, moment in enumerate(AT)]


def result(make: Callable[[hf.Stream], hf.Stream], store: Path) -> list[dict[str, object]]:
    topology = hf.Topology("columns")
    source = topology.source(hf.Rows(ROWS, "at timestamp, n int, k int", rows_per_step=2), name="rows")
    made = make(source.consistent(period=0.05).event_time("at", delay=0))
    made.sink(hf.MemorySink("columns"), name="out")
    run_local(topology, store=f"file:{store}/store")
    found = hf.MemorySink.table("columns").to_pylist()
    hf.MemorySink.clear("columns")
    return found


def test_columns_go_and_change_places(tmp_path: Path) -> None:
    found = result(lambda s: s.drop("at").rename(n="k", k="n"), tmp_path)
    assert found == [{"k": n, "n": k} for _, n, k in ROWS]


def test_rows_keep_their_positions(tmp_path: Path) -> None:
    found = result(
        lambda s: (
            s.drop("at").rename({"n": "m"}).aggregate("k", all=hf.collect("m"), top=hf.last("m"), name="a")
        ),
        tmp_path,
    )
    last = {row["k"]: row for row in found}
    assert last == {0: {"k": 0, "all": [0, 2, 4], "top": 4}, 1: {"k": 1, "all": [1, 3], "top": 3}}


def test_event_time_goes_on_under_its_new_name(tmp_path: Path) -> None:
    found = result(
        lambda s: s.rename(at="time").aggregate([], window=hf.tumbling(10), n=hf.count(), name="tens"),
        tmp_path,
    )
    assert [row["n"] for row in found] == [2, 1]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda s: s.drop("x"), "no column 'x' to drop"),
        (lambda s: s.drop(), "needs the names"),
        (lambda s: s.drop("at", "n", "k"), "leaves no column"),
        (lambda s: s.rename(x="y"), "no column 'x' to rename"),
        (lambda s: s.rename(n="k"), "two columns called 'k'"),
        (lambda s: s.rename(), "needs the names"),
        (lambda s: s.rename({"n": 7}), "needs the names"),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    make: Callable[[hf.Stream], hf.Stream], why: str, tmp_path: Path
) -> None:
    with pytest.raises(TopologyError, match=why) as caught:
        result(make, tmp_path)
    assert caught.value.cure
