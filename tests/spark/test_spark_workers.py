"""Workers whose Python cannot run our tasks are found at the start, in one sentence, before anything is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("own_session_program.py")
ROOT = PROGRAM.parents[2]

HIDING = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {name!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""
OTHER_VERSION = """
import sys
from pyspark import worker_util

class Other:
    version_info = (3, 10, 0)

    def __getattr__(self, name):
        return getattr(sys, name)

worker_util.sys = Other()
"""
NOT_AT_ALL = "import os; os._exit(1)"


def python_with(directory: Path, customised: str) -> str:
    """An interpreter that runs something before all else."""
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(customised)
    script = directory / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={directory}:$PYTHONPATH exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return str(script)


def run_with(python: str, here: Path) -> str:
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(here)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("customised", "said", "cure"),
    [
        (HIDING.format(name="pyarrow"), "cannot import 'pyarrow'", "Install pyarrow for it"),
        (HIDING.format(name="holdfast"), "cannot import 'holdfast'", "addPyFile"),
        (OTHER_VERSION, "run Python 3.10", "spark.pyspark.python"),
        (NOT_AT_ALL, "cannot start Python", "PYSPARK_PYTHON"),
        (None, "there is no", "PYSPARK_PYTHON"),
    ],
    ids=["no pyarrow", "no holdfast", "another version", "ends at once", "no Python"],
)
def test_it_is_said_before_anything_is_written(
    customised: str | None, said: str, cure: str, tmp_path: Path
) -> None:
    nowhere = str(tmp_path / "nowhere" / "python")
    python = nowhere if customised is None else python_with(tmp_path / "python", customised)
    told, advice = run_with(python, tmp_path).strip().splitlines()[-2:]
    assert told.startswith("ConfigError: ")
    assert said in told
    assert cure in advice
    assert not (tmp_path / "store").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_whose_workers_have_all_runs(tmp_path: Path) -> None:
    assert "ConfigError" not in run_with(python_with(tmp_path / "python", ""), tmp_path)
    lines = [line for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["n"] for line in lines) == [1, 2]
