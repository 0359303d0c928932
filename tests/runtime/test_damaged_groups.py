"""A damaged group of a window costs its rows where loss is allowed, and is a refusal in a region."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.errors import DamagedError
from holdfast.language.topology import Topology
from holdfast.store.urls import open_store
from holdfast.testing import MemorySink, Rows, run_local

KEPT = [(n, n) for n in range(60)]


@pytest.fixture
def shelf(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.node.name
    MemorySink.clear(request.node.name)


def joined(shelf: str, asking: list[tuple[int]], in_region: bool) -> Topology:
    """Every number asked for meets itself, if the window still has it."""
    made = Topology("windows")
    one = made.source(Rows(KEPT, "n long, at long", rows_per_step=10), name="one")
    two = made.source(Rows(asking, "m long", rows_per_step=10), name="two")
    if in_region:
        one, two = (stream.consistent(name="books") for stream in (one, two))
    pairs = one.join(
        two, {"n": "m"}, window=hf.latest(rows=1000), other_window=hf.latest(rows=0), name="pairs"
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
