"""Child of test_spark_workers: a user's own session, whose workers run PYSPARK_PYTHON."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import holdfast as hf


def main(here: str) -> None:
    session = SparkSession.builder.master("local[1]").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    topology = hf.Topology("own")
    rows = topology.source(hf.Rows([("a",), ("b",), ("a",)], "k string"), name="rows").consistent(name="r")
    counted = rows.aggregate("k", n=hf.count(), name="counted")
    counted.sink(hf.FileSink(f"{here}/out", format="json"), name="out")
    try:
        topology.run(session, store=f"{here}/store", until="available")
    except hf.HoldfastError as error:
        print(f"{type(error).__name__}: {error.message}\n{error.cure}")
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1])
