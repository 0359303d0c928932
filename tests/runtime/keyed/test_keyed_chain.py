"""What the store has of a keyed operator: bases and deltas, whatever happens between two checkpoints."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.checkpoint.adaptive import Limits
from holdfast.checkpoint.costs.restore_time import Speed
from holdfast.checkpoint.parts import Chained, OperatorPart
from holdfast.failpoints import FaultInjected, arm, disarm
from holdfast.ids import Attempt, ElementName, Epoch, OperatorName
from holdfast.operators.aggregates.running import SummedAggregate
from holdfast.runtime.engines.engine import KeyedTask, StepName
from holdfast.runtime.engines.local import LocalEngine
from holdfast.runtime.region.restore_budget import RestoreBudget
from holdfast.runtime.runs.keyed_run import KeyedRun
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.keyed.keyed_map import last_wins
from holdfast.state.keyed.segment import open_segment
from holdfast.store.memory import MemoryStore

ROWS = pa.schema([("k", pa.int64()), ("v", pa.int64())])
SUMS = Aggregation.plan(["k"], [("total", "sum", "v")], ROWS)
LOGIC = SummedAggregate(SUMS, pa.schema([("k", pa.int64()), ("total", pa.int64())]), False)

ROW_BYTES = 34
"""Hash, key and a wide sum, with the bits that mark nulls."""
FILE_BYTES = 1500
"""Of a segment without rows, at most."""


class Kept:
    """A keyed operator, its store, and what it should hold."""

    def __init__(
        self,
        directory: Path,
        partitions: int = 2,
        limits: Limits | None = None,
        speed: Speed | None = None,
    ) -> None:
        self.store = MemoryStore()
        self.store.open("chain")
        self.store.acquire()
        self.store.create_entry("op")
        self.directory = directory
        self.limits = limits or Limits()
        self.speed = speed
        self.step_number = self.epoch = self.starts = 0
        self.model: Counter[int] = Counter()
        self.forms = ""
        self.parts: list[tuple[OperatorPart, Counter[int]]] = []
        self.start(partitions, None)

    def start(self, partitions: int, part: OperatorPart | None) -> None:
        self.starts += 1
        self.engine = LocalEngine(partitions, self.directory / f"live{self.starts}")
        budget = RestoreBudget(speed=self.speed)
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
        tables = [
            last_wins(SUMS, [open_segment(segment.path) for segment in p])
            for p in self.run.state.partitions
            if p
        ]
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
    assert not kept.run._changes.segments, "nothing is logged that nobody will store"


def test_changes_that_outgrow_the_state_are_not_kept(kept: Kept) -> None:
    kept.step(dict.fromkeys(range(1000), 1))
    kept.checkpoint()
    for _ in range(60):
        kept.step(dict.fromkeys(range(1000), 1))
    assert not kept.run._changes.segments
    kept.checkpoint()
    assert kept.forms == "bb"


SLOW = Speed(fixed_s=0.0, base_s_per_mb=1.0, delta_s_per_mb=6.0, delta_s=0.0)
"""A state of 20,000 keys, 680 kB, is restored within 0.85 s, and a delta that has a tenth of them within 0.5 s."""


@pytest.fixture
def slow(tmp_path: Path) -> Kept:
    """To be restored within 2 s."""
    return Kept(tmp_path, limits=Limits(seconds=2.0), speed=SLOW)


@pytest.fixture
def joined(slow: Kept, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Epochs for which something was joined."""
    epochs: list[int] = []
    put_joined = slow.engine.put_joined

    def noted(*given: Any) -> Any:
        epochs.append(slow.epoch)
        return put_joined(*given)

    monkeypatch.setattr(slow.engine, "put_joined", noted)
    return epochs


def test_a_delta_whose_changes_alone_exceed_the_bound_is_not_even_joined(
    slow: Kept, joined: list[int]
) -> None:
    kept = slow
    kept.step(dict.fromkeys(range(20000), 1))
    for changed in (0, 10_000, 1000, 1000):
        kept.step(dict.fromkeys(range(changed), 1))
        kept.checkpoint()
    assert (kept.forms, joined) == ("bbdb", [3])
    kept.restored(kept.parts[-1][0])
    assert kept.found() == kept.model


def test_a_delta_that_turns_out_too_large_when_it_is_joined_becomes_a_base(
    slow: Kept, joined: list[int]
) -> None:
    kept = slow
    kept.step(dict.fromkeys(range(20000), 1))
    kept.checkpoint()
    for start in range(0, 8000, 2000):
        kept.step(dict.fromkeys(range(start, start + 2000), 1))
    kept.checkpoint()
    kept.step(dict.fromkeys(range(500), 1))
    kept.checkpoint()
    assert (kept.forms, joined) == ("bbd", [2, 3])
    referred = {ref.key for part, _ in kept.parts for refs in part.segments for ref in refs}
    assert set(kept.store.keys("op")) == referred, "nothing is left of what was refused"
    for part, model in kept.parts:
        assert isinstance(part.form, Chained)
        assert part.form.predicted_s <= 2.0
        kept.restored(part)
        assert kept.found() == model


def test_deltas_that_never_fit_are_joined_twice_and_then_rarely(slow: Kept, joined: list[int]) -> None:
    slow.step(dict.fromkeys(range(20000), 1))
    for epoch in range(12):
        for start in range(0, 8000, 2000) if epoch else ():
            slow.step(dict.fromkeys(range(start, start + 2000), 1))
        slow.checkpoint()
    assert (slow.forms, joined) == (12 * "b", [2, 3, 11])
    slow.restored(slow.parts[-1][0])
    assert slow.found() == slow.model


def test_a_base_with_too_many_old_rows_for_the_bound_is_joined(tmp_path: Path) -> None:
    found = {}
    for bound in (None, 1.0, 0.5):
        kept = Kept(tmp_path / f"{bound}", limits=Limits(seconds=bound, count=0), speed=SLOW)
        kept.step(dict.fromkeys(range(20000), 1))
        for start in (0, 4000, 8000):
            kept.step(dict.fromkeys(range(start, start + 4000), 1))
        kept.checkpoint()
        form = kept.parts[0][0].form
        assert isinstance(form, Chained)
        found[bound] = form.predicted_s
        kept.restored(kept.parts[0][0])
        assert kept.found() == kept.model
    assert found[None] > 1.0, "with the rows that newer ones replace"
    assert found[1.0] <= 1.0
    assert found[0.5] == found[None], "joining would not help"


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


@pytest.mark.parametrize("seed", range(18))
@pytest.mark.fault("R10", "O04")
def test_every_checkpoint_restores_what_was_there_whatever_came_between(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    within = None if seed < 12 else 0.35
    kept = Kept(tmp_path, rng.choice([1, 2, 3]), Limits(probe_after=3, seconds=within), SLOW)
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
        assert isinstance(part.form, Chained)
        assert within is None or part.form.kind == "base" or part.form.predicted_s <= within
