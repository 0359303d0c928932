"""IBM's own fault-injection sample: its 20 published snapshots, with and without crashes in the middle of the file."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forked
import pytest

from holdfast.ids import RegionName
from holdfast.store.urls import open_store
from holdfast.testing import compare_sequence, run_local

ROOT = Path(__file__).resolve().parents[3]
SHARED = Path(os.environ.get("HOLDFAST_SHARED", ROOT.parent / "shared"))
DATA = SHARED / "data" / "ibm-cr-wordcount"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"needs {DATA}; set HOLDFAST_SHARED to its parent's parent"),
]


def load_example() -> Any:
    name = "cr_wordcount"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / "wordcount" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture
def here(fast_directory: Path, tmp_path: Path) -> Iterator[Path]:
    root = fast_directory / tmp_path.name
    (root / "in").mkdir(parents=True)
    shutil.copy(DATA / "loremIpsum.txt.gz", root / "in")
    yield root
    shutil.rmtree(root)


def published() -> list[str]:
    with gzip.open(DATA / "result.dat.exp.gz", "rt") as file:
        return file.read().splitlines()


def snapshots(here: Path) -> list[str]:
    paths = sorted((here / "out").glob("part-*.json"))
    return [json.loads(line)["snapshot"] for path in paths for line in path.read_text().splitlines()]


def run(here: Path, **operators: Any) -> dict[str, Any]:
    example = load_example()
    example.Throttled.lines_per_second = 700.0
    made = example.build(str(here), period=0.02, **operators)
    return run_local(made, f"file:{here / 'store'}")


def test_the_published_result_has_20_snapshots() -> None:
    assert len(published()) == 20


def test_without_failures_the_snapshots_are_the_published_ones(here: Path) -> None:
    status = run(here)
    compare_sequence(published(), snapshots(here))
    assert status["regions"]["words"]["epochs_published"] >= 5
    assert status["regions"]["words"]["resets"] == 0


def test_with_the_samples_own_two_crashes_the_snapshots_are_the_published_ones(here: Path) -> None:
    example = load_example()
    crashes: list[str] = []

    def crashing(base: Any, name: str, behind: int) -> type:
        class Crashing(base):
            def process(self, row: Any, port: int) -> Any:
                if self.lines == behind and name not in crashes:
                    crashes.append(name)
                    raise RuntimeError(f"crash at tuple {behind + 1}")
                return super().process(row, port)

        return Crashing

    splitter, counter = (
        crashing(example.Splitter, "splitter", 199),
        crashing(example.Counter, "counter", 369),
    )
    status = run(here, splitter=splitter, counter=counter)
    assert crashes == ["splitter", "counter"]
    assert status["regions"]["words"]["resets"] == 2
    compare_sequence(published(), snapshots(here))
    resets = [e for e in open_store(f"file:{here / 'store'}").events() if e.kind == "reset.begin"]
    assert all(reset.data["epoch"] >= 1 for reset in resets[1:]), (
        "a crash before the first epoch proves little"
    )


def wordcount_driver(here: Path) -> None:
    os.environ["TMPDIR"] = str(here)
    run(here)
    os._exit(0)


def newest(here: Path) -> int:
    try:
        epochs = open_store(f"file:{here / 'store'}").epochs(RegionName("words"))
    except Exception:
        return 0
    return int(epochs[-1]) if epochs else 0


def test_with_kills_of_the_driver_the_snapshots_are_the_published_ones(here: Path) -> None:
    seen = []
    for _ in range(3):
        before = newest(here)
        process = forked.start(wordcount_driver, here)
        patience = time.monotonic() + 30
        while newest(here) < before + 3 and process.is_alive():
            assert time.monotonic() < patience
            time.sleep(0.002)
        assert process.is_alive(), "the file was read to its end before the kill"
        os.kill(process.pid, signal.SIGKILL)
        process.join(30)
        found = snapshots(here)
        compare_sequence(published()[: len(found)], found)
        seen.append(len(found))
    assert seen[-1] < 20
    run(here)
    compare_sequence(published(), snapshots(here))
