"""Stores written by every manifest version so far are read, restored and finished by this one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import make
import pytest
from golden_content import SIZE_MAX, Content, lacking, size_of
from golden_files import copy_as_checked_out, rows_of
from golden_manifest_2_model import CLICKS_LATER
from golden_versions import VERSIONS

from holdfast.checkpoint.look.describe import describe_epoch, first_rows
from holdfast.checkpoint.look.epochs import (
    choose_epoch,
    choose_region,
    open_reader,
    read_manifest,
    regions,
    summaries,
)
from holdfast.checkpoint.look.file_printer import print_file
from holdfast.checkpoint.look.verify import verify
from holdfast.checkpoint.manifest import VERSION, decode, encode
from holdfast.ids import ConnectionId, ElementName, Epoch, RegionName
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


@pytest.mark.fault("U01")
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
    assert FORMAT in {reader(HERE / name).read_identity().format for name in VERSIONS}


@every_store
def test_a_golden_store_is_small(name: str) -> None:
    assert size_of(HERE / name) < SIZE_MAX


@pytest.mark.fault("U01")
def test_a_golden_store_is_never_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="exists"):
        make.main()
    monkeypatch.setattr(make, "VERSION", VERSION + 1)
    with pytest.raises(SystemExit, match=f"no job for manifest version {VERSION + 1}"):
        make.main()


# --- what they hold ---------------------------------------------------------------------------------------------------

ABSENT = {
    "keyed": "paid",
    "variables": "paid",
    "groups": "totals",
    "joins": "totals",
    "timers": "totals",
    "own_variables": "paid",
    "own_keyed": "paid",
    "own_paced": "visits",
    "positions": "paid",
    "accounts": "paid",
    "losing": "clicks",
    "captured": "orders.0--ledger",
    "entrances": "orders.0--echo",
    "exits": "clicks.0--hints",
}
"""What no store has, by field of Content."""

with_all_kinds = pytest.mark.parametrize(
    "name", [name for name, version in VERSIONS.items() if version.MANIFEST > 1]
)


@with_all_kinds
def test_a_golden_store_has_all_kinds_of_state(name: str) -> None:
    assert lacking(HERE / name, VERSIONS[name].CONTENT) == []


@with_all_kinds
@pytest.mark.parametrize("field", ABSENT)
def test_what_a_store_lacks_is_told(name: str, field: str) -> None:
    content: Content = VERSIONS[name].CONTENT
    wanted = replace(content, **{field: (*getattr(content, field), ABSENT[field])})
    (told,) = lacking(HERE / name, wanted)
    assert told.startswith(f"{ABSENT[field]}: ")


def test_what_a_store_may_lack_is_known_for_every_kind_of_state() -> None:
    assert {*ABSENT, "region", "savepoint"} == {each.name for each in fields(Content)}


@with_all_kinds
def test_a_savepoint_that_is_not_there_is_told(name: str) -> None:
    (told,) = lacking(HERE / name, replace(VERSIONS[name].CONTENT, savepoint="another"))
    assert "another" in told


@every_store
def test_manifests_of_every_version_become_the_same_kind_of_value(name: str) -> None:
    """Nothing that is written in them is missed, and the present version can write it again."""
    store = reader(HERE / name)
    for region in regions(store):
        for epoch in store.epochs(region):
            manifest = read_manifest(store, region, epoch)
            body = json.loads(store.manifest(region, epoch).partition(b"\n")[2])
            assert set(places_in(body)) == {piece.place for piece in manifest.pieces()}
            assert decode(encode(manifest), "a manifest") == manifest


def places_in(body: Any) -> Iterator[tuple[str, str]]:
    """Whatever looks like a reference."""
    if isinstance(body, list) and [*map(type, body)] == [str, str, int, int]:
        yield body[0], body[1]
    elif isinstance(body, dict) and {"entry", "key"} <= body.keys():
        yield body["entry"], body["key"]
    elif isinstance(body, dict | list):
        for inside in body.values() if isinstance(body, dict) else body:
            yield from places_in(inside)


@pytest.mark.parametrize(
    "path",
    [
        "format-1/store/epochs/books/000000000004.manifest",
        "manifest-3/store/epochs/books/000000000005.manifest",
    ],
)
def test_the_worked_examples_of_the_manifest_page_are_golden_stores(path: str) -> None:
    page = (HERE.parents[1] / "docs" / "formats" / "manifest.md").read_text()
    header = (HERE / path).read_text().splitlines()[1]
    assert f"tests/golden/{path}" in page
    assert f"\n{header}\n" in page


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


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of a golden store."""

    root: Path
    before: dict[Path, bytes]
    """Files that were visible when the job was killed."""
    status: dict[str, Any]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Finished]:
    @cache
    def finish(name: str) -> Finished:
        disarm()
        root = tmp_path_factory.mktemp(name) / "golden"
        copy_as_checked_out(HERE / name, root)
        before = {path: path.read_bytes() for path in (root / "output").glob("*/part-*")}
        status = run_local(VERSIONS[name].topology(root, resumed=True), f"file:{root / 'store'}")
        return Finished(root, before, status)

    return finish


@every_store
@pytest.mark.fault("U01")
def test_a_golden_store_is_restored_and_finished(name: str, finished: Callable[[str], Finished]) -> None:
    after, version = finished(name), VERSIONS[name]
    check_output(version, after.root, json.loads((HERE / name / "expected.json").read_text()))
    assert after.before
    assert {path: path.read_bytes() for path in after.before} == after.before, "visible files never change"
    check_restored(after.root, after.status, newest(HERE / name))
    check_lost(version, after.status)
    assert verify(reader(after.root), [("books", newest(after.root))]).problems == ()
    assert versions_in(after.root) >= {VERSION}


def test_batches_and_borders_go_on_where_the_epoch_has_them(finished: Callable[[str], Finished]) -> None:
    after = finished("manifest-3")
    store = reader(HERE / "manifest-3")
    manifest = read_manifest(store, RegionName("books"), choose_epoch(store, RegionName("books")))
    sent = manifest.parts[ElementName("orders")].borders[ConnectionId("orders.0--echo")]["sent"]
    captured = manifest.parts[ElementName("audit")].captured[ConnectionId("orders.0--audit")]
    left = rows_of(after.root / "input" / "orders", "*.json")[sent:]
    echo = [path for path in (after.root / "output" / "echo").glob("part-*") if path not in after.before]
    again = [json.loads(line) for path in sorted(echo) for line in path.read_text().splitlines()]
    assert again == [{"id": row["id"]} for row in left], "what left the region before does not leave again"
    rows = after.status["elements"]["audit"]["rows"]
    assert rows == len(left) + sum(batch.rows - batch.skip for batch in captured)
    now = read_manifest(reader(after.root), RegionName("books"), Epoch(newest(after.root)))
    numbers = {id: dict(of) for part in now.parts.values() for id, of in part.borders.items()}
    assert numbers == {
        "orders.0--echo": {"sent": sent + len(left)},
        "clicks.0--hints": {"taken": CLICKS_LATER, "lost": 0},
    }, "rows are numbered over all runs"


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
    assert newest(root) > epoch


def check_lost(version: Any, status: dict[str, Any]) -> None:
    """What was lost before the kill is known, and nothing else was."""
    lost = {name: of["lost_rows"] for name, of in status["elements"].items() if of["lost_rows"]}
    assert lost == getattr(version, "LOST", {})
    by_sink = {name: rows for name, rows in status["lost_rows"].items() if rows}
    assert by_sink == {f"{name}_out": rows for name, rows in lost.items()}
