"""Child of test_spark_workers: sessions of a user's own, one after the other in one JVM, with the Python that each argument
names for its workers, and so many cores. Prints a line of JSON for each: what was told, or nothing."""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

import holdfast as hf


def main(here: str, python: str, cores: str) -> None:
    os.environ["PYSPARK_PYTHON"] = python
    builder = SparkSession.builder.master(f"local[{cores}]")
    # Several cores have a Python process each, as executors have.
    session = builder.config("spark.python.use.daemon", str(cores == "1").lower()).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    topology = hf.Topology("own")
    rows = topology.source(hf.Rows([("a",), ("b",), ("a",)], "k string"), name="rows").consistent(name="r")
    counted = rows.aggregate("k", n=hf.count(), name="counted")
    counted.sink(hf.FileSink(f"{here}/out", format="json"), name="out")
    told = []
    try:
        topology.run(session, store=f"{here}/store", until="available")
    except hf.HoldfastError as error:
        told = [f"{type(error).__name__}: {error.message}", error.cure]
    print(json.dumps(told), flush=True)
    session.stop()


if __name__ == "__main__":
    for given in sys.argv[1:]:
        main(*given.split("="))
