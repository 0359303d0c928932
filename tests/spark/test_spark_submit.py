"""`spark-submit` runs the program of the README, and one with an operator and a module of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from eager_workers import without_eager_workers

ROOT = Path(__file__).parents[2]
SUBMIT = Path(pyspark.__path__[0]) / "bin" / "spark-submit"
RUN = '\nshop.run(store="store", until="available")\n'
OWN = """
from prices import in_euro


class Largest(hf.KeyedOperator):
    cents = hf.Value(int, default=0)

    def process(self, row, key):
        self.cents = max(self.cents, row.cents)
        yield {"customer": key, "euro": in_euro(self.cents)}


largest = orders.keyed("customer", Largest, "customer string, euro double", name="largest")
largest.sink(hf.FileSink("largest", format="json"), name="largest_out")
"""

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def readme() -> str:
    found = re.search(r"```python\n(import holdfast.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def submit(here: Path, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    (here / "shop.py").write_text(program)
    (here / "orders").mkdir()
    orders = [("ada", 1000), ("bob", 300), ("ada", 250)]
    rows = [{"id": number, "customer": who, "cents": cents} for number, (who, cents) in enumerate(orders)]
    (here / "orders" / "a.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    around = {**without_eager_workers(os.environ), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    around["PYSPARK_DRIVER_PYTHON"] = sys.executable
    command = [SUBMIT, "--master", "local[2]", *options, "shop.py"]
    return subprocess.run(command, cwd=here, env=around, capture_output=True, text=True, timeout=200)


def written(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in place.glob("*.json") for line in file.read_text().splitlines()]


def test_spark_submit_runs_the_program_of_the_readme(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "prices.py").write_text("def in_euro(cents):\n    return cents / 100\n")
    done = submit(tmp_path, readme() + OWN + RUN, "--py-files", str(tmp_path / "more" / "prices.py"))
    assert done.returncode == 0, done.stderr[-3000:]
    found = {row["customer"]: (row["orders"], row["spent"]) for row in written(tmp_path / "out")}
    assert found == {"ada": (2, 1250), "bob": (1, 300)}
    largest = {(row["customer"], row["euro"]) for row in written(tmp_path / "largest")}
    assert largest == {("ada", 10.0), ("bob", 3.0)}
