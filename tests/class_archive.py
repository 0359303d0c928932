"""Makes an archive of the classes that Spark loads: `python class_archive.py FILE`.

A JVM that is told of it (`-XX:SharedArchiveFile=FILE`) maps the classes instead of parsing them and starts in half the time.
One that does not find it, or finds one of another Java or other jars, starts as ever.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast as hf
from holdfast.runtime.spark.session import make_session

PATIENCE_S = 120.0


def main(archive: Path) -> None:
    made = archive.with_name(f"{archive.name}.{os.getpid()}")
    quiet = "-Xlog:disable -Xlog:all=error:stderr"  # it would name each class that cannot be archived
    os.environ["SPARK_SUBMIT_OPTS"] = (
        f"-XX:ArchiveClassesAtExit={made} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC {quiet}"
    )
    with tempfile.TemporaryDirectory() as here:
        session: Any = make_session("classes", "local[2]", {"spark.sql.codegen.wholeStage": "false"})
        jvm = session.sparkContext._gateway.proc
        load_classes(session, Path(here))
        session.stop()
        jvm.stdin.close()  # it ends, and writes the archive while it does
        jvm.wait(PATIENCE_S)
    os.replace(made, archive)


def load_classes(session: Any, here: Path) -> None:
    """Do a little of what the tests do much of: what is loaded meanwhile is what they need."""
    rows = session.range(200).selectExpr(
        "id", "id % 7 as k", "cast(id as string) as name", "current_timestamp() as at"
    )
    for format in ("json", "csv", "parquet"):
        rows.write.format(format).save(f"{here}/in-{format}")
        session.read.schema(rows.schema).format(format).load(f"{here}/in-{format}").groupBy(
            "k"
        ).count().collect()
    topology = hf.Topology("classes")
    files = hf.Files(f"{here}/in-parquet", "parquet", "id long, k long, name string", max_rows_per_step=100)
    stream = topology.source(files, name="rows").consistent(period=0.2).filter("id > 1").select("id", "k")
    stream.sink(hf.FileSink(f"{here}/out", "json"), name="out")
    counts = stream.map_arrow(as_it_is, "id long, k long").aggregate("k", n=hf.count(), name="counts")
    counts.sink(hf.FileSink(f"{here}/counts", "parquet"), name="counts_out")
    topology.run(session, store=f"file:{here}/store", until="available")


def as_it_is(table: pa.Table) -> pa.Table:
    return table


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
