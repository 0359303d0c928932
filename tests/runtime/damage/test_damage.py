"""A store or an output that is not what was written is refused: by name, before anything changes.

Of each file that a restore reads `make test` flips a byte at one of three positions, drawn anew in every run; `make chaos` at
all of them."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import campaign
import forked
import pytest
from campaign import REGION, Place
from faults import fired
from sampling import Extent

from holdfast import failpoints
from holdfast.checkpoint import manifest as manifests
from holdfast.checkpoint.blobs import get_blob
from holdfast.checkpoint.change import offline
from holdfast.errors import DamagedError, InputError, MismatchError
from holdfast.ids import Epoch, RegionName
from holdfast.language.operators.aggregates import count
from holdfast.language.topology import Topology
from holdfast.runtime.telling.plan_record import PLAN
from holdfast.sinks import FileSink
from holdfast.sources import Files
from holdfast.state.values import codec
from holdfast.store.urls import open_store
from holdfast.testing import run_local

pytestmark = pytest.mark.slow

DAMAGED, MISMATCH = 7, 11
FOR_PEOPLE_OR_OWNERSHIP = (
    "store/owner/",
    "store/events/",
    "store/mail/",
    "store/tmp/",
    "store/records/plan.rec",
)
POSITIONS = ("first", "middle", "last")


# --- a run that was killed between publishing an epoch and making it visible ------------------------------------------


@pytest.fixture(scope="module")
def killed(unnamed: Place, fast_directory: Path) -> Place:
    """Its newest epoch still has to be rolled forward: restoring reads everything there is to read. It is a savepoint:
    no run goes back behind it, although nothing of it is visible yet."""
    place = copy_of(unnamed, fast_directory / "named")
    offline.name_newest(open_store(f"file:{place.store}"), "relied-on", None, 0.0)
    return place


@pytest.fixture(scope="module")
def unnamed(fast_directory: Path, orders: Path) -> Place:
    for after_epoch in (3, 2, 1, 1, 1):  # on a busy machine a run may end before its fourth epoch
        place = Place(orders, fast_directory / f"killed-{after_epoch}")
        shutil.rmtree(place.root, ignore_errors=True)
        life = campaign.live(place, fp="ckpt.epoch.published=kill", arm_after_epoch=after_epoch)
        if life.killed:
            assert life.epoch >= after_epoch
            if outputs_of_the_newest_epoch(place):  # an epoch may also hold no row at all
                return place
    raise AssertionError(
        "no run published a second epoch with rows and was killed between publish and commit"
    )


def outputs_of_the_newest_epoch(place: Place) -> list[str]:
    """Files that were prepared for the newest epoch, and that no run has made visible."""
    newest = campaign.newest_epoch(place.store)
    return sorted(
        n for n in snapshot(place) if kinds_of([n]) == {"prepared output"} and f"/e{newest:09}-" in n
    )


@pytest.fixture(scope="module")
def read_by_restore(killed: Place, fast_directory: Path) -> list[str]:
    """Every file that was there before and that a restoring driver opens, found by watching one."""
    place = copy_of(killed, fast_directory / "watched")
    there = set(snapshot(place))
    assert forked.finish(forked.start(watched_driver, place)) == 0
    campaign.check(place)
    opened = (place.root / "opened").read_text().splitlines()
    return sorted({name for name in opened if name in there and not is_for_people(name)})


def watched_driver(place: Place) -> None:
    root = f"{place.root}/"
    opened = os.open(place.root / "opened", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str) and args[0].startswith(root):
            os.write(opened, f"{args[0].removeprefix(root)}\n".encode())

    sys.addaudithook(watch)
    campaign.driver(place, {"schedule": False})


def copy_of(place: Place, root: Path) -> Place:
    shutil.copytree(place.root, root)
    return Place(place.input, root)


def is_for_people(name: str) -> bool:
    return name.startswith(FOR_PEOPLE_OR_OWNERSHIP) or "/" not in name or name.startswith("holdfast-live-")


def snapshot(place: Place) -> dict[str, bytes]:
    return {
        path.relative_to(place.root).as_posix(): path.read_bytes()
        for path in sorted(place.root.rglob("*"))
        if path.is_file() and not is_for_people(path.relative_to(place.root).as_posix())
    }


def kinds_of(names: list[str]) -> set[str]:
    """What sort of files these are."""
    found = set()
    for name in names:
        if name == "store/identity":
            found.add("identity")
        elif name.startswith("store/epochs/"):
            found.add("manifest")
        elif name.startswith("store/records/"):
            found.add("record")
        elif name.endswith((".pack", ".base")):
            found.add("pack")
        elif name.startswith("store/entries/"):
            found.add("segment")
        elif name.endswith("ledger.json"):
            found.add("sink ledger")
        elif "/.holdfast/" in name:
            found.add("prepared output")
    return found


@pytest.mark.fault("C01")
def test_the_list_of_files_read_by_a_restore_is_complete(read_by_restore: list[str], killed: Place) -> None:
    assert kinds_of(read_by_restore) == {
        "identity", "manifest", "record", "pack", "segment", "sink ledger", "prepared output",
    }  # fmt: skip
    newest = f"store/epochs/{REGION}/{campaign.newest_epoch(killed.store):012}.manifest"
    assert newest in read_by_restore


@pytest.mark.timeout(280)
@pytest.mark.fault("C01", "O06")
def test_a_flipped_byte_in_any_file_read_by_a_restore_is_refused_and_nothing_changes(
    killed: Place,
    read_by_restore: list[str],
    fast_directory: Path,
    tell: Any,
    extent: Extent,
) -> None:
    broken = []
    flips = [(name, position) for name in read_by_restore for position in POSITIONS]
    flips = extent.of(flips, per=lambda flip: flip[0])
    fired("bit flipped", len(flips))
    for number, (name, position) in enumerate(flips):
        place = copy_of(killed, fast_directory / f"flip-{number}")
        flip(place.root / name, position)
        before = snapshot(place)
        life = campaign.live(place, schedule=False)
        after = snapshot(place)
        story = f"{name} at its {position} byte: exit {life.exit}, {life.report.get('message')}"
        if life.exit not in (DAMAGED, MISMATCH):
            broken.append(f"not refused: {story}")
        elif Path(name).name not in life.report["message"]:
            broken.append(f"the file is not named: {story}")
        if changed := sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k)):
            broken.append(f"changed {changed}: {story}")
        shutil.rmtree(place.root)
    tell(
        "flipped bytes", f"{len(flips)} flips in {len(read_by_restore)} files, {len(broken)} not refused well"
    )
    assert not broken, "\n".join(broken)


def flip(path: Path, position: str) -> None:
    data = bytearray(path.read_bytes())
    assert data, f"{path} is empty"
    at = {"first": 0, "middle": len(data) // 2, "last": len(data) - 1}[position]
    data[at] ^= 0x01
    path.write_bytes(data)


def test_a_flipped_byte_in_an_epoch_that_was_never_visible_is_refused_or_costs_only_work(
    unnamed: Place, read_by_restore: list[str], fast_directory: Path, tell: Any
) -> None:
    """Without a name that relies on it, the epoch may be withdrawn: then the output is exact, and people are told."""
    outcomes = {"refused": 0, "withdrawn": 0}
    pieces = [n for n in read_by_restore if kinds_of([n]) & {"pack", "segment", "prepared output"}]
    pieces = sorted({*pieces[::3], *outputs_of_the_newest_epoch(unnamed)})
    for number, name in enumerate(pieces):
        place = copy_of(unnamed, fast_directory / f"go-back-{number}")
        flip(place.root / name, POSITIONS[number % len(POSITIONS)])
        before = snapshot(place)
        life = campaign.live(place, schedule=False)
        if life.exit == 0:
            assert [e.data["epoch"] for e in campaign.events(place, "epoch.withdrawn")], name
            campaign.check(place)
            outcomes["withdrawn"] += 1
        else:
            assert life.exit in (DAMAGED, MISMATCH), life.report
            assert snapshot(place) == before
            outcomes["refused"] += 1
        shutil.rmtree(place.root)
    tell("flipped bytes", f"in an epoch that was never visible: {outcomes}")
    assert outcomes["withdrawn"]


@pytest.mark.parametrize("what", ["identity", "manifest", "pack", "segment", "prepared output"])
@pytest.mark.fault("C01", "R04", "O06")
def test_a_missing_file_is_refused_and_nothing_changes(
    killed: Place, read_by_restore: list[str], place: Place, what: str
) -> None:
    victim = [n for n in read_by_restore if kinds_of([n]) == {what}][-1]
    place = copy_of(killed, place.root / "copy")
    if what == "manifest":  # the newest one gone is a store that is older than its output
        published = campaign.live(place, fp="sink.commit.recorded=kill@2", arm_after_epoch=0, arm_after_row=0)
        assert published.killed
        victim = f"store/epochs/{REGION}/{campaign.newest_epoch(place.store):012}.manifest"
    (place.root / victim).unlink()
    before = snapshot(place)
    life = campaign.live(place, schedule=False)
    assert life.exit in (DAMAGED, MISMATCH), life.report
    assert snapshot(place) == before


def test_a_refused_store_works_again_once_the_file_is_put_back(
    killed: Place, read_by_restore: list[str], place: Place
) -> None:
    place = copy_of(killed, place.root / "copy")
    for name in read_by_restore[::3]:
        good = (place.root / name).read_bytes()
        flip(place.root / name, "middle")
        assert campaign.live(place, schedule=False).exit in (DAMAGED, MISMATCH)
        (place.root / name).write_bytes(good)
    assert campaign.live(place, schedule=False).exit == 0
    campaign.check(place)


def test_a_damaged_record_that_is_for_people_stops_nobody_and_is_written_anew(
    killed: Place, place: Place
) -> None:
    place = copy_of(killed, place.root / "copy")
    record = place.root / "store/records/plan.rec"
    flip(record, "middle")
    assert campaign.live(place, schedule=False).exit == 0
    campaign.check(place)
    told = open_store(f"file:{place.store}").load_record(PLAN)
    assert told is not None
    assert json.loads(told)["topology"] == "campaign"


# --- stores that do not fit -------------------------------------------------------------------------------------------


@pytest.fixture
def stopped(killed: Place, place: Place) -> Place:
    """A copy of the killed run, to be restored in this process."""
    failpoints.disarm()
    return copy_of(killed, place.root / "copy")


def refused(place: Place, made: Topology, error: type[Exception], *words: str) -> None:
    before = snapshot(place)
    with pytest.raises(error) as caught:
        run_local(made, f"file:{place.store}")
    for word in words:
        assert word in str(caught.value)
    assert snapshot(place) == before


def other_topology(
    place: Place, name: str = "campaign", key: str = "user", ledger: str = "ledger"
) -> Topology:
    made = Topology(name)
    orders = made.source(
        Files(str(place.input), "json", "id long, user string, amount long", max_rows_per_step=10),
        name="orders",
    ).consistent(REGION, period=0.03)
    rows = orders.isolate().apply(
        campaign.RunningLedger, "seq long, id long, user string, total long", name=ledger
    )
    rows.sink(FileSink(str(place.ledger), "json"), name="ledger_out")
    totals = orders.aggregate(key, n=count(), name="totals")
    totals.sink(FileSink(str(place.totals), "csv"), name="totals_out")
    return made


@pytest.mark.fault("D05")
def test_the_store_of_another_topology_is_refused(stopped: Place) -> None:
    refused(stopped, other_topology(stopped, name="another"), MismatchError, str(stopped.store), "campaign")


@pytest.mark.fault("D05", "U04")
def test_a_changed_key_is_refused_naming_the_operator(stopped: Place) -> None:
    refused(stopped, other_topology(stopped, key="id"), MismatchError, "'totals'")


@pytest.mark.fault("U06")
def test_a_renamed_operator_is_refused_naming_it(stopped: Place) -> None:
    refused(stopped, other_topology(stopped, ledger="journal"), MismatchError, "'journal'")


@pytest.mark.fault("U02")
def test_a_newer_store_format_is_refused_untouched(stopped: Place) -> None:
    path = stopped.store / "identity"
    header, _, rest = path.read_bytes().partition(b"\n")
    words = header.split(b" ")
    number = next(i for i, word in enumerate(words) if word == b"1")
    words[number] = b"2"
    path.write_bytes(b" ".join(words) + b"\n" + rest)
    refused(stopped, campaign.topology(stopped), MismatchError, "identity")


@pytest.mark.fault("D06")
def test_output_of_another_job_is_refused(stopped: Place) -> None:
    shutil.rmtree(stopped.store)  # a new store gets a new job id; the old output stays
    with pytest.raises(MismatchError, match="another"):
        run_local(campaign.topology(stopped), f"file:{stopped.store}")


# --- input that changed -----------------------------------------------------------------------------------------------


@pytest.fixture
def own_input(stopped: Place, place: Place) -> Place:
    shutil.copytree(stopped.input, place.root / "input")
    moved = Place(place.root / "input", stopped.root)
    # The same run over its own copy of the input, so that it may be spoilt.
    shutil.rmtree(stopped.root)
    assert campaign.live(moved, fp="step.end=kill", arm_after_epoch=2).killed
    return moved


@pytest.mark.fault("I08")
def test_a_vanished_input_file_is_refused_by_name(own_input: Place) -> None:
    victim = file_under_way(own_input)
    victim.unlink()
    refused(own_input, campaign.topology(own_input), InputError, victim.name)


@pytest.mark.fault("I08", "O06")
def test_a_changed_input_file_is_refused_by_name(own_input: Place) -> None:
    victim = file_under_way(own_input)
    victim.write_text(victim.read_text() + '{"id": 999, "user": "u0", "amount": 1}\n')
    refused(own_input, campaign.topology(own_input), InputError, victim.name)


def file_under_way(place: Place) -> Path:
    """The file in which the newest epoch lies."""
    store = open_store(f"file:{place.store}")
    newest = manifests.decode(
        store.manifest(RegionName(REGION), Epoch(campaign.newest_epoch(place.store))), ""
    )
    position = codec.decode(get_blob(store, newest.operators()["orders"].blob))["position"]
    assert position[1] > 0, "steps do not end where files end"
    return sorted(place.input.iterdir())[position[0]]


def test_a_damaged_store_says_so_as_a_damaged_error(stopped: Place) -> None:
    newest = stopped.store / "epochs" / REGION / f"{campaign.newest_epoch(stopped.store):012}.manifest"
    flip(newest, "middle")
    refused(stopped, campaign.topology(stopped), DamagedError, newest.name)
