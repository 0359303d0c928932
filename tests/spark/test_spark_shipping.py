"""`holdfast run` brings the program's own code to the tasks: what the program defines, modules beside it, `--py-files`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from eager_workers import without_eager_workers

from holdfast.errors import ConfigError
from holdfast.runtime.engines.spark import shipping
from holdfast.runtime.engines.spark.shipping import check_data

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from holdfast.cli.main import run; run()"]

PROGRAM = """
import json
import sys
from importlib.resources import files

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import functions as F

import holdfast as hf
from beside import doubled
from package_beside.deeper import tripled
from from_a_file import increased

IS_SMALL = F.col("n") < 6  # needs a session in the driver, and cannot be made in a task


class Sums(hf.KeyedOperator):
    total = hf.Value(int, default=0)

    def process(self, row, key):
        from from_an_archive import decreased

        beside = json.loads(files("package_beside").joinpath("data/rules.json").read_text())
        with open(SparkFiles.get("named.json")) as named:
            assert beside | json.load(named) == {"rule": 1, "name": 2}
        self.total += decreased(tripled(row.n))
        yield {"k": key, "total": self.total}


def with_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("k", pa.array([doubled(n) % 4 for n in batch["n"].to_pylist()], pa.int64()))


def most(values: pa.Array) -> int:
    return increased(max(values.to_pylist()))


topology = hf.Topology("shipped")
source = hf.Files(sys.argv[1], "json", "n long")
rows = topology.source(source, name="rows").consistent(name="r").filter(IS_SMALL)
rows.map_arrow(with_key, "n long, k long", name="keys").sink(hf.FileSink("keys", format="json"), name="keys_out")
keyed = rows.with_columns(k="2 * n % 4")
keyed.keyed("k", Sums, "k long, total long", name="sums").sink(hf.FileSink("sums", format="json"), name="sums_out")
counted = keyed.aggregate("k", window=hf.tumbling(rows=2), most=hf.udaf(most, "n", type="long"), name="most")
counted.sink(hf.FileSink("most", format="json"), name="most_out")
"""


def write_program(here: Path) -> Path:
    """A program in a directory of its own with all it needs."""
    program = here / "code" / "shipped_program.py"
    (here / "code" / "package_beside").mkdir(parents=True)
    program.write_text(PROGRAM)
    (program.parent / "beside.py").write_text("def doubled(n):\n    return 2 * n\n")
    (program.parent / "package_beside" / "__init__.py").write_text("")
    (program.parent / "package_beside" / "deeper.py").write_text("def tripled(n):\n    return 3 * n\n")
    (program.parent / "package_beside" / "data").mkdir()
    (program.parent / "package_beside" / "data" / "rules.json").write_text('{"rule": 1}')
    (here / "more").mkdir()
    (here / "more" / "named.json").write_text('{"name": 2}')
    (here / "more" / "from_a_file.py").write_text("def increased(n):\n    return n + 1\n")
    with zipfile.ZipFile(here / "more" / "archive.zip", "w") as archive:
        archive.writestr("from_an_archive.py", "def decreased(n):\n    return n - 1\n")
    (here / "in").mkdir()
    (here / "in" / "a.json").write_text("".join(f'{{"n": {n}}}\n' for n in range(1, 9)))
    return program


def run_program(here: Path, *more: str, environment: dict[str, str] | None = None) -> None:
    """Not from the program's directory: from there a worker of this machine would find modules by chance."""
    program = write_program(here)
    files = f"{here}/more/from_a_file.py,{here}/more/archive.zip"
    arguments = ["run", str(program), "--store", "store", "--until", "available", "--py-files", files]
    arguments += ["--files", f"{here}/more/named.json", *more, "--", "in"]
    done = subprocess.run(
        COMMAND + arguments,
        cwd=here,
        env=without_eager_workers(os.environ) | {"PYTHONPATH": str(ROOT)} | (environment or {}),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def check(here: Path) -> None:
    def written(name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for file in (here / name).glob("*.json") for line in file.open()]

    assert sorted((row["n"], row["k"]) for row in written("keys")) == [(n, 2 * n % 4) for n in range(1, 6)]
    # Keys are 2 n % 4: 2 for 1, 3, 5 and 0 for 2, 4; each adds 3 n - 1.
    assert {key: max(r["total"] for r in written("sums") if r["k"] == key) for key in (0, 2)} == {
        0: 16,
        2: 24,
    }
    assert sorted((row["k"], row["most"]) for row in written("most")) == [(0, 5), (2, 4)]


@pytest.mark.spark
@pytest.mark.slow
def test_tasks_find_the_code_of_the_program(tmp_path: Path) -> None:
    run_program(tmp_path, "--master", "local[2]")
    check(tmp_path)


@pytest.mark.spark
@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_executors_of_their_own_find_the_code_of_the_program(tmp_path: Path) -> None:
    """Executors are processes of their own here, and know nothing of the driver's modules."""
    settings = ("--conf", f"spark.executorEnv.PYTHONPATH={ROOT}", "--conf", "spark.executor.memory=1g")
    run_program(tmp_path, "--master", "local-cluster[1,1,1024]", *settings)
    check(tmp_path)


def test_files_that_tasks_could_not_find_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rules.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"no file"):
        check_data([f"{tmp_path}/a/rules.json,{tmp_path}/nowhere.json"])
    with pytest.raises(ConfigError, match=r"two files called rules\.json"):
        check_data([f"{tmp_path}/a/rules.json", f"{tmp_path}/b/rules.json"])
    assert check_data([f"{tmp_path}/a/rules.json, "]) == [tmp_path / "a" / "rules.json"]


def test_what_is_large_or_hidden_stays_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = write_program(tmp_path)
    monkeypatch.setattr(shipping, "LARGEST_DATA", 20)
    inside = program.parent / "package_beside"
    (inside / "model.bin").write_bytes(bytes(21))
    for hidden in (".cache", "__pycache__"):
        (inside / hidden).mkdir()
        (inside / hidden / "x.json").write_text("{}")
    found = [path.relative_to(program.parent).as_posix() for path in shipping._modules_beside(program)]
    package = [f"package_beside/{name}" for name in ("__init__.py", "data/rules.json", "deeper.py")]
    assert found == ["beside.py", "shipped_program.py", *package]
    assert "model.bin is not shipped" in caplog.text
