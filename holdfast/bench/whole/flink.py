"""Flink beside us, as its users run it: SQL, from Python, in an interpreter of its own that has `apache-flink`.

It is no part of holdfast and needs a gigabyte: `make flink` puts it into `.venv-flink`, and HOLDFAST_FLINK_PYTHON names another
place. Without it benchmarks say that they leave it out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.bench.whole.sides import Task

FLINK = "flink"
PLACE = "HOLDFAST_FLINK_PYTHON"
ROOT = Path(__file__).resolve().parents[3]
USUAL_PLACE = ROOT / ".venv-flink" / "bin" / "python"

SETTINGS: Mapping[str, str] = {
    "execution.runtime-mode": "STREAMING",
    "parallelism.default": str(os.cpu_count() or 2),
    "execution.checkpointing.interval": "2 s",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "state.backend.type": "hashmap",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "1000000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
}
"""Checkpoints as often as our epochs; sums in mini-batches and two phases, as its documentation recommends for throughput."""

QUERY = (
    "SELECT key, SUM(value), COUNT(*), MAX(value) GROUP BY key, its updates appended to files by TO_CHANGELOG"
)
SUMS = (
    "SELECT key, SUM(`value`) AS total, COUNT(*) AS n, MAX(`value`) AS top FROM arrived {where} GROUP BY key"
)


def is_there() -> bool:
    return Path(interpreter()[0]).exists()


def interpreter() -> tuple[str, dict[str, str]]:
    """The one that has Flink, and what its environment needs: this package is not installed there."""
    return os.environ.get(PLACE, str(USUAL_PLACE)), {"PYTHONPATH": str(ROOT)}


def session() -> Any:
    from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in SETTINGS.items():
        environment.get_config().set(name, value)
    return environment


def run(environment: Any, task: Task) -> dict[str, int]:
    """Until all rows are there, as rows of (key, total, n, top) without a header."""
    for statement in statements(task):
        done = environment.execute_sql(statement)
    done.wait()
    return {"steps": 0, "epochs": 0}


def statements(task: Task) -> list[str]:
    # Its csv reader cannot skip a header: it makes a row of nulls of what does not fit.
    csv = task.format == "csv"
    lenient, where = (", 'csv.ignore-parse-errors' = 'true'", "WHERE key IS NOT NULL") if csv else ("", "")
    place = "'connector' = 'filesystem', 'path' = 'file://{}', 'format' = '{}'"
    return [
        "DROP TABLE IF EXISTS arrived",
        "DROP TABLE IF EXISTS summed",
        "DROP VIEW IF EXISTS sums",
        f"CREATE TABLE arrived (key BIGINT, `value` BIGINT) WITH ({place.format(task.files, task.format)}{lenient})",
        f"CREATE TABLE summed (key BIGINT, total BIGINT, n BIGINT, top BIGINT) WITH ({place.format(task.out, 'csv')})",
        f"CREATE VIEW sums AS {SUMS.format(where=where)}",
        "INSERT INTO summed SELECT key, total, n, top FROM TO_CHANGELOG(input => TABLE sums, "
        "op_mapping => MAP['INSERT, UPDATE_AFTER', 'now'])",
    ]
