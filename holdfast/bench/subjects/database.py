"""`holdfast bench database`: rows into a table of PostgreSQL, exactly once, against plain appends by Spark's JDBC writer.

    holdfast    files → region with 2 s epochs → DatabaseSink: staged, folded into the table with the ledger's row
    jdbc        a loop of spark.read → write.jdbc(mode="append"), as it is out of the box: at least once
    jdbc_tuned  the same with batches of 10 000 rows that the driver makes one statement of (reWriteBatchedInserts)

All write the same rows into tables of one server, started for the benchmark with its default settings. Time runs from the
first step until the last row is visible. The JDBC driver is fetched from Maven Central.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from holdfast.bench.measure.alternate import Alternation, Round, Side, Stretch, pairs_of
from holdfast.bench.measure.inputs import Inputs, rows_in
from holdfast.bench.measure.place import Place, bench_place
from holdfast.bench.measure.ratios import speedup_of
from holdfast.bench.measure.report import by_side, durability, figure, show, side_figures
from holdfast.bench.measure.side_holdfast import PERIOD_S, CountingStore, run_topology
from holdfast.errors import ConfigError, HoldfastError
from holdfast.language.topology import Topology
from holdfast.sinks import DatabaseSink
from holdfast.sources import Files
from holdfast.testing.postgres_server import MISSING, PASSWORD, PostgresServer, is_there

PACKAGE = "org.postgresql:postgresql:42.7.14"
DISTINCT_FILES = 4
OURS, PLAIN, TUNED = "holdfast", "jdbc", "jdbc_tuned"
COLUMNS = (
    "id bigint, customer integer, cents bigint, kind text, rate double precision, at timestamp with time zone"
)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int32()),
        ("cents", pa.int64()),
        ("kind", pa.string()),
        ("rate", pa.float64()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)


def bench_database(
    *, pairs: int = 5, seconds: float = 10.0, quiet: bool = False, rows: int = 300_000
) -> dict[str, Any]:
    """Run the benchmark; the result is plain data. `rows`: per file, of which each step takes one."""
    if not is_there():
        raise ConfigError(
            f"the benchmark needs a PostgreSQL server: {MISSING}.", cure="Install it and run again."
        )
    with bench_place(quiet, {"spark.jars.packages": PACKAGE}) as place, _server() as server:
        inputs = Inputs(place.root / "inputs", rows, DISTINCT_FILES, partial(write_input, rows))
        sides = [
            Side(OURS, partial(_run_ours, place, server)),
            Side(PLAIN, partial(_run_jdbc, place, server, {})),
            Side(TUNED, partial(_run_jdbc, place, server, {"batchsize": "10000", "reWriteBatchedInserts": "true"})),
        ]  # fmt: skip
        alternation = Alternation(place, inputs, sides, partial(look, server, inputs))
        alternation.warm_up(2)
        steps = alternation.steps_of(seconds, at_least=4)
        version = str(server.rows("SHOW server_version")[0][0])
        return _report(place, alternation.measure(pairs, steps), version, rows)


def _report(place: Place, rounds: list[Round], version: str, rows: int) -> dict[str, Any]:
    ratios = {
        "versus_jdbc_append": speedup_of(pairs_of(rounds, OURS, PLAIN, lambda s: s.rows_per_s)),
        "versus_jdbc_tuned": speedup_of(pairs_of(rounds, OURS, TUNED, lambda s: s.rows_per_s)),
    }
    show(place.console, "database: rows/s of holdfast over those of Spark's JDBC writer", ratios, rounds)
    result: dict[str, Any] = {"bench": "database"}
    for name, ratio in ratios.items():
        result |= figure(name, ratio)
    return {
        **result,
        **side_figures(rounds),
        **durability(by_side(rounds)[OURS]),
        "outputs_equal": True,
        "configuration": place.configuration(
            period_s=PERIOD_S, rows_per_step=rows, postgresql=version, jdbc=PACKAGE
        ),
    }


@contextmanager
def _server() -> Iterator[PostgresServer]:
    """A server for the benchmark. Its directory is one that the server's user may enter."""
    root = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
    root.chmod(0o755)
    try:
        with PostgresServer(root / "server") as server:
            yield server
    finally:
        shutil.rmtree(root, ignore_errors=True)


# --- sides ----------------------------------------------------------------------------------------------------------


def _fresh(server: PostgresServer, out: Path) -> str:
    """An empty table for a stretch, named after its directory; those of earlier ones go, and the log is written out."""
    table = _table(out)
    found = server.rows("SELECT tablename FROM pg_tables WHERE tablename LIKE 'out%'")
    server.run(
        *(f'DROP TABLE "{name}"' for (name,) in found), f'CREATE TABLE "{table}" ({COLUMNS})', "CHECKPOINT"
    )
    return table


def _table(out: Path) -> str:
    return out.name.replace("-", "_").lower()


def _run_ours(place: Place, server: PostgresServer, files: Path, out: Path) -> Stretch:
    table = _fresh(server, out)
    topology = Topology("bench")
    source = Files(str(files), format="parquet", schema=SCHEMA, max_files_per_step=1)
    stream = topology.source(source, name="in").consistent(name="bench", period=PERIOD_S)
    stream.sink(DatabaseSink(server.url, table), name="out")
    with place.directory("store") as store:
        return run_topology(topology, place.session, files, CountingStore(store))


def _run_jdbc(
    place: Place, server: PostgresServer, options: dict[str, str], files: Path, out: Path
) -> Stretch:
    table = _fresh(server, out)
    schema, names = from_arrow_schema(SCHEMA), sorted(files.iterdir())
    url = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres"
    properties = {"user": "tester", "password": PASSWORD, "driver": "org.postgresql.Driver", **options}
    begun = time.monotonic()
    for file in names:
        frame = place.session.read.schema(schema).parquet(str(file))
        frame.write.jdbc(url, table, mode="append", properties=properties)
    return Stretch(time.monotonic() - begun, rows_in(files), len(names))


# --- inputs and outputs ---------------------------------------------------------------------------------------------


def write_input(rows: int, path: Path, number: int) -> None:
    """One file of orders, in as many row groups as tasks can share."""
    random = np.random.default_rng(number)
    kinds = pa.array(["card", "transfer", "cash", "voucher"])
    at = pa.array(1_790_000_000_000_000 + random.integers(0, 10**12, rows)).cast(SCHEMA.field("at").type)
    table = pa.table(
        {
            "id": np.arange(number * rows, (number + 1) * rows),
            "customer": random.integers(0, 100_000, rows, dtype=np.int32),
            "cents": random.integers(0, 20_000, rows),
            "kind": kinds.take(pa.array(random.integers(0, 4, rows))),
            "rate": random.random(rows),
            "at": at,
        },
        schema=SCHEMA,
    )
    pq.write_table(table, path, row_group_size=max(1, rows // 8))


def look(server: PostgresServer, inputs: Inputs, out: Path, steps: int) -> dict[str, int]:
    """What the table holds: enough to notice a row too many, too few or different. Raises if it is not the input."""
    query = (
        "SELECT count(*), sum(id)::bigint, sum(customer::bigint * cents)::bigint, count(DISTINCT at)::bigint"
    )
    found = server.rows(f'{query} FROM "{_table(out)}"')[0]
    tables = [pq.read_table(inputs.distinct[n % len(inputs.distinct)], columns=["id"]) for n in range(steps)]
    ids = [table.column("id").to_numpy() for table in tables]
    wanted = sum(map(len, ids)), sum(int(each.sum()) for each in ids)
    if tuple(map(int, found[:2])) != wanted:
        raise HoldfastError(f"the table holds {found[:2]} instead of {wanted} (rows, sum of ids).")
    return dict(zip(("rows", "ids", "mixed", "times"), map(int, found), strict=True))
