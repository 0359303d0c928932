"""Workers whose Python cannot run our tasks are found at the start, in one sentence, before anything is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

import pytest
from eager_workers import without_eager_workers

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


ALL_BUT_THE_FIRST = """
import os
try:
    os.mkdir(os.path.join(os.path.dirname(__file__), "first"))
except FileExistsError:
{}
"""


OTHERS_DIFFER = "no pyarrow on another"
CASES = {
    "no pyarrow": (HIDING.format(name="pyarrow"), "cannot import 'pyarrow'", "Install pyarrow for it"),
    "no holdfast": (HIDING.format(name="holdfast"), "cannot import 'holdfast'", "addPyFile"),
    OTHERS_DIFFER: (
        ALL_BUT_THE_FIRST.format(indent(HIDING.format(name="pyarrow"), "    ")),
        "cannot import 'pyarrow'",
        "Install pyarrow for it",
    ),
    "another version": (OTHER_VERSION, "run Python 3.10", "spark.pyspark.python"),
    "ends at once": (NOT_AT_ALL, "cannot start Python", "PYSPARK_PYTHON"),
    "no Python": (None, "there is no", "PYSPARK_PYTHON"),
}
"""Name → (what its Python does before all else, what is said, the cure)."""
HAS_ALL = "has all"


@dataclass(frozen=True)
class Tried:
    """What the runs left, each in a directory by its name, and what they were told."""

    here: Path
    told: dict[str, list[str]]


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    """One process for all: a JVM takes longer to start than the runs take. Each has a session, and so workers, of its own."""
    here = tmp_path_factory.mktemp("workers")
    given = {name: customised for name, (customised, _, _) in CASES.items()} | {HAS_ALL: ""}
    pythons = [
        str(here / "nowhere" / "python")
        if customised is None
        else python_with(here / f"python-{number}", customised)
        for number, customised in enumerate(given.values())
    ]
    done = subprocess.run(
        [sys.executable, str(PROGRAM)]
        + [
            f"{here / name}={python}={2 if name == OTHERS_DIFFER else 1}"
            for name, python in zip(given, pythons, strict=True)
        ],
        env=without_eager_workers(os.environ) | {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.strip().splitlines()[-len(given) :]
    return Tried(here, dict(zip(given, map(json.loads, lines), strict=True)))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_is_said_before_anything_is_written(name: str, tried: Tried) -> None:
    _, said, cure = CASES[name]
    told, advice = tried.told[name]
    assert told.startswith("ConfigError: ")
    assert said in told
    assert cure in advice
    assert not (tried.here / name / "store").exists()
    assert not (tried.here / name / "out").exists()


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_whose_workers_have_all_runs(tried: Tried) -> None:
    assert tried.told[HAS_ALL] == []
    files = (tried.here / HAS_ALL / "out").glob("*.json")
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["n"] for line in lines) == [1, 2]
