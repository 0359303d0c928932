"""A run tells how its program differs from that of the run before on the same store: a sentence for each difference."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import holdfast as hf
from holdfast.compiler.description import Description, Said, describe, differences
from holdfast.operators.told_texts import text_of
from holdfast.store.urls import open_store
from holdfast.testing import run_local


def described(build: Callable[[hf.Stream], Any]) -> Description:
    topology = hf.Topology("t")
    build(topology.source(hf.Rows([(1,)], "n long"), name="rows"))
    return describe(topology.graph(), {})


def told(before: Callable[[hf.Stream], Any], after: Callable[[hf.Stream], Any]) -> list[str]:
    then = Description.from_json(described(before).to_json())
    assert not differences(then, described(before)), "the same program differs from itself"
    return differences(then, described(after))


def by(threshold: int) -> Callable[[pa.Table], pa.Table]:
    def keep(table: pa.Table) -> pa.Table:
        return table.filter(pc.greater(table["n"], threshold))

    return keep


def mapped(fn: Any) -> Callable[[hf.Stream], Any]:
    return lambda rows: rows.map_arrow(fn, "n long")


class Other:
    def process(self, row: Any, port: int) -> Any:
        return row


def operator(step: int) -> type[hf.Operator]:
    if step == 1:

        class Counts(hf.Operator):
            def process(self, row: Any, port: int) -> Any:
                return {"n": row.n + 1}

        return Counts

    class Counts(hf.Operator):  # type: ignore[no-redef]
        def process(self, row: Any, port: int) -> Any:
            return {"n": row.n + 2}

    return Counts


CASES: dict[str, tuple[Callable[[hf.Stream], Any], Callable[[hf.Stream], Any], list[str]]] = {
    "filter": (
        lambda rows: rows.filter("n > 1"),
        lambda rows: rows.filter("n > 2"),
        ["filter 'filter_1' behind 'rows': its condition was n > 1, now it is n > 2"],
    ),
    "select": (
        lambda rows: rows.select("n", "n + 1 as m", name="chosen"),
        lambda rows: rows.select("n", name="chosen"),
        ["select 'chosen': its columns were n, n + 1 as m, now they are n"],
    ),
    "sql": (
        lambda rows: rows.sql("select n from this"),
        lambda rows: rows.sql("select n + 1 as n from this"),
        [
            "sql 'sql_1' behind 'rows': its query was select n from this, now it is select n + 1 as n from this"
        ],
    ),
    "one more, whose made-up name moves the others": (
        lambda rows: rows.filter("n > 1").filter("n > 2"),
        lambda rows: rows.filter("n > 0").filter("n > 1").filter("n > 2"),
        ["filter 'filter_1' behind 'rows' is new"],
    ),
    "one less": (
        lambda rows: rows.filter("n > 0").filter("n > 1"),
        lambda rows: rows.filter("n > 1"),
        ["filter 'filter_1' behind 'rows' is gone"],
    ),
    "code": (
        mapped(lambda table: table),
        mapped(lambda table: table.slice(1)),
        ["map_arrow 'map_arrow_1' behind 'rows': the code of its function (a lambda) has changed"],
    ),
    "a value that a function closes over": (
        mapped(by(1)),
        mapped(by(2)),
        ["map_arrow 'map_arrow_1' behind 'rows': the code of its function (keep) has changed"],
    ),
    "the code of a Python operator": (
        lambda rows: rows.apply(operator(1), "n long", name="op"),
        lambda rows: rows.apply(operator(2), "n long", name="op"),
        ["operator 'op': the code of its class (Counts) has changed"],
    ),
    "another class": (
        lambda rows: rows.apply(operator(1), "n long", name="op"),
        lambda rows: rows.apply(Other, "n long", name="op"),
        ["operator 'op': its class was Counts, now it is Other"],
    ),
    "the same of an instance": (
        lambda rows: rows.apply(operator(1)(), "n long", name="op"),
        lambda rows: rows.apply(operator(2)(), "n long", name="op"),
        ["operator 'op': the code of its class (Counts) has changed"],
    ),
    "a window": (
        lambda rows: rows.aggregate("n", c=hf.count(), window=hf.tumbling(rows=10), name="sums"),
        lambda rows: rows.aggregate("n", c=hf.count(), window=hf.tumbling(rows=20), name="sums"),
        ["sums"],
    ),
    "where an operator stands": (
        lambda rows: rows.dedup("n", name="a").filter("n > 1", name="f"),
        lambda rows: (rows.dedup("n", name="a"), rows.filter("n > 1", name="f")),
        ["filter 'f': it was behind 'a', now it is behind 'rows'"],
    ),
    "a sink": (
        lambda rows: rows.sink(hf.FileSink("/there/a"), name="out"),
        lambda rows: rows.sink(hf.FileSink("/there/b"), name="out", on_error="stream"),
        [
            "sink 'out': its on_error= was fail, now it is stream",
            "sink 'out': its place was csv files in /there/a, now it is csv files in /there/b",
        ],
    ),
    "how often a region has an epoch": (
        lambda rows: rows.consistent(period=2),
        lambda rows: rows.consistent(period="1 minute"),
        ["source 'rows': its period was 2 s, now it is 60 s"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_differs_is_told_in_a_sentence(case: str) -> None:
    before, after, wanted = CASES[case]
    found = told(before, after)
    assert len(found) == len(wanted)
    for sentence, part in zip(found, wanted, strict=True):
        assert part in sentence


def test_what_cannot_be_known_is_not_told() -> None:
    def helper(value: int) -> int:
        return value

    def other(value: int) -> int:
        return value + 1

    def calling(helps: Callable[[int], int]) -> Callable[[hf.Stream], Any]:
        return mapped(lambda table: table.slice(helps(0)))

    assert told(calling(helper), calling(other)) == []


def test_texts_do_not_depend_on_numbers_that_spark_made_up() -> None:
    class Column:
        def __init__(self, text: str) -> None:
            self.text = text

        def __str__(self) -> str:
            return f"Column<'{self.text}'>"

    Column.__module__ = "pyspark.sql.classic.column"
    for one, two in [
        ("transform(a, x_1 -> +(x_1, y_2))", "transform(a, x_7 -> +(x_7, y_9))"),
        ("rand(-12L)", "rand(34)"),
    ]:
        assert text_of(Column(one)) == text_of(Column(two))
    assert text_of(Column("(a_1 > 2)")) == "(a_1 > 2)"


@pytest.mark.fault("U05")
def test_another_version_of_python_or_of_the_texts_tells_no_change() -> None:
    then, now = described(mapped(by(1))), described(mapped(by(2)))
    assert differences(then, now)
    assert not differences(replace(then, python="3.2"), now)
    assert not differences(Description.from_json({"version": 0}), now)


def test_fields_that_only_one_of_two_versions_knows_are_not_compared() -> None:
    then = Description({"f": Said("filter", True, {"condition": "a"})})
    now = Description({"f": Said("filter", True, {"condition": "a", "later": "b"})})
    assert not differences(then, now)


def test_a_run_tells_it_once_in_the_log_in_the_status_and_in_the_events(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def run(threshold: int, **aggregates: Any) -> list[str]:
        topology = hf.Topology("changing")
        rows = topology.source(hf.Rows([(1,), (2,)], "n long"), name="rows").consistent("r", period=0.05)
        kept = rows.map_arrow(by(threshold), "n long", name="kept")
        kept.aggregate("n", name="sums", **aggregates).sink(hf.MemorySink("changing"), name="out")
        beside = topology.source(hf.Rows([(1,)], "n long"), name="beside")
        beside.map_arrow(by(threshold), "n long", name="loose").sink(hf.MemorySink("changing2"), name="out2")
        status = run_local(topology, f"file:{tmp_path}/store")
        for name in ("changing", "changing2"):
            hf.MemorySink.clear(name)
        return list(status.get("program_changed", ()))

    with caplog.at_level(logging.INFO, "holdfast"):
        assert run(0, seen=hf.count()) == run(0, seen=hf.count()) == []
        assert "the program has changed" not in caplog.text
        found = run(1, seen=hf.count())
        assert found == [
            f"map_arrow '{name}': the code of its function (keep) has changed" for name in ("kept", "loose")
        ]
        assert found[0] in caplog.text
        # What the region tells of its state is not told twice.
        assert run(1, seen=hf.count(), most=hf.max("n")) == []
        assert run(1, seen=hf.count(), most=hf.max("n")) == []
    events = [
        event for event in open_store(f"file:{tmp_path}/store").events() if event.kind == "program.changed"
    ]
    assert [event.data["changes"] for event in events] == [found]
