"""Child of test_database_survives_kills: tables of PostgreSQL and SQLite, appended, upserted and as a changelog, to the end of
its input. argv: mode of the region, URL of PostgreSQL with a schema behind #, directory."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import holdfast as hf
from holdfast.testing import run_local

ROWS = 300


def rows() -> list[tuple[int, str, int]]:
    return [(n, f"k{n * n % 17}", n % 5) for n in range(ROWS)]


def changes(table: pa.Table) -> pa.Table:
    """Every fifth row deletes its key."""
    is_delete = pc.equal(table["m"], 0)
    return table.append_column("op", pc.if_else(is_delete, "delete", "upsert"))


def build(mode: Any, postgres: str, directory: str, period: float = 0.03) -> hf.Topology:
    url, _, schema = postgres.partition("#")
    places = [(url, f"{schema}."), (f"sqlite:{directory}/out.db", "")]
    topology = hf.Topology("database")
    source = hf.Rows(rows(), "n long, k string, m long", rows_per_step=12)
    stream = topology.source(source, name="rows").consistent(mode=mode, period=period)
    spent = stream.aggregate("k", c=hf.count(), total=hf.sum("n"), name="spent")
    schema_of = pa.schema([("n", pa.int64()), ("k", pa.string()), ("m", pa.int64()), ("op", pa.string())])
    changed = stream.map_arrow(changes, schema_of, name="changed")
    for number, (place, prefix) in enumerate(places):
        stream.sink(hf.DatabaseSink(place, f"{prefix}added", create=True), name=f"added{number}")
        upserts = hf.DatabaseSink(place, f"{prefix}spent", "upsert", key="k", create=True)
        spent.sink(upserts, name=f"spent{number}")
        log = hf.DatabaseSink(place, f"{prefix}log", "changelog", key="k", create=True)
        changed.sink(log, name=f"log{number}")
    return topology


def golden() -> dict[str, list[tuple[Any, ...]]]:
    """What the tables hold at the end."""
    spent: dict[str, tuple[int, int]] = {}
    log: dict[str, tuple[int, str, int]] = {}
    for n, k, m in rows():
        count, total = spent.get(k, (0, 0))
        spent[k] = (count + 1, total + n)
        log.pop(k, None) if m == 0 else log.update({k: (n, k, m)})
    return {
        "added": sorted(rows()),
        "spent": sorted((k, *values) for k, values in spent.items()),
        "log": sorted(log.values()),
    }


if __name__ == "__main__":
    region_mode, server, here = sys.argv[1:]
    run_local(build(region_mode, server, here), store=f"file:{here}/store")
