"""Checkpoints in two parts: a short copy between two steps, the encoding in the background."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
from killed import killed_and_finished, written
from prepare_program import KEYS, ROWS

import holdfast as hf
from holdfast.errors import TopologyError
from holdfast.ids import Epoch, OperatorName
from holdfast.runtime.region.restore_budget import RestoreBudget
from holdfast.runtime.runs.hosted.hosted_run import HostedRun
from holdfast.runtime.runs.variable_chain import FrozenVersions, VersionedState, limits_of
from holdfast.state.variables.versions import merged
from holdfast.testing import MemorySink, Rows, arm, disarm, run_local

PROGRAM = Path(__file__).with_name("prepare_program.py")
KILLS = ("ckpt.op.put=kill@3", "drain.all_acked=kill@2", "reset.op.loaded=kill@2")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["async", "drain"])
def test_blocking_and_other_operators_in_one_region_survive_kills(mode: str, tmp_path: Path) -> None:
    killed_and_finished(PROGRAM, tmp_path, KILLS, mode)
    found = sorted(written(tmp_path, "rows"), key=lambda row: row["n"])
    assert found == [{"n": n, **dict.fromkeys("abc", n // KEYS + 1)} for n in range(ROWS)]


class Held(hf.Operator):
    words = hf.Map(str, int)
    last = hf.List(int)
    mutable = hf.Map(str, list)


def frozen(op: Held) -> tuple[VersionedState, Any]:
    state = VersionedState(RestoreBudget().chooser(OperatorName("op"), limits_of(hf.incremental())))
    state.restored(Epoch(0), op, None, None)
    return state, state.pin(Epoch(1), None)


def test_what_changes_behind_the_pin_is_not_in_it_but_in_the_next() -> None:
    op = Held()
    op.words.update({f"w{n}": n for n in range(100)})
    op.last.extend(range(50))
    op.mutable["a"] = [1]
    state, pinned = frozen(op)
    assert isinstance(pinned, FrozenVersions)
    op.words["w1"] = -1
    del op.words["w2"]
    op.last[0] = -1
    op.mutable["a"].append(2)
    taken = {name: encode() for name, encode in pinned.taken.items()}
    assert merged("map(str, int)", [taken["words"]]) == {f"w{n}": n for n in range(100)}
    assert merged("list(int)", [taken["last"]]) == list(range(50))
    assert merged("map(str, list)", [taken["mutable"]]) == {"a": [1]}
    state.part_of(Epoch(1), pinned)


def test_a_pin_that_comes_before_the_last_was_encoded_builds_on_nothing() -> None:
    op = Held()
    op.words["a"] = 1
    state, _ = frozen(op)
    op.words["b"] = 2
    again = state.pin(Epoch(2), None)
    assert isinstance(again, FrozenVersions)
    assert merged("map(str, int)", [again.taken["words"]()]) == {"a": 1, "b": 2}


class Slow:
    """Its checkpoint takes until more rows have come; not the one that only looks at the state after the first step."""

    more: ClassVar[threading.Event] = threading.Event()
    looked: ClassVar[threading.Event] = threading.Event()
    waited: ClassVar[list[bool]] = []

    def __init__(self) -> None:
        self.seen = 0

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        if self.seen > 150 and not Slow.more.is_set():
            # Not before: a reset would wait for a checkpoint that waits for rows.
            arm("drain.all_acked=raise@1")
            Slow.more.set()
        return {"n": row.n, "seen": self.seen}

    def prepare_to_checkpoint(self) -> int:
        return self.seen

    def checkpoint(self, seen: int) -> int:
        if 0 < seen <= 150 and Slow.looked.is_set():
            Slow.waited.append(Slow.more.wait(30))
        if seen:
            Slow.looked.set()
        return seen

    def reset(self, state: int) -> None:
        self.seen = state


def test_rows_are_processed_while_the_checkpoint_is_made(shelf: str) -> None:
    Slow.more.clear()
    Slow.looked.clear()
    Slow.waited.clear()
    topology = hf.Topology("slow")
    rows = topology.source(Rows([(n,) for n in range(400)], "n long", rows_per_step=1), name="rows")
    made = rows.consistent("r", period=0.01).apply(Slow, "n long, seen long", name="slow")
    made.sink(MemorySink(shelf), name="out")
    try:
        run_local(topology, f"memory:{shelf}")
    finally:
        hits = disarm()
    assert all(hits.values()), "nothing failed"
    assert Slow.waited
    assert all(Slow.waited)
    assert [(row["n"], row["seen"]) for row in MemorySink.rows(shelf)] == [(n, n + 1) for n in range(400)]


class Plain(hf.Operator):
    """Plain attributes, which every row changes in place."""

    more: ClassVar[threading.Event] = threading.Event()

    def __init__(self) -> None:
        self.seen = [0]
        self.by_tens: dict[int, list[int]] = {}

    def process(self, row: Any, port: int) -> Any:
        self.seen[0] += 1
        self.by_tens.setdefault(row.n // 10, []).append(row.n)
        if self.seen[0] > 150 and not Plain.more.is_set():
            arm("drain.all_acked=raise@1")
            Plain.more.set()
        return {"n": row.n, "seen": self.seen[0], "ten": len(self.by_tens[row.n // 10])}


def test_plain_attributes_are_encoded_while_rows_change_them(
    shelf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Plain.more.clear()
    waited: list[tuple[str, bool]] = []
    sealed = HostedRun._sealed

    def slow(self: HostedRun, *given: Any) -> bytes:
        if not Plain.more.is_set() and self.instance.seen[0]:
            waited.append((threading.current_thread().name, Plain.more.wait(30)))
        return sealed(self, *given)

    monkeypatch.setattr(HostedRun, "_sealed", slow)
    topology = hf.Topology("plain")
    rows = topology.source(Rows([(n,) for n in range(400)], "n long", rows_per_step=1), name="rows")
    made = rows.consistent("r", period=0.01).apply(Plain, "n long, seen long, ten long", name="plain")
    made.sink(MemorySink(shelf), name="out")
    try:
        run_local(topology, f"memory:{shelf}")
    finally:
        hits = disarm()
    assert hits, "a reset was wanted"
    assert all(hits.values()), "nothing failed"
    assert waited
    assert all(came and not thread.startswith("element") for thread, came in waited)
    wanted = [(n, n + 1, n % 10 + 1) for n in range(400)]
    assert [tuple(row.values()) for row in MemorySink.rows(shelf)] == wanted


def test_a_copy_without_reset_is_refused() -> None:
    class Half:
        def process(self, row: Any, port: int) -> None: ...

        def prepare_to_checkpoint(self) -> int:
            return 1

    rows = hf.Topology("t").source(Rows([(1,)], "n long"), name="rows")
    with pytest.raises(TopologyError, match="only one of"):
        rows.apply(Half, "n long", name="half")
