"""Stores written by every format version so far are restored and finished by this one."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.store.base import FORMAT
from holdfast.testing import compare_changelog, compare_sequence, disarm, run_local

HERE = Path(__file__).resolve().parent
GOLDEN = sorted(path for path in HERE.glob("format-*") if path.is_dir())
SIZE_MAX = 200_000


def load_make() -> Any:
    spec = importlib.util.spec_from_file_location("golden_make", HERE / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["golden_make"] = module
    spec.loader.exec_module(module)
    return module


make = load_make()


def test_the_present_format_has_a_golden_store() -> None:
    assert HERE / f"format-{FORMAT}" in GOLDEN


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.name)
def test_a_golden_store_is_restored_and_finished(golden: Path, tmp_path: Path) -> None:
    disarm()
    root = tmp_path / "golden"
    copy_as_checked_out(golden, root)
    make.set_times(root / "input")
    before = {path: path.read_bytes() for path in visible(root)}
    status = run_local(make.topology(root, loose_rows=12), f"file:{root / 'store'}")
    found = {name: make.rows_of(root / "output" / name) for name in ("register", "totals", "tally")}
    expected = json.loads((golden / "expected.json").read_text())
    compare_sequence(expected["register"], found["register"], "register")
    compare_changelog(expected["totals"], found["totals"], "user", "n", "totals")
    compare_sequence(expected["tally"], found["tally"], "tally")
    check_against_input(root / "input", found)
    assert all(path.read_bytes() == data for path, data in before.items()), "visible files never change"
    assert status["elements"]["orders"]["rows"] < make.FILES * make.ROWS_PER_FILE, "it began afresh"


def copy_as_checked_out(golden: Path, root: Path) -> None:
    """Version control keeps neither empty directories nor modes."""
    for path in golden.rglob("*"):
        if path.is_file():
            target = root / path.relative_to(golden)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())


def check_against_input(input: Path, found: dict[str, list[dict[str, Any]]]) -> None:
    """The expected files are not believed either."""
    rows = [json.loads(line) for path in sorted(input.iterdir()) for line in path.read_text().splitlines()]
    assert [row["id"] for row in found["register"]] == [row["id"] for row in rows]
    assert found["register"][-1]["big"] == str(10**30 + sum(row["amount"] for row in rows))
    counts = Counter(row["user"] for row in rows)
    last = {row["user"]: row["n"] for row in sorted(found["totals"], key=lambda row: row["n"])}
    assert last == dict(counts)
    assert [row["seen"] for row in found["tally"]] == list(range(1, 13))


def visible(root: Path) -> list[Path]:
    return [path for path in (root / "output").glob("*/part-*") if path.is_file()]


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.name)
def test_a_golden_store_is_small(golden: Path) -> None:
    assert sum(path.stat().st_size for path in golden.rglob("*") if path.is_file()) < SIZE_MAX


def test_the_worked_example_of_the_manifest_page_is_the_golden_store_of_format_1() -> None:
    path = HERE / "format-1" / "store" / "epochs" / "books" / "000000000004.manifest"
    header = path.read_text().splitlines()[1]
    assert header in (HERE.parents[1] / "docs" / "formats" / "manifest.md").read_text()
