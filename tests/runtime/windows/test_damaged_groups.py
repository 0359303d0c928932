"""A damaged group of a window costs its rows where loss is allowed, and is a refusal in a region."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast as hf
from holdfast.checkpoint import own_records
from holdfast.checkpoint.change.reset_operator import reset_operator
from holdfast.checkpoint.own_records import OwnRecord
from holdfast.errors import ConfigError, DamagedError
from holdfast.language.topology import Topology
from holdfast.store.urls import open_store
from holdfast.testing import MemorySink, Rows, run_local

KEPT = [(n, n) for n in range(60)]


def joined(shelf: str, asking: list[tuple[int]], in_region: bool) -> Topology:
    """Every number asked for meets itself, if the window still has it."""
    made = Topology("windows")
    one = made.source(Rows(KEPT, "n long, at long", rows_per_step=10), name="one")
    two = made.source(Rows(asking, "m long", rows_per_step=10), name="two")
    if in_region:
        one, two = (stream.consistent(name="books") for stream in (one, two))
    pairs = one.join(
        two, {"n": "m"}, keep=hf.latest(rows=1000), other_keep=hf.latest(rows=0), name="pairs"
    ).checkpoint(form=hf.groups(rows=10))
    if not in_region:
        pairs = pairs.checkpoint(every=0.001)
    pairs.sink(MemorySink(shelf), name="out")
    return made


def damage_one(directory: Path) -> Path:
    segments = sorted(directory.glob("store/entries/pairs@*/*.seg"), key=lambda path: path.stat().st_size)
    assert len(segments) > 3, "the window is kept in several groups"
    broken = bytearray(segments[-1].read_bytes())
    broken[len(broken) // 2] ^= 1
    segments[-1].unlink()
    segments[-1].write_bytes(broken)
    return segments[-1]


def test_outside_of_regions_it_costs_its_own_rows_and_they_are_counted(shelf: str, tmp_path: Path) -> None:
    where = f"file:{tmp_path}/store"
    asking = [(-1,)] * 60
    run_local(joined(shelf, asking, in_region=False), where)
    broken = damage_one(tmp_path)
    status = run_local(joined(shelf, [*asking, *((n,) for n, _ in KEPT)], in_region=False), where)
    met = {row["n"] for row in MemorySink.rows(shelf)}
    lost = sum(element["lost_rows"] for element in status["elements"].values())
    assert 0 < lost <= 10
    assert len(met) == 60 - lost
    (event,) = [event for event in open_store(where).events() if event.kind == "rows.lost"]
    assert event.data["rows"] == lost
    assert broken.name in event.data["reason"]


def test_in_a_region_it_is_a_refusal(shelf: str, tmp_path: Path) -> None:
    where = f"file:{tmp_path}/store"
    run_local(joined(shelf, [(-1,)] * 60, in_region=True), where)
    broken = damage_one(tmp_path)
    with pytest.raises(DamagedError, match=broken.name):
        run_local(joined(shelf, [(-1,)] * 70, in_region=True), where)


def counted(shelf: str, rows: int) -> Topology:
    """How often each key came, outside of regions, with a checkpoint of its own."""
    made = Topology("counts")
    source = made.source(Rows([(n % 3,) for n in range(rows)], "k long", rows_per_step=10), name="rows")
    counts = source.aggregate("k", count=hf.count(), name="counts").checkpoint(every=0.001)
    counts.sink(MemorySink(shelf), name="out")
    return made


def test_a_damaged_map_outside_of_regions_costs_that_state_alone_and_is_counted(
    shelf: str, tmp_path: Path
) -> None:
    where = f"file:{tmp_path}/store"
    run_local(counted(shelf, 60), where)
    broken = max(tmp_path.glob("store/entries/counts@*/*.seg"), key=lambda path: path.stat().st_size)
    broken.write_bytes(broken.read_bytes()[:-1])
    MemorySink.clear(shelf)
    status = run_local(counted(shelf, 90), where)
    assert status["elements"]["rows"]["lost_rows"] == 60
    told = [event.data for event in open_store(where).events() if event.kind == "rows.lost"]
    assert [event["rows"] for event in told] == [60]
    assert broken.name in told[0]["reason"]
    newest = {row["k"]: row["count"] for row in MemorySink.rows(shelf)}
    assert newest == {0: 10, 1: 10, 2: 10}, "of the rows that came since"


def test_an_operator_outside_of_regions_can_begin_anew(shelf: str, tmp_path: Path) -> None:
    where = f"file:{tmp_path}/store"
    run_local(counted(shelf, 60), where)
    done = reset_operator(open_store(where), "counts")
    assert (done.region, done.epoch) == (None, None)
    MemorySink.clear(shelf)
    run_local(counted(shelf, 90), where)
    newest = {row["k"]: row["count"] for row in MemorySink.rows(shelf)}
    assert newest == {0: 10, 1: 10, 2: 10}, "of the rows that came since"
    run_local(counted(shelf, 120), where)
    assert {row["k"]: row["count"] for row in MemorySink.rows(shelf)} == {0: 20, 1: 20, 2: 20}
    with pytest.raises(ConfigError):
        reset_operator(open_store(where), "nobody")


@pytest.mark.parametrize("harm", ["flipped", "of another operator", "not a checkpoint"])
def test_a_damaged_record_outside_of_regions_costs_that_state_alone_and_is_told(
    shelf: str, tmp_path: Path, harm: str
) -> None:
    where = f"file:{tmp_path}/store"
    run_local(counted(shelf, 60), where)
    spoil_record(tmp_path / "store", harm)
    MemorySink.clear(shelf)
    run_local(counted(shelf, 90), where)
    assert {row["k"]: row["count"] for row in MemorySink.rows(shelf)} == {0: 10, 1: 10, 2: 10}
    (told,) = [event.data for event in open_store(where).events() if event.kind == "operator.damaged"]
    assert told["operator"] == "counts"
    assert "state.counts" in told["reason"]
    run_local(counted(shelf, 120), where)
    assert {row["k"]: row["count"] for row in MemorySink.rows(shelf)} == {0: 20, 1: 20, 2: 20}


def spoil_record(place: Path, harm: str) -> None:
    path = place / "records" / "state.counts.rec"
    if harm == "flipped":
        data = bytearray(path.read_bytes())
        data[-2] ^= 1
        path.write_bytes(data)
        return
    store = open_store(f"file:{place}")
    store.open("counts")
    store.acquire()
    other = own_records.encode(OwnRecord("other", own_records.load(store, "counts")))
    store.save_record("state.counts", other if harm == "of another operator" else b"[1]")
    store.release()
