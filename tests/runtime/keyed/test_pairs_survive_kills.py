"""`zip` outside of regions: rows on their way to it are kept, so that pairs stay pairs whatever is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from killed import killed_and_finished, written
from pairs_program import ROWS, program

import holdfast as hf
from holdfast.compiler.compile import compile_graph
from holdfast.compiler.paired import keep_pairs
from holdfast.runtime.engines.local import LocalEngine
from holdfast.testing import MemorySink, arm, disarm, run_local

PROGRAM = Path(__file__).with_name("pairs_program.py")
KILLS = {
    "in a step": ["step.begin=kill@25"],
    "behind a step": ["step.end=kill@40"],
    "while an epoch is stored": ["ckpt.op.put=kill@2"],
    "again and again": ["step.begin=kill@20", "step.end=kill@15", "step.begin=kill@31"],
}


def check(rows: list[dict[str, Any]]) -> None:
    """Each row beside its own counterpart, and none is missing. Behind the region rows may come again."""
    assert {(row["id"], row["other"]) for row in rows} == {(n, n) for n in range(ROWS)}


@pytest.mark.sampled(per=["kind"])
@pytest.mark.parametrize("kind", ["by number", "by key"])
@pytest.mark.parametrize("kills", KILLS.values(), ids=KILLS)
def test_pairs_stay_pairs_after_kills(tmp_path: Path, kind: str, kills: list[str]) -> None:
    killed_and_finished(PROGRAM, tmp_path, kills, kind)
    check(written(tmp_path, "out"))


def test_pairs_stay_pairs_after_a_failed_step(tmp_path: Path) -> None:
    arm("step.begin=raise@30")
    try:
        run_local(program("by number", tmp_path), f"file:{tmp_path / 'store'}")
    finally:
        disarm()
    check(written(tmp_path, "out"))


# --- the pass -----------------------------------------------------------------------------------------------------------


def regions_of(made: hf.Topology, *, has_store: bool = True) -> dict[str, set[str]]:
    plan = compile_graph(made.graph(), LocalEngine(1).analyser(), has_store=has_store)
    return {str(region.name): {str(name) for name in region.members} for region in plan.regions}


def source(made: hf.Topology, name: str | None) -> hf.Stream:
    return made.source(hf.Rows([(1, "x")], f"{name or 'n'} long, k string"), name=name)


def test_the_region_holds_what_leads_to_the_pairs_and_ends_behind_them(tmp_path: Path) -> None:
    assert regions_of(program("by number", tmp_path)) == {"pairs-pairs": {"left", "right", "passed", "pairs"}}


def test_without_a_store_nothing_can_be_kept(tmp_path: Path) -> None:
    assert regions_of(program("by number", tmp_path), has_store=False) == {}


def test_pairs_that_share_a_source_share_a_region() -> None:
    made = hf.Topology("shared")
    a, b, c = (source(made, name) for name in "abc")
    a.zip(b, name="ab").sink(MemorySink("ab"), name="ab_out")
    b.zip(c, name="bc").sink(MemorySink("bc"), name="bc_out")
    assert regions_of(made) == {"pairs-ab": {"a", "b", "c", "ab", "bc"}}


def test_other_readers_of_the_same_sources_stay_outside() -> None:
    made = hf.Topology("readers")
    a, b = source(made, "a"), source(made, "b")
    a.zip(b, name="ab").aggregate("k", n=hf.count(), name="sums").sink(MemorySink("s"), name="sums_out")
    a.sink(MemorySink("a"), name="a_out")
    assert regions_of(made) == {"pairs-ab": {"a", "b", "ab"}}


@pytest.mark.parametrize("why", ["own checkpoint", "no name", "a region before it"])
def test_what_the_user_said_stays_as_it_is(why: str) -> None:
    made = hf.Topology("said")
    a, b = source(made, None if why == "no name" else "a"), source(made, "b")
    if why == "a region before it":
        a = a.consistent("mine").autonomous()
    pairs = a.zip(b, name="ab")
    if why == "own checkpoint":
        pairs = pairs.checkpoint(every=1.0)
    pairs.sink(MemorySink("ab"), name="out")
    assert "pairs-ab" not in regions_of(made)


def test_a_graph_without_pairs_is_not_changed() -> None:
    made = hf.Topology("plain")
    source(made, "a").sink(MemorySink("a"), name="out")
    graph = made.graph()
    assert keep_pairs(graph) is graph
