"""Stores written by every manifest version so far are read, restored and finished by this one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import make
import pytest
from golden_content import SIZE_MAX, Content, lacking, size_of
from golden_files import copy_as_checked_out, rows_of
from golden_versions import VERSIONS

from holdfast.checkpoint.look.describe import describe_epoch, first_rows
from holdfast.checkpoint.look.epochs import (
    choose_epoch,
    choose_region,
    identity_of,
    open_reader,
    read_manifest,
    regions,
    summaries,
)
from holdfast.checkpoint.look.file_printer import print_file
from holdfast.checkpoint.look.verify import verify
from holdfast.checkpoint.manifest import VERSION
from holdfast.store.base import FORMAT, Store
from holdfast.testing import disarm, run_local

HERE = Path(__file__).resolve().parent

every_store = pytest.mark.parametrize("name", VERSIONS)


def reader(root: Path) -> Store:
    return open_reader(f"file:{root / 'store'}")


def versions_in(root: Path) -> set[int]:
    """As the manifests themselves say."""
    store = reader(root)
    heads = [store.manifest(region, epoch) for region in regions(store) for epoch in store.epochs(region)]
    return {int(data.split(b" ", 2)[1]) for data in heads}


# --- which there are --------------------------------------------------------------------------------------------------


def test_every_manifest_version_has_a_golden_store() -> None:
    assert {path.parent.parent for path in HERE.glob("*/store/identity")} == {
        HERE / name for name in VERSIONS
    }
    assert {name: versions_in(HERE / name) for name in VERSIONS} == {
        name: {version.MANIFEST} for name, version in VERSIONS.items()
    }
    assert sorted(version.MANIFEST for version in VERSIONS.values()) == list(range(1, VERSION + 1)), (
        "make the store of the present version before that changes: see make.py"
    )


def test_the_present_format_of_stores_has_a_golden_store() -> None:
    assert FORMAT in {identity_of(reader(HERE / name)).format for name in VERSIONS}


@every_store
def test_a_golden_store_is_small(name: str) -> None:
    assert size_of(HERE / name) < SIZE_MAX


def test_a_golden_store_is_never_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="exists"):
        make.main()
    monkeypatch.setattr(make, "VERSION", VERSION + 1)
    with pytest.raises(SystemExit, match=f"no job for manifest version {VERSION + 1}"):
        make.main()


# --- what they hold ---------------------------------------------------------------------------------------------------

CONTENT: Content = VERSIONS["manifest-2"].CONTENT


def test_the_store_of_manifest_2_has_all_kinds_of_state() -> None:
    assert lacking(HERE / "manifest-2", CONTENT) == []


@pytest.mark.parametrize(
    "field",
    [
        "keyed",
        "variables",
        "groups",
        "joins",
        "timers",
        "own_variables",
        "own_keyed",
        "own_paced",
        "positions",
    ],
)
def test_what_a_store_lacks_is_told(field: str) -> None:
    other = {"groups": "totals", "joins": "totals", "timers": "totals", "own_paced": "visits"}
    name = other.get(field, "paid")
    (told,) = lacking(HERE / "manifest-2", replace(CONTENT, **{field: (name,)}))
    assert told.startswith(f"{name}: ")


def test_a_savepoint_that_is_not_there_is_told() -> None:
    (told,) = lacking(HERE / "manifest-2", replace(CONTENT, savepoint="another"))
    assert "another" in told


def test_the_worked_example_of_the_manifest_page_is_the_golden_store_of_format_1() -> None:
    path = HERE / "format-1" / "store" / "epochs" / "books" / "000000000004.manifest"
    header = path.read_text().splitlines()[1]
    assert header in (HERE.parents[1] / "docs" / "formats" / "manifest.md").read_text()


# --- tools ------------------------------------------------------------------------------------------------------------


@every_store
def test_tools_list_show_and_verify_a_golden_store(name: str) -> None:
    store = reader(HERE / name)
    chosen = [(region, epoch) for region in regions(store) for epoch in store.epochs(region)]
    listed = [(each.region, each.epoch) for region in regions(store) for each in summaries(store, region)]
    assert listed == chosen
    for region, epoch in chosen:
        manifest = read_manifest(store, region, epoch)
        shown = describe_epoch(store, manifest)
        assert {each["operator"] for each in shown["operators"]} == set(manifest.operators())
        for operator, share in manifest.operators().items():
            assert describe_epoch(store, manifest, operator)["operators"]
            if any(share.segments):
                assert any(table.num_rows for table in first_rows(store, manifest, operator, 3).values())
    found = verify(store, chosen)
    assert (found.problems, found.gone) == ((), ())
    assert len(found.epochs) == len(chosen)


@every_store
def test_every_file_of_a_golden_store_can_be_printed(name: str) -> None:
    for path in (HERE / name / "store").rglob("*"):
        if path.is_file():
            assert print_file(path).file == str(path)


# --- going on ---------------------------------------------------------------------------------------------------------


@every_store
def test_a_golden_store_is_restored_and_finished(name: str, tmp_path: Path) -> None:
    disarm()
    root, version = tmp_path / "golden", VERSIONS[name]
    copy_as_checked_out(HERE / name, root)
    before = {path: path.read_bytes() for path in (root / "output").glob("*/part-*")}
    assert before
    status = run_local(version.topology(root, resumed=True), f"file:{root / 'store'}")
    check_output(version, root, json.loads((HERE / name / "expected.json").read_text()))
    assert {path: path.read_bytes() for path in before} == before, "visible files never change"
    check_restored(root, status, newest(HERE / name))
    assert verify(reader(root), [("books", newest(root))]).problems == ()
    assert versions_in(root) >= {VERSION}


def newest(root: Path) -> int:
    store = reader(root)
    return choose_epoch(store, choose_region(store, None))


def check_output(version: Any, root: Path, expected: dict[str, Any]) -> None:
    """The stored expectation is not believed either."""
    computed = version.computed(root)
    assert computed.keys() == expected.keys() == version.OUTPUTS.keys()
    for name, compare in version.OUTPUTS.items():
        found = rows_of(root / "output" / name)
        compare(expected[name], found, what=f"{name}, as expected then")
        compare(computed[name], found, what=f"{name}, by the input")


def check_restored(root: Path, status: dict[str, Any], epoch: int) -> None:
    """It went on from the epoch that was published and not yet visible, and did not begin afresh."""
    events = [(event.kind, event.data) for event in reader(root).events()]
    begun = max(number for number, (kind, _) in enumerate(events) if kind == "run.started")
    (restored,) = [data for kind, data in events[begun:] if kind == "reset.done"]
    assert restored["epoch"] == epoch
    assert status["elements"]["orders"]["rows"] < len(rows_of(root / "input", "**/*.json"))
    assert all(element["lost_rows"] == 0 for element in status["elements"].values())
    assert newest(root) > epoch
