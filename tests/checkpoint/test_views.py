"""State as people know it, without the topology: of every kind of operator, compared with the input."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.checkpoint.look.describe import first_rows
from holdfast.checkpoint.look.epochs import choose_region, newest_manifest, open_reader
from holdfast.checkpoint.look.state_rows import rows_that_count
from holdfast.operators.fingerprint import Fingerprint
from holdfast.operators.kinds import stored_rows
from holdfast.operators.stored.rows import aggregation_of, functions_of
from holdfast.sinks import MemorySink
from holdfast.state.aggregates.aggregation import Aggregation, finish, partial
from holdfast.testing import run_local

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ROWS = [(BEGIN + dt.timedelta(seconds=n), "abc"[n % 3], n) for n in range(40)]
Made = Callable[[Any, Any], Any]


def after_run(
    build: Made, tmp_path: Path, right_rows: Sequence[Any] | None = None
) -> dict[str, list[dict[str, Any]]]:
    """The parts of operator `it` after a run over `ROWS`, and over other rows on the right if there are any."""
    made = hf.Topology("views")

    def stream(name: str, rows: Sequence[Any]) -> Any:
        source = hf.Rows(list(rows), "at timestamp, k string, n long", rows_per_step=9)
        return made.source(source, name=name).consistent("r", period=0.05)

    left = stream("left", ROWS)
    right = None if right_rows is None else stream("right", right_rows)
    build(left, right).sink(MemorySink(tmp_path.name), name="out")
    run_local(made, f"file:{tmp_path / 'store'}")
    MemorySink.clear(tmp_path.name)
    store = open_reader(tmp_path / "store")
    manifest = newest_manifest(store, choose_region(store, None))
    return {name: rows.to_pylist() for name, rows in first_rows(store, manifest, "it", 1000).items()}


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=repr)


def test_a_running_aggregate_with_a_lifetime_tells_when_keys_were_last_seen(tmp_path: Path) -> None:
    found = after_run(
        lambda a, b: a.aggregate("k", ttl=hf.ttl(3600, on="at", delay=0), n=hf.count(), name="it"), tmp_path
    )
    assert ordered(found["state"]) == ordered(
        [
            {"k": k, "n": sum(r[1] == k for r in ROWS), "last_seen": max(r[0] for r in ROWS if r[1] == k)}
            for k in "abc"
        ]
    )


def test_an_interval_join_shows_the_rows_it_keeps_of_each_side(tmp_path: Path) -> None:
    found = after_run(lambda a, b: a.join(b, "k", on="at", within=(5, 5), name="it", delay=0), tmp_path, ROWS)
    assert found.keys() >= {"left", "right"}
    newest = {"at": ROWS[-1][0], "k": ROWS[-1][1], "n": ROWS[-1][2]}
    for side in ("left", "right"):
        assert newest in found[side]
        assert all(set(row) == {"at", "k", "n"} for row in found[side])


def test_a_barrier_shows_the_rows_that_wait(tmp_path: Path) -> None:
    found = after_run(lambda a, b: a.zip(b, by="k", name="it"), tmp_path, ROWS[:7])
    for row in found["state"]:
        of_key = [n for _, k, n in ROWS if k == row["k"]]
        assert [each["n"] for each in row["input_0"]] == of_key[sum(k == row["k"] for _, k, _ in ROWS[:7]) :]
        assert row["input_1"] == []
    assert len(found["state"]) == 3


def test_windows_of_rows_show_what_is_stored(tmp_path: Path) -> None:
    found = after_run(
        lambda a, b: a.aggregate("k", window=hf.tumbling(rows=1000), total=hf.sum("n"), name="it"), tmp_path
    )
    totals = {row["k"]: int(row["total_sum"]) for row in found["state"]}
    assert totals == {k: sum(r[2] for r in ROWS if r[1] == k) for k in "abc"}


def test_best_rows_of_windows_have_ranks(tmp_path: Path) -> None:
    found = after_run(
        lambda a, b: a.top_n(2, by="k", order="-n", window=hf.tumbling(3600, on="at", delay=0), name="it"),
        tmp_path,
    )
    expected = [
        (k, rank, n)
        for k in "abc"
        for rank, n in enumerate(sorted((r[2] for r in ROWS if r[1] == k), reverse=True)[:2], 1)
    ]
    assert sorted((row["k"], row["rank"], row["n"]) for row in found["state"]) == expected
    assert {row["window_start"] for row in found["state"]} == {BEGIN}


def test_a_function_of_the_user_is_shown_as_stored(tmp_path: Path) -> None:
    spread = hf.udaf(lambda n: len(n), "n", type="long")
    found = after_run(lambda a, b: a.aggregate("k", spread=spread, name="it"), tmp_path)
    assert {row["k"] for row in found["state"]} == set("abc")
    assert all("spread" in name or name == "k" for name in found["state"][0])


# --- aggregations told from fingerprints ------------------------------------------------------------------------------

KINDS: dict[str, tuple[str, pa.DataType]] = {
    "sum of int32": ("sum", pa.int32()),
    "sum of int64": ("sum", pa.int64()),
    "sum of decimals": ("sum", pa.decimal128(12, 3)),
    "sum of wide decimals": ("sum", pa.decimal128(34, 3)),
    "sum of floats": ("sum", pa.float32()),
    "avg of int": ("avg", pa.int16()),
    "avg of decimals": ("avg", pa.decimal128(9, 2)),
    "avg of wide decimals": ("avg", pa.decimal128(36, 2)),
    "avg of decimals without a fraction": ("avg", pa.decimal128(38, 0)),
    "avg of doubles": ("avg", pa.float64()),
    "min of strings": ("min", pa.string()),
    "max of timestamps": ("max", pa.timestamp("us", tz="UTC")),
    "first": ("first", pa.list_(pa.field("element", pa.int64()))),
    "last of dates": ("last", pa.date32()),
    "collect": ("collect", pa.string()),
    "count_distinct": ("count_distinct", pa.int32()),
    "collect_set": ("collect_set", pa.string()),
    "quantile": ("quantile[0.25]", pa.int64()),
    "variance": ("variance", pa.float32()),
    "stddev": ("stddev", pa.decimal128(6, 1)),
    "count": ("count", pa.bool_()),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_function_is_told_from_fingerprint_and_columns(name: str) -> None:
    function, kind = KINDS[name]
    schema = pa.schema(
        [("k", pa.string()), ("v", kind), ("__hf_ordinal", pa.int64()), ("__hf_row", pa.int64())]
    )
    real = Aggregation.plan(("k",), (("out", function, "v"),), schema)
    result = str(real.output_schema.field("out").type).replace(" ", "")
    guessed = aggregation_of(functions_of(told(out=(function, result))), real.state_schema)
    assert guessed is not None
    assert guessed.output_schema.equals(real.output_schema)
    columns = [pa.array(["a", "b", "a"]), some_of(kind), pa.array([0, 0, 0]), pa.array([0, 1, 2])]
    batch = pa.table(columns, schema=schema)
    state = partial(real, batch)
    assert finish(guessed, state).equals(finish(real, state))


def told(**computed: tuple[str, str]) -> Fingerprint:
    entries = {
        name: {"function": function, "column": "v", "type": result}
        for name, (function, result) in computed.items()
    }
    return Fingerprint("aggregate", {"key": (("k", "string"),), "groups": 128}, {"aggregates": entries})


def some_of(kind: pa.DataType) -> pa.Array:
    if pa.types.is_nested(kind):
        return pa.array([[1], None, [2, 3]], kind)
    if pa.types.is_boolean(kind):
        return pa.array([True, None, False])
    if pa.types.is_decimal(kind):
        return pa.array([Decimal(1), None, Decimal(3)], kind)
    days = pa.array([1, None, 3], pa.int32())
    return days.cast(pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else days.cast(kind)


def test_a_function_nobody_knows_leaves_the_columns_as_they_are() -> None:
    schema = pa.schema(
        [pa.field("__hf_hash", pa.int64(), nullable=False), ("k", pa.string()), ("__hf_x.thing", pa.int64())]
    )
    fingerprint = told(x=("mystery", "int64"))
    assert aggregation_of(functions_of(fingerprint), schema) is None
    for found in (fingerprint, Fingerprint("of nobody")):
        rows = stored_rows(found, {})
        part = rows.part("state", schema)
        assert part.keys == ("k",)
        assert rows.view(part).schema.names == ["k", "x_thing"]


@pytest.mark.parametrize(
    ("kind", "part", "column", "meta", "left"),
    [
        ("sort", "waiting", "__hf_time", {"watermark": 20}, [20, 30]),
        ("sort", "waiting", "__hf_time", {"watermark": None}, [10, 20, 30]),
        ("keyed", "wake-ups", "__hf_wake", {"mark": 20}, [30]),
        ("keyed", "wake-ups", "__hf_wake", {}, [10, 20, 30]),
    ],
)
def test_rows_that_were_used_up_do_not_count(
    kind: str, part: str, column: str, meta: Any, left: list[int]
) -> None:
    """They stay in their segment until it is rewritten."""
    table = pa.table({column: [10, 20, 30], "__hf_hash": [3, 1, 2], "k": ["a", "b", "c"]})
    stored = stored_rows(Fingerprint(kind), meta)
    assert stored.part_of("x", table.schema) == part
    made = stored.part(part, table.schema)
    found = [row[column] for rows in rows_that_count(made, [table], rows=1) for row in rows.to_pylist()]
    assert sorted(found) == left
