"""Makes a class archive for the JVMs of the tests: `python scripts/class_archive.py ARCHIVE`.

A JVM that maps the archive starts Spark in less than half of the time, for it neither reads nor checks those classes.
The archive is what one run of a small program has loaded. It appears whole or not at all: a JVM ends at once when it is
given a torn one, and goes on without when it is given none. One of another Java or Spark is ignored by the JVM.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext

import holdfast as hf


def main(archive: Path) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        made = Path(folder) / "classes.jsa"
        options = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -XX:ArchiveClassesAtExit={made} -Xlog:cds=off"
        subprocess.run(
            [sys.executable, __file__, "--run", folder],
            env={**os.environ, "SPARK_SUBMIT_OPTS": options},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        os.replace(made, archive)


def run(folder: Path) -> None:
    """Text and Parquet, expressions, keyed state, several partitions: what most programs load."""
    orders, again = folder / "orders", folder / "again"
    orders.mkdir()
    orders.joinpath("a.json").write_text(
        "".join(f'{{"id": {n}, "customer": "c{n % 7}"}}\n' for n in range(100))
    )
    first = hf.Topology("first")
    stream = first.source(
        hf.Files(str(orders), format="json", schema="id long, customer string"), name="orders"
    )
    stream = stream.consistent(name="orders", period=1).filter("id > 3").with_columns(twice="id * 2")
    stream.sink(hf.FileSink(str(again), format="parquet"), name="again")
    second = hf.Topology("second")
    stream = second.source(hf.Files(str(again), format="parquet"), name="again").consistent(
        name="again", period=1
    )
    counted = stream.aggregate("customer", n=hf.count(), largest=hf.max("twice"), name="counted")
    counted.sink(hf.FileSink(str(folder / "out"), format="json"), name="out")
    for topology in (first, second):
        topology.run(store=str(folder / f"store-{topology.name}"), until="available")
    # The JVM writes the archive when it ends, and it ends when nobody can speak to it any more.
    jvm = SparkContext._gateway.proc  # type: ignore[union-attr]
    jvm.stdin.close()
    jvm.wait()


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        run(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]).absolute())
