"""IBM's word count on Spark: its 20 published snapshots, without failures and with a crash in the middle."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import compare_rows

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("HOLDFAST_SHARED", ROOT.parent / "shared"))
DATA = SHARED / "data" / "ibm-cr-wordcount"
EXAMPLE = ROOT / "examples" / "wordcount" / "cr_wordcount.py"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"needs {DATA}; HOLDFAST_SHARED may name another shared/"),
    pytest.mark.skipif(not EXAMPLE.is_file(), reason=f"needs {EXAMPLE}"),
]


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("cr_wordcount_on_spark", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    shutil.copy(DATA / "loremIpsum.txt.gz", tmp_path / "in")
    return tmp_path


def check(here: Path) -> None:
    with gzip.open(DATA / "result.dat.exp.gz", "rt") as file:
        published = file.read().splitlines()
    assert len(published) == 20
    found = [
        json.loads(line)["snapshot"]
        for path in sorted((here / "out").glob("part-*.json"))
        for line in path.read_text().splitlines()
    ]
    compare_rows(published, found)


def test_without_failures_the_snapshots_are_the_published_ones(example: Any, here: Path, spark: Any) -> None:
    topology = example.build(str(here), period=0.5, lines_per_step=70)
    status = topology.run(spark, store=f"file:{here}/store", until="available")
    check(here)
    assert status["regions"]["words"]["resets"] == 0
    assert status["regions"]["words"]["epochs_published"] >= 2


def test_with_a_crash_at_the_370th_line_the_snapshots_are_the_published_ones(
    example: Any, here: Path, spark: Any
) -> None:
    crashes: list[int] = []

    class Crashing(example.Counter):
        def process(self, row: Any, port: int) -> Any:
            if self.lines == 369 and not crashes:
                crashes.append(self.lines)
                raise RuntimeError("crash at the 370th tuple")
            return super().process(row, port)

    topology = example.build(str(here), period=0.5, lines_per_step=70, counter=Crashing)
    status = topology.run(spark, store=f"file:{here}/store", until="available")
    assert crashes == [369]
    assert status["regions"]["words"]["resets"] == 1
    check(here)
