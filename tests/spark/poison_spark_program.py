"""Child of test_spark_poison: a row that ends its Python worker on Spark. argv: directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.runtime.engines.spark.session import make_session

ROWS, BAD = 30, 17


def build(here: Path) -> hf.Topology:
    class Sums(hf.KeyedOperator):
        """Defined here: shipped to the workers by value."""

        total = hf.Value(int, default=0)

        def process(self, row: Any, key: Any) -> Any:
            if row.n == BAD:
                os._exit(7)
            self.total += row.n
            return {"k": key, "n": row.n, "total": self.total}

    topology = hf.Topology("poison")
    data = [(n, f"k{n % 3}") for n in range(ROWS)]
    rows = topology.source(hf.Rows(data, "n long, k string", rows_per_step=10), name="rows")
    sums = rows.consistent("r", period=0.5).keyed(
        "k", Sums, "k string, n long, total long", name="sums", poison=hf.Poison(after=1)
    )
    sums.sink(hf.FileSink(str(here / "out"), "parquet"), name="out")
    sums.errors.sink(hf.FileSink(str(here / "bad"), "parquet"), name="bad")
    return topology


if __name__ == "__main__":
    place = Path(sys.argv[1])
    session = make_session("poison", "local[2]")
    build(place).run(spark=session, store=f"file:{place}/store", until="available")
    os._exit(0)
