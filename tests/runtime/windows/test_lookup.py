"""`lookup` without Spark: what meets, what is refused, and when the table is read again."""

from __future__ import annotations

import datetime
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.clock import ManualClock
from holdfast.errors import HoldfastError, InputError
from holdfast.language.operators.lookup import LookupTable, right_rows
from holdfast.operators import lookup as logic
from holdfast.testing.local import run_local

ROWS = [("a", 1), (None, 2), ("b", 3), ("c", 4), ("a", 5)]
CITIES = {"k": ["a", None, "b"], "city": ["Rome", "Oslo", None]}


def result(make: Any, tmp_path: Path, rows: Any = ROWS, schema: str = "k string, n int") -> Any:
    topology = hf.Topology("lookup")
    hf.MemorySink.clear("lookup")
    source = topology.source(hf.Rows(rows, schema, rows_per_step=2), name="rows").consistent(period=0.05)
    make(source).sink(hf.MemorySink("lookup"), name="out")
    run_local(topology, store=f"file:{tmp_path}/store")
    return hf.MemorySink.rows("lookup")


@pytest.mark.parametrize(
    "table",
    [pa.table(CITIES), pd.DataFrame(CITIES), lambda: pd.DataFrame(CITIES)],
    ids=["Arrow", "pandas", "fn"],
)
def test_rows_meet_the_row_with_their_key(table: Any, tmp_path: Path) -> None:
    cities = {"a": "Rome"}
    wanted = [{"k": k, "n": n, "city": cities.get(k or "")} for k, n in ROWS]
    assert result(lambda s: s.lookup(table, "k"), tmp_path) == wanted
    known = [row for row in wanted if row["k"] in ("a", "b")]
    assert result(lambda s: s.lookup(table, "k", how="inner"), tmp_path / "inner") == known


def test_keys_may_be_several_and_have_other_names_and_types(tmp_path: Path) -> None:
    day = datetime.date(2026, 1, 1)
    table = pd.DataFrame({"number": [1, 3], "day": [day, day], "n": ["one", "three"]})
    found = result(
        lambda s: s.lookup(table, {"n": "number", "d": "day"}),
        tmp_path,
        [(1, day), (3, datetime.date(2026, 1, 2)), (3, day)],
        "n int, d date",
    )
    assert [(row["n"], row["n_right"]) for row in found] == [(1, "one"), (3, None), (3, "three")]


def test_rows_keep_their_positions(tmp_path: Path) -> None:
    found = result(
        lambda s: s.lookup(pa.table(CITIES), "k").aggregate("city", all=hf.collect("n"), name="a"), tmp_path
    )
    assert {row["city"]: row["all"] for row in found} == {"Rome": [1, 5], None: [2, 3, 4]}


def test_a_table_is_read_again_when_it_is_too_old() -> None:
    clock, reads = ManualClock(), iter(range(10))
    table = LookupTable(lambda: pa.table({"k": ["a"], "n": [next(reads)]}), 60.0, clock)

    def version() -> int:
        return table.now().column("n").to_pylist()[0]  # type: ignore[no-any-return]

    assert [version(), version()] == [0, 0]
    clock.advance(59)
    assert (version(), table.made("me", lambda t: t.num_rows)) == (0, 1)
    clock.advance(1)
    assert [version(), version()] == [1, 1]
    assert table.made("me", lambda t: t.column("n").to_pylist()) == [1]
    assert table.made("me", lambda t: "not made again") == [1]
    assert table.made("you", lambda t: "made for another") == "made for another"


def test_a_table_that_loses_a_column_is_refused() -> None:
    clock, tables = ManualClock(), iter([pa.table({"k": [1], "n": [2]}), pa.table({"k": [1]})])
    table = LookupTable(lambda: next(tables), 1.0, clock)
    table.now()
    clock.advance(2)
    with pytest.raises(InputError, match="no longer has the columns"):
        table.now()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda s: s.lookup(7, "k"), "cannot use a int"),
        (lambda s: s.lookup(pa.table(CITIES), "k", how="outer"), "'outer' is not known"),
        (lambda s: s.lookup(pa.table(CITIES), "k", refresh="1 minute"), "does not change"),
        (lambda s: s.lookup(lambda: 7, "k"), "cannot be made of a int"),
        (lambda s: s.lookup(pa.table(CITIES), []), "needs the names"),
        (lambda s: s.lookup(pa.table(CITIES), "x"), "no column 'x'"),
        (lambda s: s.lookup(pa.table(CITIES), {"n": "k"}), "does not become int32"),
        (lambda s: s.lookup(pa.table({"k": ["a", "a"], "x": [1, 2]}), "k"), "several rows with the same k"),
        (lambda s: s.lookup(pa.table({"k": ["a"], "n": [1]}), "k", suffix=""), "two columns called 'n'"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, why: str, tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match=why) as caught:
        result(make, tmp_path)
    assert caught.value.cure


def test_the_table_is_made_ready_once_for_all_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Counter[str]()

    def counted(*given: Any) -> Any:
        made["tables"] += 1
        return right_rows(*given)

    monkeypatch.setattr(logic, "right_rows", counted)
    found = result(lambda s: s.lookup(pa.table(CITIES), "k"), tmp_path)
    assert (len(found), made["tables"]) == (len(ROWS), 1)


def test_a_table_of_keys_alone_chooses_rows(tmp_path: Path) -> None:
    found = result(lambda s: s.lookup(pa.table({"k": ["a", "c"]}), "k", how="inner"), tmp_path)
    assert [row["n"] for row in found] == [1, 4, 5]
