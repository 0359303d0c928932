"""Values of every type arrive as they were; changes of a key arrive in their order; what attempts leave behind is never seen."""

from __future__ import annotations

import datetime
import json
import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from postgres_server import PostgresServer

import holdfast as hf
from holdfast.ids import Attempt, Epoch
from holdfast.language.connectors import StepId
from holdfast.sinks.database.json_text import json_text
from holdfast.sinks.database.postgres.types import fit
from holdfast.testing import run_local
from holdfast.testing.sink_conformance import context, opened_sink

UTC = datetime.UTC
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("whole", pa.int32()),
        ("single", pa.float32()),
        ("twice", pa.float64()),
        ("word", pa.string()),
        ("raw", pa.binary()),
        ("yes", pa.bool_()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("exact", pa.decimal128(38, 6)),
        ("tags", pa.list_(pa.string())),
        ("nested", pa.struct([("a", pa.int64()), ("m", pa.map_(pa.string(), pa.float64()))])),
    ]
)
AT = datetime.datetime(1965, 3, 4, 5, 6, 7, 890123)
FULL = {
    "id": 2**62,
    "tiny": -128,
    "small": -32768,
    "whole": -(2**31),
    "single": 0.5,
    "twice": 1e300,
    "word": "ä \"quoted\", \\back\\ \n new line 'x'",
    "raw": b"\x00\xff",
    "yes": True,
    "day": datetime.date(1899, 12, 31),
    "moment": AT.replace(tzinfo=UTC),
    "local": AT,
    "exact": Decimal("-12345678901234567890123456789012.345678"),
    "tags": ["a", None, 'b"\t'],
    "nested": {"a": None, "m": [("k", 1.5)]},
}
EMPTY = {**dict.fromkeys(FULL), "id": 1}
BLANK = {**EMPTY, "id": 2, "word": "", "raw": b"", "tags": [], "nested": {"a": 1, "m": []}}


@pytest.fixture
def schema(postgres: PostgresServer, request: pytest.FixtureRequest) -> Iterator[str]:
    name = "y" + "".join(c if c.isalnum() else "_" for c in request.node.name.lower())[-50:]
    postgres.run(f"DROP SCHEMA IF EXISTS {name} CASCADE", f"CREATE SCHEMA {name}")
    yield name
    postgres.run(f"DROP SCHEMA {name} CASCADE")


def written(sink: hf.DatabaseSink, *steps: pa.Table) -> None:
    """One epoch of some steps."""
    sink.check_columns(steps[0].schema)
    opened_sink(sink)
    for number, table in enumerate(steps):
        sink.write_arrow(table, StepId(Attempt(0), number))
    sink.commit(Epoch(1), sink.prepare(Epoch(1), sink.seal(Epoch(1))))
    sink.close()


def test_every_type_arrives_in_postgresql(postgres: PostgresServer, schema: str) -> None:
    written(
        hf.DatabaseSink(postgres.url, f"{schema}.t", create=True),
        pa.Table.from_pylist([FULL, EMPTY, BLANK], schema=SCHEMA),
    )
    names = [name for name in SCHEMA.names if name not in ("exact", "tags", "nested")]
    rows = postgres.rows(
        f"SELECT {', '.join(names)}, exact::text, tags::text, nested::text FROM {schema}.t ORDER BY id"
    )
    found = [dict(zip([*names, "exact", "tags", "nested"], row, strict=True)) for row in rows]
    assert found[0] == EMPTY
    assert found[1] == {**BLANK, "tags": "[]", "nested": '{"a": 1, "m": {}}'}
    for name in names:
        assert found[2][name] == FULL[name], name
    assert found[2]["exact"] == str(FULL["exact"])
    assert json.loads(found[2]["tags"]) == FULL["tags"]
    assert json.loads(found[2]["nested"]) == {"a": None, "m": {"k": 1.5}}


def test_every_type_arrives_in_sqlite(tmp_path: Path) -> None:
    written(
        hf.DatabaseSink(f"sqlite:{tmp_path}/d.db", "t", create=True),
        pa.Table.from_pylist([FULL, EMPTY], schema=SCHEMA),
    )
    rows = sqlite3.connect(tmp_path / "d.db").execute("SELECT * FROM t ORDER BY id").fetchall()
    assert dict(zip(SCHEMA.names, rows[0], strict=True)) == EMPTY
    found = dict(zip(SCHEMA.names, rows[1], strict=True))
    texts = {
        "day": "1899-12-31",
        "moment": "1965-03-04 05:06:07.890123Z",
        "local": "1965-03-04 05:06:07.890123",
        "exact": str(FULL["exact"]),
        "tags": '["a",null,"b\\"\\t"]',
        "nested": '{"a":null,"m":{"k":1.5}}',
        "yes": 1,
    }
    assert found == {**FULL, **texts}


def test_texts_become_what_only_texts_can_spell(postgres: PostgresServer, schema: str) -> None:
    postgres.run(
        f"CREATE TYPE {schema}.mood AS ENUM ('good', 'bad')",
        f"CREATE TABLE {schema}.t (id uuid PRIMARY KEY, mood {schema}.mood, data json, name varchar(5), n numeric(9,2))",
    )
    id = "11111111-2222-3333-4444-555555555555"
    row = {"id": id, "mood": "good", "data": '{"a": 1}', "name": "five!", "n": Decimal("1.50")}
    kinds = pa.schema(
        [*((n, pa.string()) for n in ("id", "mood", "data", "name")), ("n", pa.decimal128(5, 2))]
    )
    sink = hf.DatabaseSink(postgres.url, f"{schema}.t", "upsert", key="id")
    written(sink, pa.Table.from_pylist([{**row, "mood": "bad"}], kinds), pa.Table.from_pylist([row], kinds))
    found = postgres.rows(f"SELECT id::text, mood::text, data::text, name, n::text FROM {schema}.t")
    assert found == [(id, "good", '{"a": 1}', "five!", "1.50")]


@pytest.mark.parametrize(
    ("kind", "base", "full", "how"),
    [
        (pa.int64(), "bigint", "bigint", "same"),
        (pa.int64(), "integer", "integer", "checked"),
        (pa.int64(), "double precision", "double precision", None),
        (pa.int32(), "double precision", "double precision", "checked"),
        (pa.float64(), "real", "real", None),
        (pa.float64(), "numeric", "numeric", None),
        (pa.float64(), "integer", "integer", None),
        (pa.decimal128(10, 2), "numeric", "numeric(12,2)", "same"),
        (pa.decimal128(10, 2), "numeric", "numeric(12,4)", "same"),
        (pa.decimal128(10, 2), "numeric", "numeric(8,2)", "checked"),
        (pa.decimal128(10, 2), "numeric", "numeric(12,1)", None),
        (pa.decimal128(10, 2), "double precision", "double precision", None),
        (pa.timestamp("us"), "timestamp with time zone", "timestamp with time zone", None),
        (pa.timestamp("us", tz="UTC"), "timestamp without time zone", "timestamp without time zone", None),
        (pa.timestamp("us"), "timestamp without time zone", "timestamp(0) without time zone", None),
        (pa.timestamp("us"), "date", "date", None),
        (pa.string(), "integer", "integer", None),
        (pa.string(), "character varying", "character varying(3)", "checked"),
        (pa.list_(pa.int8()), "jsonb", "jsonb", "cast"),
        (pa.list_(pa.int8()), "text", "text", "same"),
        (pa.bool_(), "integer", "integer", None),
        (pa.date32(), "date", "date", "same"),
    ],
)
def test_a_column_takes_only_what_it_does_not_change(
    kind: Any, base: str, full: str, how: str | None
) -> None:
    assert fit(kind, base, full, False) == how


def test_nested_values_as_json_are_what_python_reads() -> None:
    kind = pa.list_(pa.struct([("s", pa.string()), ("l", pa.list_(pa.int16())), ("f", pa.float64())]))
    values = [
        None,
        [],
        [None, {"s": None, "l": None, "f": None}],
        [
            {"s": "".join(map(chr, range(0x30))) + 'ä"\\', "l": [1, None], "f": 1e-7},
            {"s": "", "l": [], "f": -0.5},
        ],
    ]
    array = pa.array(values, kind)
    for column in (array, array.slice(1), pa.chunked_array([array.slice(2), array])):
        texts = json_text(column).to_pylist()
        assert [None if text is None else json.loads(text) for text in texts] == column.to_pylist()
    odd = json_text(pa.array([[float("nan"), float("inf")]], pa.list_(pa.float64()))).to_pylist()
    assert json.loads(odd[0]) == ["nan", "inf"]


# --- changes of a key -----------------------------------------------------------------------------------------------


def table(*rows: tuple[int, str, str]) -> pa.Table:
    return pa.table(dict(zip(("k", "v", "op"), map(list, zip(*rows, strict=True)), strict=True)))


def test_the_last_change_of_a_key_wins_within_a_step_and_over_steps(
    postgres: PostgresServer, schema: str, tmp_path: Path
) -> None:
    steps = [
        table((1, "a", "c"), (2, "b", "c"), (1, "c", "u"), (3, "d", "insert"), (4, "e", "+I")),
        table((2, "b", "delete"), (3, "old", "-U"), (3, "new", "+U"), (4, "e", "d"), (4, "again", "c")),
        table((9, "never there", "-D")),
    ]
    places = [(postgres.url, f"{schema}.t"), (f"sqlite:{tmp_path}/d.db", "t")]
    for url, name in places:
        written(hf.DatabaseSink(url, name, "changelog", key="k", create=True), *steps)
    wanted = [(1, "c"), (3, "new"), (4, "again")]
    assert postgres.rows(f"SELECT k, v FROM {schema}.t ORDER BY k") == wanted
    assert sqlite3.connect(tmp_path / "d.db").execute("SELECT k, v FROM t ORDER BY k").fetchall() == wanted


def test_rows_of_several_tasks_are_ordered_by_their_positions(postgres: PostgresServer, schema: str) -> None:
    sink = hf.DatabaseSink(postgres.url, f"{schema}.t", "upsert", key="k", create=True)
    kinds = pa.schema([("k", pa.int64()), ("v", pa.string())])
    sink.check_columns(kinds)
    opened_sink(sink)
    writer = sink.task_writer(StepId(Attempt(0), 1))
    assert writer is not None

    def stamped(value: str, row: int) -> pa.Table:
        positions = {"__hf_source": [0], "__hf_ordinal": [0], "__hf_row": [row]}
        return pa.table({"k": [1], "v": [value], **positions})

    late, early = writer(stamped("last", 9), 0, 1), writer(stamped("first", 3), 1, 2)
    sink.adopt(StepId(Attempt(0), 1), [late, early])
    sink.commit(Epoch(1), sink.prepare(Epoch(1), sink.seal(Epoch(1))))
    assert postgres.rows(f"SELECT k, v FROM {schema}.t") == [(1, "last")]


def test_a_table_of_keys_only(postgres: PostgresServer, schema: str) -> None:
    sink = hf.DatabaseSink(postgres.url, f"{schema}.t", "upsert", key=["a", "b"], create=True)
    written(sink, pa.table({"a": [1, 1], "b": [2, 2]}), pa.table({"a": [1], "b": [3]}))
    assert postgres.rows(f"SELECT a, b FROM {schema}.t ORDER BY b") == [(1, 2), (1, 3)]


def test_a_boolean_says_what_is_deleted(tmp_path: Path) -> None:
    sink = hf.DatabaseSink(f"sqlite:{tmp_path}/d.db", "t", "changelog", key="k", op="gone", create=True)
    written(sink, pa.table({"k": [1, 2, 1], "gone": [False, False, True]}))
    assert sqlite3.connect(tmp_path / "d.db").execute("SELECT k FROM t").fetchall() == [(2,)]


# --- what is left behind --------------------------------------------------------------------------------------------


def test_a_task_that_fails_midway_leaves_no_row(postgres: PostgresServer, schema: str) -> None:
    sink = hf.DatabaseSink(postgres.url, f"{schema}.t", create=True)
    sink.check_columns(pa.schema([("n", pa.int64())]))
    opened_sink(sink)
    writer: Any = sink.task_writer(StepId(Attempt(0), 1))

    def tables() -> Iterator[pa.Table]:
        yield pa.table({"n": list(range(50_000))})
        raise ValueError("the task died")

    with pytest.raises(ValueError, match="the task died"):
        writer.write(tables(), 0)
    assert postgres.rows(f'SELECT count(*) FROM {schema}."{writer.stage}"') == [(0,)]


def test_outside_of_regions_old_leftovers_are_removed_and_those_of_others_are_not(
    postgres: PostgresServer, schema: str
) -> None:
    def make() -> hf.DatabaseSink:
        sink = hf.DatabaseSink(postgres.url, f"{schema}.t", create=True)
        sink.check_columns(pa.schema([("n", pa.int64())]))
        return sink

    dead, neighbour = make(), make()
    dead.open(context(region=None))
    dead._clock = OldClock()  # type: ignore[assignment]
    left: Any = dead.task_writer(StepId(Attempt(0), 1))
    neighbour.open(context(region=None, job="other"))
    busy: Any = neighbour.task_writer(StepId(Attempt(0), 1))
    make().open(context(region=None, job="third"))
    names = postgres.rows(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")
    assert (busy.stage,) in names
    assert (left.stage,) not in names
    neighbour.adopt(StepId(Attempt(0), 1), [busy(pa.table({"n": [1]}), 0, 0)])
    assert postgres.rows(f"SELECT n FROM {schema}.t") == [(1,)]


class OldClock:
    def wall(self) -> float:
        return 1_700_000_000.0


def test_outside_of_regions_rows_are_there_at_once_and_explained(tmp_path: Path) -> None:
    topology = hf.Topology("loose")
    rows = topology.source(hf.Rows([(n,) for n in range(30)], "n long", rows_per_step=7), name="rows")
    rows.sink(hf.DatabaseSink(f"sqlite:{tmp_path}/d.db", "t", create=True), name="out")
    run_local(topology, store=f"file:{tmp_path}/store")
    file = sqlite3.connect(tmp_path / "d.db")
    assert sorted(file.execute("SELECT n FROM t").fetchall()) == [(n,) for n in range(30)]
    assert file.execute("SELECT name FROM sqlite_master").fetchall() == [("t",)]
