"""Child of test_spark_enrichment: rows beside those of a table that Spark reads, then a call for each, rows and windows to files.

`python enrichment_program.py DIRECTORY`. Everything here is shipped to the workers by value."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import holdfast as hf
from holdfast.runtime.engines.spark.session import make_session

SCHEMA = "id long, at timestamp, k string"
MADE = "id long, at timestamp, city string, twice long"


def main(here: str) -> None:
    session = make_session("enrichment", "local[2]", {"spark.driver.memory": "1g"})
    session.sparkContext.setLogLevel("OFF")

    async def ask(row: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"id": row["id"], "at": row["at"], "city": row["city"], "twice": 2 * row["id"]}

    topology = hf.Topology("enrichment")
    source = hf.Files(f"{here}/in", "parquet", SCHEMA, max_rows_per_step=60)
    rows = topology.source(source, name="in").event_time("at", delay="2 seconds")
    rows = rows.consistent(name="region", period=0.3)
    met = rows.lookup(lambda: session.read.parquet(f"{here}/cities"), "k", refresh="100 ms")
    made = met.async_map(ask, MADE, concurrency=8, name="ask")
    made.sink(hf.FileSink(f"{here}/rows", "parquet"), name="rows_out")
    windows = made.aggregate(
        "city", window=hf.tumbling(1), n=hf.count(), total=hf.sum("twice"), name="seconds"
    )
    windows.sink(hf.FileSink(f"{here}/seconds", "parquet"), name="seconds_out")
    topology.run(session, store=f"file:{here}/store", until="available", close=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1])
