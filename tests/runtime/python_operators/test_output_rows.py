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
