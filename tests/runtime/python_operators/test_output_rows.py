"""Rows that Python operators give must have the columns of their schema: what is misspelt or missing ends the run."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.errors import TopologyError
from holdfast.operators.python.output_rows import OutputForm
from holdfast.testing import run_local

SCHEMA = "user string, amount long, note string"
Misspelt = namedtuple("Misspelt", "user amuont note")
Turned = namedtuple("Turned", "note amount user")
FORM = OutputForm("op", pa.schema([("user", pa.string()), ("amount", pa.int64()), ("note", pa.string())]))


@pytest.mark.parametrize(
    "item",
    [{"user": "a", "amuont": 1, "note": ""}, Misspelt("a", 1, "")],
    ids=["dict", "named tuple"],
)
def test_a_misspelt_column_is_named_with_the_nearest_one(item: Any) -> None:
    with pytest.raises(TopologyError, match=r"operator 'op' gave a row with a column 'amuont', .*'amount'\?"):
        FORM.row(item)


def test_a_misspelt_column_of_a_table_is_named_with_the_nearest_one() -> None:
    table = pa.table({"user": ["a"], "amuont": [1], "note": [""]})
    with pytest.raises(
        TopologyError, match=r"gave a table with a column 'amuont', .*Did you mean 'amount'\?"
    ):
        FORM.table(table)
    with pytest.raises(TopologyError, match="without the column 'note'"):
        FORM.table(table.rename_columns(["user", "amount", "amuont"]).drop_columns(["amuont"]))


def test_names_decide_where_there_are_names() -> None:
    assert list(FORM.row(Turned("n", 1, "u"))) == ["u", 1, "n"]
    assert list(FORM.row(["u", 1, "n"])) == ["u", 1, "n"]
    assert FORM.table(pa.table({"note": ["n"], "amount": [1], "user": ["u"]})).to_pylist() == [
        {"user": "u", "amount": 1, "note": "n"}
    ]


@pytest.mark.parametrize("item", [("a", 1), ("a", 1, "n", 2), "abc", 7])
def test_what_is_not_a_row_of_the_schema_is_refused(item: Any) -> None:
    with pytest.raises(TopologyError, match="operator 'op' gave a"):
        FORM.row(item)


def test_missing_columns_are_null_if_that_was_asked_for_and_misspelt_ones_are_still_refused() -> None:
    form = OutputForm("op", FORM.schema, "null")
    assert list(form.row({"user": "a"})) == ["a", None, None]
    assert form.table(pa.table({"amount": [1]})).to_pylist() == [{"user": None, "amount": 1, "note": None}]
    with pytest.raises(TopologyError, match="'amuont'"):
        form.row({"user": "a", "amuont": 1})


# --- whole runs ---


class Hosted(hf.Operator):
    def process(self, row: Any, port: int) -> Any:
        self.submit(
            [{"user": row.user, "amount": 1, "note": "n"}, {"user": row.user, "amount": 2, "note": "n"}]
        )
        return {"user": row.user, "amuont": 1, "note": ""}


class Sparse(hf.KeyedOperator):
    def process(self, row: Any, key: Any) -> Any:
        return {"user": key, "amount": 1}


def run(tmp_path: Path, shelf: str, through: Any) -> list[dict[str, Any]]:
    topology = hf.Topology("rows")
    source = topology.source(hf.Rows([("ann",)], "user string"), name="rows").consistent("r", period=0.02)
    through(source).sink(hf.MemorySink(shelf), name="out")
    try:
        status = run_local(topology, store=f"file:{tmp_path}/store")
        assert status["regions"]["r"]["resets"] == 0
        return hf.MemorySink.rows(shelf)
    finally:
        hf.MemorySink.clear(shelf)


def test_a_misspelt_column_ends_the_run_at_once(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with pytest.raises(TopologyError, match=r"operator 'shop' gave a row with a column 'amuont'"):
        run(tmp_path, request.node.name, lambda rows: rows.apply(Hosted, SCHEMA, name="shop"))


def test_a_keyed_operator_is_held_to_its_schema_too(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    shelf = request.node.name
    with pytest.raises(TopologyError, match=r"operator 'shop', key 'ann': .* without the column 'note'"):
        run(tmp_path / "a", shelf, lambda rows: rows.keyed("user", Sparse, SCHEMA, name="shop"))
    found = run(
        tmp_path / "b", shelf, lambda rows: rows.keyed("user", Sparse, SCHEMA, name="shop", missing="null")
    )
    assert found == [{"user": "ann", "amount": 1, "note": None}]


def test_what_missing_may_be_is_told() -> None:
    source = hf.Topology("t").source(hf.Rows([("ann",)], "user string"), name="rows")
    for declare in (source.apply, lambda *a, **k: source.keyed("user", *a, **k)):
        with pytest.raises(TopologyError, match="missing='skip' is not known"):
            declare(Hosted if declare == source.apply else Sparse, SCHEMA, missing="skip")  # type: ignore[operator]


MANY = [(1, "a"), (2, "b")]


def rows_given(*items: Any) -> list[dict[str, Any]]:
    """By an operator in the driver that submits, one that returns, one with a thread, and one per key: all the same."""

    class Submits(hf.Operator):
        def process(self, row: Any, port: int) -> None:
            for item in items:
                self.submit(item)

    class Yields:
        def process(self, row: Any, port: int) -> Any:
            yield from items

    class Threaded(hf.Operator):
        def run(self, context: Any) -> None:
            with context.permit():
                for item in items:
                    context.submit(item)

    class Keyed(hf.KeyedOperator):
        def process(self, row: Any, key: Any) -> None:
            for item in items:
                self.submit(item)

    made = hf.Topology("several")
    source = made.source(hf.Rows([(1,)], "k long"), name="rows")
    schema, shelves = "n long, t string", []
    for operator in (Submits, Yields):
        shelves.append(hf.MemorySink(f"several-{operator.__name__}"))
        source.apply(operator, schema, name=operator.__name__).sink(shelves[-1])
    shelves.append(hf.MemorySink("several-threaded"))
    made.operator(Threaded, [], schema=schema, name="threaded").sink(shelves[-1])
    shelves.append(hf.MemorySink("several-keyed"))
    source.keyed("k", Keyed, schema, name="keyed").sink(shelves[-1])
    for name in ("Submits", "Yields", "threaded", "keyed"):
        hf.MemorySink.clear(f"several-{name}")
    run_local(made)
    found = [hf.MemorySink.rows(f"several-{name}") for name in ("Submits", "Yields", "threaded", "keyed")]
    assert all(each == found[0] for each in found), found
    return found[0]


@pytest.mark.parametrize(
    "items",
    [
        [MANY],
        [tuple(MANY[0]), MANY[1]],
        [[{"n": 1, "t": "a"}, {"n": 2, "t": "b"}]],
        [[], [*MANY]],
        [[1, "a"], [2, "b"]],
    ],
    ids=["tuples in a list", "a tuple each", "dicts in a list", "nothing, then two", "a list of values each"],
)
def test_a_list_of_rows_is_several_rows_and_a_tuple_is_one(items: list[Any]) -> None:
    assert rows_given(*items) == [{"n": 1, "t": "a"}, {"n": 2, "t": "b"}]


@pytest.mark.parametrize("region", [True, False], ids=["region", "alone"])
@pytest.mark.parametrize(
    ("gives", "told"),
    [
        (lambda table: table.rename_columns(["usr"]), r"a column 'usr', .*Did you mean 'user'\?"),
        (lambda table: table.append_column("x", table["user"]).drop_columns(["user"]), r"a column 'x'"),
        (lambda table: None, "NoneType, not a table"),
        (lambda table: table.select([]), r"without the column 'user' .*Let the function return all columns"),
    ],
    ids=["misspelt", "other", "nothing", "missing"],
)
def test_a_table_of_map_arrow_must_have_the_columns_of_its_schema(
    gives: Any, told: str, region: bool, tmp_path: Path
) -> None:
    topology = hf.Topology("t")
    rows = topology.source(hf.Rows([("a",)], "user string"), name="rows")
    rows = rows.consistent(name="r") if region else rows
    rows.map_arrow(gives, "user string", name="made").sink(hf.MemorySink("made"), name="out")
    with pytest.raises(TopologyError, match=f"operator 'made' gave a .*{told}"):
        run_local(topology, f"file:{tmp_path}/store")


def test_other_columns_of_a_table_of_map_arrow_are_left_out() -> None:
    hf.MemorySink.clear("made")
    topology = hf.Topology("t")
    rows = topology.source(hf.Rows([(1, 2)], "a long, b long"), name="rows")
    made = rows.map_arrow(lambda table: table.to_batches()[0], "b int")
    made.sink(hf.MemorySink("made"), name="out")
    run_local(topology)
    assert hf.MemorySink.rows("made") == [{"b": 2}]
