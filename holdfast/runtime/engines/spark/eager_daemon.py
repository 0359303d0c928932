"""Spark's Python daemon for suites of tests: it has imported what tasks need before it forks its first worker.

    PYSPARK_SUBMIT_ARGS="--conf spark.python.daemon.module=holdfast.runtime.engines.spark.eager_daemon pyspark-shell"

Spark's own daemon imports nothing of the kind, so that no thread is there when it forks; each worker then spends a second of
work on imports. Short runs on small machines consist of little else. Libraries that start threads when they are imported
(OpenBLAS, jemalloc) come through a fork unharmed; those that user code would bring along may not, hence no session has this
daemon unless it is asked for.
"""

from __future__ import annotations

import gc
import importlib

from pyspark import daemon

IMPORTED = (
    "pyspark.worker",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "holdfast.runtime.engines.spark.stage",
)
"""The last one imports all that holdfast's tasks need; pandas comes with the first array that pyarrow makes of a list."""


def main() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()  # a worker's collector would touch, and so copy, pages that all of them share
    daemon.manager()


if __name__ == "__main__":
    main()
