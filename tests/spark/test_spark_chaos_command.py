"""`holdfast chaos` on Spark: workers, executors and the driver are killed, and a mixed program keeps its promises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import faults as told_faults
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PROGRAM = """
import holdfast as hf
import pyarrow.compute as pc


def doubled(table):
    return table.set_column(2, "cents", pc.multiply(table["cents"], 2))


SCHEMA = "id long, customer string, cents long"
shop = hf.Topology("shop")
orders = shop.source(hf.Files("orders", format="json", schema=SCHEMA), name="orders").consistent(name="shop", period=2)
paid = orders.filter("cents > 0").map_arrow(doubled, SCHEMA, name="doubled")
paid.sink(hf.FileSink("out", format="parquet"), name="out")
spent = paid.aggregate("customer", n=hf.count(), spent=hf.sum("cents"), name="spent")
spent.sink(hf.FileSink("spent", format="json"), name="spent_out")
clicks = shop.source(hf.Files("orders", format="json", schema=SCHEMA), name="clicks")
clicks.filter("cents % 2 = 0").sink(hf.FileSink("clicks"), name="clicks_out")
"""


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("faults", "master"), [("worker,driver", "local[2,4]"), ("executor,driver", "local-cluster[2,1,1024]")]
)
@pytest.mark.fault("P07")
def test_killed_workers_executors_and_drivers_break_no_promise(
    faults: str, master: str, tmp_path: Path
) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "shop.py").write_text(PROGRAM)
    for file in range(3):
        rows = ({"id": file * 800 + n, "customer": f"c{n % 9}", "cents": n % 50} for n in range(800))
        (tmp_path / "orders" / f"{file}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = (
        "--kills",
        "2",
        "--faults",
        faults,
        "--seed",
        "4",
        "--master",
        master,
        "--json",
        "-",
    )
    command = [str(Path(sys.executable).with_name("holdfast")), "chaos", "shop.py", *options]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=850, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads(done.stdout)
    assert {each["fault"] for each in found["faults"]} == set(faults.split(","))
    felt = {each["fault"] for each in found["faults"] if each["in_middle"]}
    assert felt, found["faults"]
    assert "executor" in felt or "executor" not in faults, found["faults"]
    assert {each["sink"]: (each["guarantee"], each["verdict"]) for each in found["sinks"]} == {
        "out": ("exactly-once", "kept"),
        "spent_out": ("exactly-once", "kept"),
        "clicks_out": ("best effort", "kept"),
    }
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir() and path.name[0] not in "._") == [
        "orders"
    ]
    told_faults.fired("fault in a trial", sum(each["in_middle"] for each in found["faults"]))
