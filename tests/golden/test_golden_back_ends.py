"""Stores that an earlier version wrote into SQLite, Redis and a store of objects, and an export: read, restored and finished."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import make_back_ends
import pytest
from golden_back_ends import BACK_ENDS, EXPORT, REGION, ROOT, lacking
from golden_back_ends_job import OUTPUTS, ROWS, computed, topology
from golden_content import size_of
from golden_files import copy_as_checked_out, rows_of
from store.redis_server import MISSING, program

from holdfast.checkpoint.change.transfer import import_into
from holdfast.checkpoint.look.describe import describe_epoch
from holdfast.checkpoint.look.epochs import choose_epoch, open_reader, read_manifest
from holdfast.checkpoint.look.verify import verify
from holdfast.ids import Epoch
from holdfast.store.urls import open_store
from holdfast.testing import disarm, run_local

SIZE_MAX = 500_000


def test_they_are_small_and_never_made_again() -> None:
    assert size_of(ROOT) < SIZE_MAX
    assert {path.name for path in ROOT.iterdir()} == {*BACK_ENDS, "export"}
    with pytest.raises(SystemExit, match="exists"):
        make_back_ends.main()


@pytest.mark.parametrize("kind", BACK_ENDS)
@pytest.mark.fault("U01")
def test_a_golden_store_of_another_back_end_is_restored_and_finished(kind: str, tmp_path: Path) -> None:
    if kind == "redis" and program() is None:
        pytest.skip(MISSING)
    disarm()
    root = tmp_path / "golden"
    copy_as_checked_out(ROOT / kind, root)
    before = {path: path.read_bytes() for path in (root / "output").glob("*/part-*")}
    with BACK_ENDS[kind](root) as url:
        assert lacking(url) == []
        epochs = open_reader(url).epochs(REGION)
        told = verify(open_reader(url), [(REGION, epoch) for epoch in epochs])
        assert (told.problems, told.gone, len(told.epochs)) == ((), (), len(epochs))
        status = run_local(topology(root, resumed=True), url)
        check_restored(url, status, epochs[-1])
    assert before
    assert {path: path.read_bytes() for path in before} == before, "visible files never change"
    check_output(root, computed())


@pytest.mark.parametrize("new", ["file:{}/new", "sqlite:{}/new.db"])
@pytest.mark.fault("U01")
def test_a_golden_export_is_imported_and_goes_on(new: str, tmp_path: Path) -> None:
    disarm()
    url = new.format(tmp_path)
    made = import_into(EXPORT, open_store(url))
    assert dict(made.epochs) == {REGION: 1}
    store = open_reader(url)
    held = describe_epoch(store, read_manifest(store, REGION, Epoch(1)))
    assert {each["operator"] for each in held["operators"]} >= {"orders", "register", "totals"}
    status = run_local(topology(tmp_path, resumed=True), url)
    check_restored(url, status, Epoch(1))
    behind = rows_of(tmp_path / "output" / "register")[0]["id"]
    assert 0 < behind < len(ROWS), "it goes on behind what the savepoint holds"
    assert status["elements"]["orders"]["rows"] == len(ROWS) - behind
    check_output(tmp_path, computed(behind))


def check_output(root: Path, wanted: dict[str, Any]) -> None:
    for name, compare in OUTPUTS.items():
        compare(wanted[name], rows_of(root / "output" / name), what=name)


def check_restored(url: str, status: dict[str, Any], epoch: int) -> None:
    """It went on from the newest epoch, and did not begin afresh."""
    events = [(event.kind, event.data) for event in open_reader(url).events()]
    begun = max(number for number, (kind, _) in enumerate(events) if kind == "run.started")
    (restored,) = [data for kind, data in events[begun:] if kind == "reset.done"]
    assert restored["epoch"] == epoch, json.dumps(restored)
    assert status["elements"]["orders"]["rows"] < len(ROWS)
    assert choose_epoch(open_reader(url), REGION) > epoch
