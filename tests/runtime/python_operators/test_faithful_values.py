"""Values that Arrow would change in silence end the run, or are refused where they are given: with operator, column and value."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.errors import HoldfastError, InputError
from holdfast.testing import run_local

SCHEMA = "id long, at timestamp, place struct<city: string, zip: long>"
GOOD = {"id": 1, "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "place": {"city": "x", "zip": 2}}
WRONG = [
    ({"id": 1.5}, r"column 'id' of type int64 cannot hold 1\.5: it is not whole"),
    ({"at": 1_790_000_000}, "column 'at' of type .* cannot hold 1790000000: an int is no moment"),
    ({"place": {"city": "x", "zpi": 2}}, r"column 'place' .* it has no field 'zpi'\. Did you mean 'zip'\?"),
]
KINDS = ["hosted", "keyed", "map_state", "async_map", "map_arrow"]


class Hosted(hf.Operator):
    def __init__(self, made: Any) -> None:
        self.made = made

    def process(self, row: Any, port: int) -> Any:
        return self.made


def keyed(made: dict[str, Any]) -> type[hf.KeyedOperator]:
    class Keyed(hf.KeyedOperator):
        def process(self, row: Any, key: Any) -> Any:
            return made

    return Keyed


def through(rows: Any, kind: str, made: dict[str, Any]) -> Any:
    if kind == "hosted":
        return rows.apply(lambda: Hosted(made), SCHEMA, name="op")
    if kind == "keyed":
        return rows.keyed("k", keyed(made), SCHEMA, name="op")
    if kind == "map_state":
        return rows.map_state("k", lambda row, state: made, SCHEMA, {"n": hf.Value(int)}, name="op")
    if kind == "async_map":
        return rows.async_map(lambda row: made, SCHEMA, name="op")
    return rows.map_arrow(lambda table: pa.Table.from_pylist([made]), SCHEMA, name="op")


def run(tmp_path: Path, shelf: str, kind: str, made: dict[str, Any]) -> list[dict[str, Any]]:
    topology, sink = hf.Topology("t"), hf.MemorySink(shelf)
    hf.MemorySink.clear(shelf)
    rows = topology.source(hf.Rows([("a",)], "k string"), name="rows").consistent("r", period=0.02)
    through(rows, kind, made).sink(sink, name="out")
    run_local(topology, store=f"file:{tmp_path}/store")
    return hf.MemorySink.rows(shelf)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("wrong", "told"), WRONG, ids=["cut", "of 1970", "misspelt"])
def test_a_value_that_would_change_ends_the_run(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str, wrong: Any, told: str
) -> None:
    arrow = {"it is not whole": "truncated", "an int is no moment": "a column of type int64 is none of times"}
    for word in arrow if kind == "map_arrow" else ():
        told = told.replace(word, f".*{arrow[word]}")
    with pytest.raises(HoldfastError, match=f"'op'.*{told}"):
        run(tmp_path, request.node.name, kind, {**GOOD, **wrong})


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_fit_come_out(tmp_path: Path, request: pytest.FixtureRequest, kind: str) -> None:
    assert run(tmp_path, request.node.name, kind, {**GOOD, "id": 2.0}) == [{**GOOD, "id": 2}]


@pytest.mark.parametrize(("wrong", "told"), WRONG, ids=["cut", "of 1970", "misspelt"])
def test_rows_of_a_list_are_refused_where_they_are_given(wrong: Any, told: str) -> None:
    with pytest.raises(InputError, match="row 2 does not fit the schema: " + told):
        hf.Rows([GOOD, {**GOOD, **wrong}], SCHEMA)
    values = tuple({**GOOD, **wrong}.values())
    with pytest.raises(InputError, match="row 1 does not fit the schema: " + told):
        hf.Rows([values], SCHEMA)


def test_a_misspelt_column_of_a_list_is_named_with_the_nearest_one() -> None:
    with pytest.raises(InputError, match=r"row 2 has a column 'amuont', .*Did you mean 'amount'\?"):
        hf.Rows([{"amount": 1}, {"amuont": 1}], "amount long")
    assert hf.Rows([{}], "amount long").read_arrow(hf.Slice(0, 1, 1), None).to_pylist() == [{"amount": None}]


def test_a_result_of_an_aggregate_that_would_change_ends_the_run(tmp_path: Path) -> None:
    topology = hf.Topology("t")
    rows = topology.source(hf.Rows([("a", 1), ("a", 2)], "k string, v long"), name="rows")
    mean = hf.udaf(lambda v: sum(v.to_pylist()) / len(v), "v", type="long")
    rows.consistent("r", period=0.02).aggregate("k", window=hf.tumbling(rows=2), mean=mean, name="agg").sink(
        hf.MemorySink("udaf"), name="out"
    )
    with pytest.raises(
        HoldfastError, match=r"the aggregate 'mean' gave a value .*cannot hold 1\.5: it is not whole"
    ):
        run_local(topology, store=f"file:{tmp_path}/store")


# --- logs ---


def there(log: hf.Log) -> list[dict[str, Any]]:
    log.writer().flush()
    reader = log.reader()
    found = []
    while (batch := reader.next(timeout_s=0)) is not None:
        found += batch.rows.to_pylist()
    return found


@pytest.mark.parametrize(("wrong", "told"), WRONG, ids=["cut", "of 1970", "misspelt"])
def test_an_append_that_would_change_values_is_refused_whole(tmp_path: Path, wrong: Any, told: str) -> None:
    with hf.Log(tmp_path / "log", schema=hf.Rows([GOOD], SCHEMA).schema()) as log:
        with pytest.raises(
            InputError, match=f"the log {tmp_path}/log cannot take row 2 of the append: {told}"
        ):
            log.append([GOOD, {**GOOD, **wrong}])
        log.append([GOOD])
        assert there(log) == [GOOD]


def test_rows_of_a_first_append_have_the_columns_of_the_first(tmp_path: Path) -> None:
    with hf.Log(tmp_path / "log") as log:
        with pytest.raises(
            InputError, match=r"row 2 of a log's first append has a column 'amuont'.*'amount'\?"
        ):
            log.append([{"amount": 1}, {"amuont": 1}])
        with pytest.raises(InputError, match="its time of day would be lost"):
            log.append([{"d": dt.date(2026, 1, 1)}, {"d": dt.datetime(2026, 1, 1, 5)}])
    with hf.Log(tmp_path / "other") as log:
        with pytest.raises(InputError, match="column 'n' in a log's first append have no type in common"):
            log.append([{"n": 1}, {"n": "x"}])
        log.append([{"n": 1, "m": "x"}, {"n": 1.5}])
        assert there(log) == [{"n": 1.0, "m": "x"}, {"n": 1.5, "m": None}]
        with pytest.raises(InputError, match=r"has no column 'nn', .*Did you mean 'n'\?"):
            log.append([{"nn": 1}])
