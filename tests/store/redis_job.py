"""Child of test_redis_run: a keyed count over rows, its epochs in the store it is given, its output exactly once.

With a third argument it runs on that Spark master, else on the local engine.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.testing import run_local

ROOT = Path(__file__).parents[2]
ROWS = [(n, f"u{n * 7 % 23}") for n in range(400)]


def running(row: Any, state: Any) -> dict[str, Any]:
    state.rows += 1
    state.total += row.n
    return {"user": row.user, "n": row.n, "rows": state.rows, "total": state.total}


def expected() -> list[tuple[Any, ...]]:
    seen: dict[str, tuple[int, int]] = {}
    result = []
    for n, user in ROWS:
        rows, total = seen.get(user, (0, 0))
        seen[user] = (rows + 1, total + n)
        result.append((user, n, *seen[user]))
    return sorted(result)


def build(output: str, period: float) -> hf.Topology:
    topology = hf.Topology("counts")
    source = hf.Rows(ROWS, "n long, user string", rows_per_step=8 if period < 0.1 else 200)
    stream = topology.source(source, name="rows").consistent(period=period)
    values = {"rows": hf.Value(int, default=0), "total": hf.Value(int, default=0)}
    counts = stream.map_state(
        "user", running, "user string, n long, rows long, total long", values, name="counts"
    )
    counts.sink(hf.FileSink(output, "parquet"), name="out")
    return topology


def on_spark(master: str, topology: hf.Topology, store: str) -> None:
    from holdfast.runtime.engines.spark.session import make_session

    settings = {
        "spark.driver.memory": "1g",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.executorEnv.HOLDFAST_FP_LOG": os.environ["HOLDFAST_FP_LOG"],
    }
    session = make_session("counts", master, settings)
    session.sparkContext.setLogLevel("OFF")
    topology.run(session, store=store, until="available")
    session.stop()


def main(store: str, output: str, master: str = "") -> None:
    topology = build(output, 0.5 if master else 0.02)
    if master:
        on_spark(master, topology, store)
    else:
        run_local(topology, store=store)


if __name__ == "__main__":
    main(*sys.argv[1:])
