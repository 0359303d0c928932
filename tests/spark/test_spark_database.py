"""Tables of databases filled by Spark's tasks: what failed tasks and commits leave behind does not count."""

from __future__ import annotations

import datetime
import os
import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from postgres_server import PostgresServer

import holdfast as hf
from holdfast import failpoints
from holdfast.errors import InputError

pytestmark = pytest.mark.spark

COLUMNS = "id long, k string, price decimal(9,2), at timestamp, local timestamp_ntz, tags array<string>"
FILES, ROWS = 4, 60
BEGIN = datetime.datetime(2026, 1, 1)


@pytest.fixture
def schema(postgres: PostgresServer, request: pytest.FixtureRequest) -> Iterator[str]:
    name = "s" + "".join(c if c.isalnum() else "_" for c in request.node.name.lower())[-50:]
    postgres.run(f"DROP SCHEMA IF EXISTS {name} CASCADE", f"CREATE SCHEMA {name}")
    yield name
    postgres.run(f"DROP SCHEMA {name} CASCADE")


def row(n: int) -> dict[str, Any]:
    at = BEGIN + datetime.timedelta(minutes=n)
    price, tags = Decimal(n) / 4, None if n % 3 else [f"t{n}"]
    return {"id": n, "k": f"k{n % 7}", "price": price, "at": at.replace(tzinfo=datetime.UTC), "local": at, "tags": tags}  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    kinds = pa.schema(
        [
            ("id", pa.int64()),
            ("k", pa.string()),
            ("price", pa.decimal128(9, 2)),
            ("at", pa.timestamp("us", tz="UTC")),
            ("local", pa.timestamp("us")),
            ("tags", pa.list_(pa.string())),
        ]
    )
    for file in range(FILES):
        rows = [row(n) for n in range(file * ROWS, (file + 1) * ROWS)]
        pq.write_table(pa.Table.from_pylist(rows, kinds), tmp_path / "in" / f"{file}.parquet")
    return tmp_path / "in"


@pytest.mark.sampled
@pytest.mark.parametrize("trouble", ["task", "commit", "server"])
def test_rows_arrive_once_whatever_fails(
    spark: Any, postgres: PostgresServer, schema: str, files: Path, tmp_path: Path, trouble: str
) -> None:
    marker = str(tmp_path / "failed-once")

    def fail_once(table: pa.Table) -> pa.Table:
        """One task fails, after the other one of its step may have staged its rows."""
        if trouble == "task" and 150 in table.column("id").to_pylist() and not os.path.exists(marker):
            Path(marker).touch()
            raise OSError("a task that fails once")
        if trouble == "server" and 150 in table.column("id").to_pylist() and not os.path.exists(marker):
            Path(marker).touch()
        return table

    file = f"sqlite:{tmp_path}/d.db"
    topology = hf.Topology("tables")
    source = hf.Files(str(files), "parquet", COLUMNS, max_files_per_step=2)
    rows = topology.source(source, name="rows").consistent(period=0.2)
    rows.sink(
        hf.DatabaseSink(postgres.url, f"{schema}.raw", create=True), name="raw"
    )  # tasks read files themselves
    rows = rows.map_arrow(fail_once, COLUMNS).filter("id >= 0")
    rows.sink(hf.DatabaseSink(postgres.url, f"{schema}.added", create=True), name="added")
    rows.sink(hf.DatabaseSink(file, "added", create=True), name="added_file")
    sums = rows.aggregate("k", n=hf.count(), total=hf.sum("price"), name="sums")
    sums.sink(
        hf.DatabaseSink(postgres.url, f"{schema}.sums", "upsert", key="k", create=True), name="sums_out"
    )
    failpoints.arm("sink.commit.applied=raise@2" if trouble == "commit" else "")
    try:
        run = topology.submit(spark, store=f"file:{tmp_path}/store", until="available")
        if trouble == "server":
            while not os.path.exists(marker) and not run.await_termination(0.01):
                pass
            postgres.restart()  # also under the feet of connections that tasks keep
        run.await_termination()
    finally:
        fired = failpoints.disarm()
    assert fired == ({"sink.commit.applied": 1} if trouble == "commit" else {})
    assert os.path.exists(marker) == (trouble in ("task", "server"))
    wanted = [row(n) for n in range(FILES * ROWS)]
    found = postgres.rows(f"SELECT id, k, price::text, at, local, tags::text FROM {schema}.added ORDER BY id")
    assert [r[:2] + r[3:5] for r in found] == [(w["id"], w["k"], w["at"], w["local"]) for w in wanted]
    assert [Decimal(r[2]) for r in found] == [w["price"] for w in wanted]
    assert [r[5] for r in found] == [None if w["tags"] is None else f'["{w["tags"][0]}"]' for w in wanted]
    assert postgres.rows(f"SELECT id, at, tags::text FROM {schema}.raw ORDER BY id") == [
        (r[0], r[3], r[5]) for r in found
    ]
    ids = sqlite3.connect(tmp_path / "d.db").execute("SELECT id FROM added ORDER BY id").fetchall()
    assert ids == [(w["id"],) for w in wanted]
    sums_found = postgres.rows(f"SELECT k, n, total::text FROM {schema}.sums")
    totals = {k: [w["price"] for w in wanted if w["k"] == k] for k in {w["k"] for w in wanted}}
    assert {k: (n, Decimal(total)) for k, n, total in sums_found} == {
        k: (len(of), sum(of)) for k, of in totals.items()
    }
    left = postgres.rows(
        f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' AND tablename LIKE 'hf%'"
    )
    assert left == []


def test_the_last_row_of_a_key_is_the_last_in_the_source_whichever_task_has_it(
    spark: Any, postgres: PostgresServer, schema: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    # Spark begins with the largest file, which is the second of its step.
    for file, count in enumerate([10, 200_000, 50, 7]):
        numbers = range(file * 1_000_000, file * 1_000_000 + count)
        table = pa.table({"k": [n % 10 for n in numbers], "v": list(numbers)})
        pq.write_table(table, tmp_path / "in" / f"{file}.parquet")
    topology = hf.Topology("order")
    source = hf.Files(str(tmp_path / "in"), "parquet", "k long, v long", max_files_per_step=4)
    rows = topology.source(source, name="rows").consistent(period=5)
    rows.filter("v % 2 = 0").sink(
        hf.DatabaseSink(postgres.url, f"{schema}.t", "upsert", key="k", create=True), name="out"
    )
    topology.run(spark, store=f"file:{tmp_path}/store", until="available")
    wanted = [(k, 3_000_000 + k if k < 7 else 2_000_040 + k) for k in range(0, 10, 2)]
    assert postgres.rows(f"SELECT k, v FROM {schema}.t ORDER BY k") == wanted


def test_what_a_task_refuses_is_told_as_it_was_and_explained_before(
    spark: Any, postgres: PostgresServer, schema: str, tmp_path: Path
) -> None:
    topology = hf.Topology("refused")
    rows = topology.source(hf.Rows([(1, "burn")], "k long, op string"), name="rows").consistent(period=0.1)
    sink = hf.DatabaseSink(postgres.url, f"{schema}.t", "changelog", key="k", create=True)
    rows.sink(sink, name="out")
    loose = topology.source(hf.Rows([(1,)], "k long"), name="loose")
    loose.sink(hf.DatabaseSink(postgres.url, f"{schema}.now", create=True), name="now")
    told = str(topology.explain(spark=spark))
    assert f"table {schema}.t of PostgreSQL at 127.0.0.1:{postgres.port}/postgres (changelog by k)" in told
    assert "the ledger has no epoch of it" in told
    assert "s3cret" not in told
    with pytest.raises(InputError, match="'burn', which is no operation of a changelog") as caught:
        topology.run(spark, store=f"file:{tmp_path}/store", until="available")
    assert "s3cret" not in str(caught.value)
    assert postgres.rows(f"SELECT count(*) FROM {schema}.t") == [(0,)]
