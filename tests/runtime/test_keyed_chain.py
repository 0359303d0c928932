"""What the store has of a keyed operator: bases and deltas, whatever happens between two checkpoints."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.checkpoint.adaptive import Limits
from holdfast.checkpoint.parts import OperatorPart
from holdfast.failpoints import FaultInjected, arm, disarm
from holdfast.ids import Attempt, ElementName, Epoch, OperatorName
from holdfast.operators.aggregates.running import RunningAggregate
from holdfast.runtime.element.keyed_run import KeyedRun
from holdfast.runtime.engines.engine import KeyedTask, StepName
from holdfast.runtime.engines.local import LocalEngine
from holdfast.runtime.region.restore_budget import RestoreBudget
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.keyed.keyed_map import Version, contents
from holdfast.store.memory import MemoryStore

ROWS = pa.schema([("k", pa.int64()), ("v", pa.int64())])
SUMS = Aggregation.plan(["k"], [("total", "sum", "v")], ROWS)
LOGIC = RunningAggregate(SUMS, "changes", pa.schema([("k", pa.int64()), ("total", pa.int64())]))

ROW_BYTES = 34
"""Hash, key and a wide sum, with the bits that mark nulls."""
FILE_BYTES = 1500
"""Of a segment without rows, at most."""


class Kept:
    """A keyed operator, its store, and what it should hold."""

    def __init__(self, directory: Path, partitions: int = 2, limits: Limits | None = None) -> None:
        self.store = MemoryStore()
        self.store.open("chain")
        self.store.acquire()
        self.store.create_entry("op")
        self.directory = directory
        self.limits = limits or Limits()
        self.step_number = self.epoch = self.starts = 0
        self.model: Counter[int] = Counter()
        self.forms = ""
        self.parts: list[tuple[OperatorPart, Counter[int]]] = []
        self.start(partitions, None)

    def start(self, partitions: int, part: OperatorPart | None) -> None:
        self.starts += 1
        self.engine = LocalEngine(partitions, self.directory / f"live{self.starts}")
        budget = RestoreBudget()
        chooser = budget.chooser(OperatorName("op"), self.limits)
        self.run = KeyedRun(
            OperatorName("op"), KeyedTask(OperatorName("op"), LOGIC), self.engine, "op", chooser
        )
        self.run.restore(Epoch(0), part, self.store)

    def step(self, pairs: dict[int, int]) -> None:
        self.step_number += 1
        name = StepName(ElementName("e"), Attempt(1), self.step_number, self.epoch)
        rows = pa.table({"k": list(pairs), "v": list(pairs.values())}, schema=ROWS)
        self.run.advance(self.engine.keyed_step(self.run.task, self.run.state, {0: rows}, name).state)
        self.model.update(pairs)

    def checkpoint(self) -> OperatorPart:
        self.epoch += 1
        pinned = self.run.pin(Epoch(self.epoch))
        part = self.run.part_of(Epoch(self.epoch), pinned).part
        assert part.form is not None
        self.forms += part.form.kind[0]
        self.parts.append((part, self.model.copy()))
        return part

    def restored(self, part: OperatorPart, partitions: int | None = None) -> None:
        self.start(partitions or self.engine.partitions, part)

    def found(self) -> Counter[int]:
        tables = [contents(Version(p), SUMS) for p in self.run.state.partitions if p]
        keys = [k for table in tables for k in table.column("k").to_pylist()]
        assert len(set(keys)) == len(keys)
        totals = [v for table in tables for v in table.column(2).to_pylist()]
        return Counter(dict(zip(keys, totals, strict=True)))

    def stored_bytes(self, number: int) -> int:
        """Bytes the checkpoint of that number added to the store."""
        before = {ref.key for p in self.parts[number - 1][0].segments for ref in p} if number else set()
        refs = [ref for p in self.parts[number][0].segments for ref in p]
        return sum(ref.size for ref in refs if ref.key not in before)


@contextlib.contextmanager
def failing_upload() -> Iterator[None]:
    arm("ckpt.op.put=raise")
    try:
        yield
    finally:
        disarm()


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_a_large_state_with_small_changes_is_stored_as_deltas(kept: Kept) -> None:
    kept.step(dict.fromkeys(range(20000), 1))
    for epoch in range(60):
        for step in range(3):
            kept.step({(epoch * 97 + step * 31 + k) % 20_000: 1 for k in range(60)})
        kept.checkpoint()
    assert kept.forms.startswith("bdbddbddddbdddddddd")
    assert kept.forms.count("b") <= 6
    for number, form in enumerate(kept.forms):
        if form == "d":
            assert kept.stored_bytes(number) < 180 * ROW_BYTES + 2 * FILE_BYTES
    kept.restored(kept.parts[-1][0])
    assert kept.found() == kept.model


def test_a_key_that_several_steps_change_is_stored_once_per_delta(kept: Kept) -> None:
    kept.step(dict.fromkeys(range(20000), 1))
    kept.checkpoint()
    for _ in range(40):
        kept.step(dict.fromkeys(range(500), 1))
    kept.checkpoint()
    assert kept.forms == "bd"
    assert kept.stored_bytes(1) < 500 * ROW_BYTES + 2 * FILE_BYTES


def test_merges_of_live_segments_store_nothing(kept: Kept) -> None:
    kept.step(dict.fromkeys(range(4000), 1))
    kept.checkpoint()
    before = {segment.name for p in kept.run.state.partitions for segment in p}
    for _ in range(6):
        kept.step(dict.fromkeys(range(1000), 1))
    after = {segment.name for p in kept.run.state.partitions for segment in p}
    assert not before & after, "the base itself was merged"
    kept.checkpoint()
    assert kept.forms == "bd"
    assert kept.stored_bytes(1) < 1000 * ROW_BYTES + 2 * FILE_BYTES


def test_a_state_that_changes_as_a_whole_is_stored_as_bases(kept: Kept) -> None:
    for _ in range(9):
        kept.step(dict.fromkeys(range(3000), 1))
        kept.checkpoint()
    assert kept.forms == "bdbbbbbbb"
    assert not any(log.segments for log in kept.run._changes), "nothing is logged that nobody will store"


def test_changes_that_outgrow_the_state_are_not_kept(kept: Kept) -> None:
    kept.step(dict.fromkeys(range(1000), 1))
    kept.checkpoint()
    for _ in range(60):
        kept.step(dict.fromkeys(range(1000), 1))
    assert not any(log.segments for log in kept.run._changes)
    kept.checkpoint()
    assert kept.forms == "bb"


def test_a_restored_run_goes_on_with_the_chain(kept: Kept) -> None:
    kept.step(dict.fromkeys(range(20000), 1))
    for _ in range(4):
        kept.step(dict.fromkeys(range(50), 1))
        kept.checkpoint()
    kept.restored(kept.parts[-1][0])
    kept.step({7: 100})
    kept.checkpoint()
    assert kept.forms == "bdbdd"
    assert kept.stored_bytes(4) < 3000
    kept.restored(kept.parts[-1][0])
    assert kept.found() == kept.model


def test_an_upload_that_fails_loses_no_change(kept: Kept) -> None:
    kept.step(dict.fromkeys(range(20000), 1))
    kept.checkpoint()
    kept.step({1: 10})
    with failing_upload(), pytest.raises(FaultInjected):
        kept.checkpoint()
    kept.step({2: 10})
    kept.restored(kept.checkpoint())
    assert kept.found() == kept.model


def test_a_long_chain_becomes_few_runs_when_it_is_restored(tmp_path: Path) -> None:
    kept = Kept(tmp_path, limits=Limits(first=64, ratio=None))
    kept.step(dict.fromkeys(range(5000), 1))
    for n in range(40):
        kept.step({n: 1, n + 1: 1})
        kept.checkpoint()
    assert kept.forms == "b" + 39 * "d"
    kept.restored(kept.parts[-1][0])
    assert max(len(segments) for segments in kept.run.state.partitions) <= 6
    assert kept.found() == kept.model


@pytest.mark.parametrize("seed", range(12))
def test_every_checkpoint_restores_what_was_there_whatever_came_between(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    kept = Kept(tmp_path, rng.choice([1, 2, 3]), Limits(probe_after=3))
    for _ in range(60):
        match rng.choices(["step", "checkpoint", "fail", "restore", "rescale"], [10, 5, 1, 1, 0.5])[0]:
            case "step":
                span = rng.choice([10, 400, 4000])
                kept.step({rng.randrange(span): rng.randrange(9) for _ in range(rng.choice([1, 30, 900]))})
            case "checkpoint":
                kept.checkpoint()
            case "fail":
                with failing_upload(), contextlib.suppress(FaultInjected):
                    kept.checkpoint()
            case what if kept.parts:
                part, model = rng.choice(kept.parts)
                kept.model = model.copy()
                kept.restored(part, rng.choice([1, 2, 3]) if what == "rescale" else None)
                assert kept.found() == kept.model, f"seed {seed}"
    for part, model in kept.parts:
        kept.restored(part, len(part.segments))
        assert kept.found() == model, f"seed {seed}"
