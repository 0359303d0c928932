"""A changed topology on an old store: columns come and go, anything else is refused before any output."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.errors import MismatchError
from holdfast.language.stream import Stream
from holdfast.operators.fingerprint import Fingerprint, changes, misfit
from holdfast.testing import run_local

BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
AT = pa.timestamp("us", tz="UTC")
NARROW = "at timestamp, k string, v long"
WIDER = f"{NARROW}, extra long"


def feed(here: Path, number: int, **more: list[Any]) -> None:
    """One more file: ten rows, seconds 10·number to 10·number + 9, two keys."""
    (here / "in").mkdir(exist_ok=True)
    at = [BEGIN + datetime.timedelta(seconds=10 * number + n) for n in range(10)]
    columns = {"at": pa.array(at, AT), "k": list("ab" * 5), "v": list(range(10)), **more}
    pq.write_table(pa.table(columns), here / "in" / f"part-{number}.parquet")


def run(
    here: Path,
    build: Callable[[Stream], Stream],
    schema: str = NARROW,
    **options: Any,
) -> list[dict[str, Any]]:
    """Everything the topology has written so far."""
    topology = hf.Topology("evolving")
    source = hf.Files(str(here / "in"), "parquet", schema, max_rows_per_step=3)
    stream = topology.source(source, name="in").consistent(period=0.01)
    build(stream).sink(hf.FileSink(str(here / "out"), "parquet"), name="out")
    run_local(topology, store=f"file:{here}/store", **options)
    files = sorted((here / "out").glob("part-*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def last_of_each(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["k"]: row for row in sorted(rows, key=lambda row: row.get("n") or row.get("total") or 0)}


def test_an_aggregate_that_is_new_begins_with_nothing_and_one_that_is_gone_is_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    feed(tmp_path, 0)
    run(tmp_path, lambda s: s.aggregate("k", n=hf.count(), total=hf.sum("v"), name="sums"))
    feed(tmp_path, 1)
    added: dict[str, Any] = {
        "top": hf.max("v"), "mean": hf.avg("v"), "spread": hf.stddev("v"), "newest": hf.last("v"), "oldest": hf.first("v"),
        "all": hf.collect("v"), "kinds": hf.count_distinct("v"), "middle": hf.quantile("v", 0.5), "seen": hf.count("v"),
    }  # fmt: skip
    rows = run(tmp_path, lambda s: s.aggregate("k", n=hf.count(), name="sums", **added))
    found = last_of_each([row for row in rows if "seen" in row])
    assert found["a"]["n"] == 10, "what stayed goes on"
    assert "top begins with nothing; total is dropped" in caplog.text.replace(", ".join(sorted(added)), "top")
    assert found["a"] | {"spread": None} == {
        "k": "a", "n": 10, "top": 8, "mean": 4.0, "spread": None, "newest": 8, "oldest": 0, "all": [0, 2, 4, 6, 8],
        "kinds": 5, "middle": 4.0, "seen": 5,
    }  # fmt: skip
    feed(tmp_path, 2)
    rows = run(tmp_path, lambda s: s.aggregate("k", n=hf.count(), total=hf.sum("v"), name="sums"))
    assert max(row["n"] for row in rows) == 15
    assert last_of_each([r for r in rows if "seen" not in r])["a"]["total"] == 20, (
        "dropped, then new: from nothing"
    )


def test_windows_that_are_open_take_new_aggregates(tmp_path: Path) -> None:
    def windows(stream: Stream, **aggregates: Any) -> Stream:
        return stream.aggregate("k", window=hf.tumbling(8, on="at", delay=0), name="w", **aggregates)

    feed(tmp_path, 0)
    run(tmp_path, lambda s: windows(s, n=hf.count()))
    feed(tmp_path, 1)
    rows = run(tmp_path, lambda s: windows(s, n=hf.count(), total=hf.sum("v")))
    second = [row for row in rows if row["window_start"] == BEGIN + datetime.timedelta(seconds=8)]
    assert {(row["k"], row["n"], row["total"]) for row in second} == {
        ("a", 4, 0 + 2 + 4),
        ("b", 4, 1 + 3 + 5),
    }


def test_rows_that_a_join_keeps_get_nulls_for_new_columns(tmp_path: Path) -> None:
    def join(stream: Stream) -> Stream:
        return stream.join(stream, "k", within=20, on="at", name="j", delay=0)

    feed(tmp_path, 0)
    run(tmp_path, join)
    feed(tmp_path, 1, extra=[7] * 10)
    rows = run(tmp_path, join, "at timestamp, k string, v long, extra long")
    crossed = [row for row in rows if row.get("extra") == 7 and row["extra_right"] is None]
    assert len(crossed) == 50, "five new rows of each key meet five old ones that know no extra"


def test_rows_that_wait_to_be_sorted_get_nulls_for_new_columns_and_lose_old_ones(tmp_path: Path) -> None:
    def sort(stream: Stream) -> Stream:
        return stream.sort("at", delay=15, name="s")

    feed(tmp_path, 0)
    assert run(tmp_path, sort) == []
    feed(tmp_path, 1, extra=[7] * 10)
    rows = run(tmp_path, sort, WIDER)
    assert [row["extra"] for row in rows] == [None] * len(rows)
    assert [row["v"] for row in rows] == list(range(len(rows)))
    feed(tmp_path, 3, extra=[8] * 10)
    rows = run(tmp_path, sort)[len(rows) :]
    assert "extra" not in rows[-1]
    assert [row["v"] for row in rows][-3:] == [7, 8, 9], "rows that had a column more have it no longer"


def test_best_rows_get_nulls_for_new_columns_and_lose_old_ones(tmp_path: Path) -> None:
    def best(stream: Stream) -> Stream:
        return stream.top_n(2, by="k", order="-v", name="t")

    feed(tmp_path, 0)
    before = run(tmp_path, best)
    feed(tmp_path, 1, extra=[7] * 10, v=[5, 9, 1, 1, 1, 1, 1, 1, 1, 1])
    rows = run(tmp_path, best, WIDER)[len(before) :]
    assert {(row["k"], row["v"], row["extra"]) for row in rows} >= {("b", 9, None), ("b", 9, 7)}
    feed(tmp_path, 2, v=[10] * 10)
    rows = run(tmp_path, best)[-4:]
    assert {row["v"] for row in rows} == {10}
    assert "extra" not in rows[0]


@pytest.mark.parametrize("partitions", [2, 3])
def test_best_rows_of_windows_get_nulls_for_new_columns_too(partitions: int, tmp_path: Path) -> None:
    def best(stream: Stream) -> Stream:
        return stream.top_n(2, by="k", order="-v", window=hf.tumbling(60, on="at", delay=5), name="t")

    feed(tmp_path, 0)
    assert run(tmp_path, best) == []
    feed(tmp_path, 1, extra=[7] * 10, v=[20] + [0] * 9)
    feed(tmp_path, 9, extra=[8] * 10)
    rows = run(tmp_path, best, WIDER, partitions=partitions)
    assert {(row["k"], row["rank"], row["v"], row["extra"]) for row in rows} == {
        ("a", 1, 20, 7),
        ("a", 2, 8, None),
        ("b", 1, 9, None),
        ("b", 2, 7, None),
    }


def test_rows_that_wait_at_a_barrier_get_nulls_for_new_columns(tmp_path: Path) -> None:
    def run_both(schema: str) -> list[dict[str, Any]]:
        topology = hf.Topology("waiting")
        one, two = (
            topology.source(hf.Files(str(tmp_path / name / "in"), "parquet", schema), name=name).consistent(
                "r"
            )
            for name in ("one", "two")
        )
        one.zip(two, by="k", name="b").sink(hf.FileSink(str(tmp_path / "out"), "parquet"), name="out")
        run_local(topology, store=f"file:{tmp_path}/store")
        files = sorted((tmp_path / "out").glob("part-*.parquet"))
        return [row for file in files for row in pq.read_table(file).to_pylist()]

    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    feed(tmp_path / "one", 0)
    (tmp_path / "two" / "in").mkdir()
    assert run_both(NARROW) == []
    feed(tmp_path / "two", 0, extra=[7] * 10)
    rows = run_both(WIDER)
    assert len(rows) == 10
    assert {(row["extra"], row["extra_2"]) for row in rows} == {(None, 7)}


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.sort("at", delay=15, name="op"),
        lambda s: s.top_n(2, by="k", order="at", name="op"),
    ],
    ids=["sort", "top_n"],
)
@pytest.mark.fault("U04")
def test_whole_rows_with_a_column_of_another_type_are_refused(
    build: Callable[[Stream], Stream], tmp_path: Path
) -> None:
    feed(tmp_path, 0)
    run(tmp_path, build)
    with pytest.raises(MismatchError, match="the type of 'v' was int64, now it is string"):
        run(tmp_path, build, "at timestamp, k string, v string")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda s: s.aggregate("k", n=hf.sum("v"), name="sums"),
            "the column of 'n' was not there, now it is v",
        ),
        (lambda s: s.aggregate(["k", "v"], n=hf.count(), name="sums"), "its key was"),
        (lambda s: s.aggregate("k", n=hf.count(), name="other"), "'other' is new and operator"),
        (
            lambda s: s.aggregate("k", n=hf.count(), window=hf.tumbling(1, on="at", delay=0), name="sums"),
            "it was aggregate, now it is window",
        ),
    ],
    ids=["another function", "another key", "another name", "another kind"],
)
@pytest.mark.fault("U04", "O06")
def test_anything_else_is_refused_before_any_output(
    build: Callable[[Stream], Stream], message: str, tmp_path: Path
) -> None:
    feed(tmp_path, 0)
    before = run(tmp_path, lambda s: s.aggregate("k", n=hf.count(), name="sums"))
    feed(tmp_path, 1)
    with pytest.raises(MismatchError, match=message):
        run(tmp_path, build)
    after = run(tmp_path, lambda s: s.aggregate("k", n=hf.count(), name="sums"))
    assert after[: len(before)] == before
    assert last_of_each(after)["a"]["n"] == 10


def test_fingerprints_are_compared_by_name() -> None:
    frame = {"key": (("k", "string"),), "groups": 128}
    count, total = {"function": "count", "type": "int64"}, {"function": "sum", "column": "v", "type": "int64"}
    most = {"function": "max", "column": "v", "type": "int64"}
    then = Fingerprint("aggregate", frame, {"aggregates": {"n": count, "s": total}})
    now = Fingerprint("aggregate", frame, {"aggregates": {"t": most, "s": total}})
    assert misfit(then, now) is None
    assert changes(then, now) == (["t"], ["n"])
    other_type = Fingerprint("aggregate", frame, {"aggregates": {"s": {**total, "type": "double"}}})
    assert misfit(then, other_type) == "the type of 's' was int64, now it is double"
    other_groups = Fingerprint("aggregate", {**frame, "groups": 64}, now.entries)
    assert misfit(then, other_groups) == "its groups was 128, now it is 64"
    other_key = Fingerprint("aggregate", {**frame, "key": (("k", "string"), ("v", "int64"))}, now.entries)
    assert misfit(then, other_key) == "its key was (k string), now it is (k string, v int64)"
    lifetime = Fingerprint("aggregate", {**frame, "lifetime": "at"}, now.entries)
    assert misfit(then, lifetime) == "its lifetime was not there, now it is at"
    assert misfit(then, Fingerprint("dedup", frame)) == "it was aggregate, now it is dedup"


def test_columns_of_several_inputs_are_told_apart() -> None:
    def barrier(*inputs: dict[str, str]) -> Fingerprint:
        rows = {
            f"input {number}": {name: {"type": kind} for name, kind in columns.items()}
            for number, columns in enumerate(inputs, 1)
        }
        return Fingerprint("barrier", {"key": ("k",), "groups": 128}, rows)

    then = barrier({"k": "string", "v": "int64"}, {"k": "string", "w": "int64"})
    now = barrier({"k": "string", "v": "int64"}, {"k": "string", "x": "int64"})
    assert misfit(then, now) is None
    assert changes(then, now) == (["x of input 2"], ["w of input 2"])
    other = barrier({"k": "string", "v": "int64"}, {"k": "string", "w": "string"})
    assert misfit(then, other) == "the type of 'w of input 2' was int64, now it is string"
    one_more = barrier({"k": "string"}, {"k": "string"}, {"k": "string"})
    assert misfit(then, one_more) == "it kept input 1, input 2, now it keeps input 1, input 2, input 3"


def test_a_kept_column_of_another_type_is_refused(tmp_path: Path) -> None:
    feed(tmp_path, 0)
    before = run(tmp_path, lambda s: s.join(s, "k", within=20, on="at", name="j", delay=0))
    with pytest.raises(MismatchError, match="'v' was of type int64 and is string now"):
        run(
            tmp_path,
            lambda s: s.join(s, "k", within=20, on="at", name="j", delay=0),
            "at timestamp, k string, v string",
        )
    files = sorted((tmp_path / "out").glob("part-*.parquet"))
    assert sum(pq.read_metadata(file).num_rows for file in files) == len(before)


class Counting(hf.KeyedOperator):
    n = hf.Value(int, default=0)
    told = hf.Value(str, default="")

    def process(self, row: Any, key: Any) -> Any:
        self.n += 1
        self.told = "yes"
        return {"k": row.k, "n": self.n, "total": self.n}


class Adding(hf.KeyedOperator):
    n = hf.Value(int, default=0)
    total = hf.Value(int, default=0)

    def process(self, row: Any, key: Any) -> Any:
        self.n += 1
        self.total += row.v
        return {"k": row.k, "n": self.n, "total": self.total}


class Renaming(hf.KeyedOperator):
    n = hf.Value(str, default="")

    def process(self, row: Any, key: Any) -> Any:
        return {"k": row.k, "n": 0, "total": 0}


@pytest.mark.fault("U04")
def test_variables_of_keyed_python_operators_come_and_go(tmp_path: Path) -> None:
    schema = "k string, n long, total long"
    feed(tmp_path, 0)
    run(tmp_path, lambda s: s.keyed("k", Counting, schema, name="op"))
    feed(tmp_path, 1)
    rows = run(tmp_path, lambda s: s.keyed("k", Adding, schema, name="op"))
    assert max((r["n"], r["total"]) for r in rows if r["k"] == "a") == (10, 0 + 2 + 4 + 6 + 8)
    with pytest.raises(MismatchError, match=r"the type of 'n' was \(int\), now it is \(str\)"):
        run(tmp_path, lambda s: s.keyed("k", Renaming, schema, name="op"))


@pytest.mark.parametrize("partitions", [2, 3])
def test_sliding_windows_by_an_attribute_keep_rows_of_which_new_aggregates_know_nothing(
    partitions: int, tmp_path: Path
) -> None:
    def windows(**aggregates: Any) -> Callable[[Stream], Stream]:
        sliding = hf.sliding(delta=3, of="v", every=1)
        return lambda stream: stream.aggregate("k", window=sliding, name="w", **aggregates)

    feed(tmp_path, 0)
    had = len(run(tmp_path, windows(n=hf.count())))
    feed(tmp_path, 1, v=list(range(10, 20)))
    more = windows(n=hf.count(), total=hf.sum("v"), seen=hf.collect("v"))
    rows = run(tmp_path, more, partitions=partitions)[had:]
    by_newest = {max(row["seen"]): (row["n"], row["total"], row["seen"]) for row in rows}
    assert by_newest[10] == (2, 10, [10]), "8 is in the window, and was not summed up"
    assert by_newest[12] == (2, 22, [10, 12])
    feed(tmp_path, 2, v=list(range(20, 30)))
    rows = run(tmp_path, windows(total=hf.sum("v"), top=hf.max("v")))[had + len(rows) :]
    assert {row["total"] for row in rows if row["top"] == 20} == {18 + 20}
    assert {"n", "seen"}.isdisjoint(rows[0])
