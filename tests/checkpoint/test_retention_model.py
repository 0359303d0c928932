"""Retention against a model: thousands of random lives of a store, with collections that are killed in the middle.

The model knows of each epoch what it needs, and decides by its own few lines which epochs must be there after a
collection that came to its end. Whatever happens in between, no published epoch may miss a piece.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

import fabricated
import pytest
from fabricated import ENTRY, REGION
from sampling import Extent

from holdfast import failpoints
from holdfast.checkpoint.retention import Collector, Retention
from holdfast.checkpoint.savepoints import Savepoints
from holdfast.ids import Epoch
from holdfast.store import memory
from holdfast.store.memory import MemoryStore

SCHEDULES, SAMPLED = 1500, 600
STEPS = 22
POINTS = ("gc.list", "gc.select", "gc.pieces", "gc.delete")


@dataclass
class World:
    """A store, the collector of the process that owns it, and what the model expects."""

    chance: random.Random
    store: MemoryStore = field(default_factory=MemoryStore)
    needs: dict[int, set[str]] = field(default_factory=dict)
    walls: dict[int, float] = field(default_factory=dict)
    named: dict[str, int] = field(default_factory=dict)
    now: float = 1000.0
    next_epoch: int = 1
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.retention = Retention(self.chance.randint(1, 4), self.chance.choice([None, None, 5.0, 20.0]))
        self.store.open("t")
        self.store.acquire()
        self.restart()

    def restart(self) -> None:
        """A new process: it knows nothing."""
        self.collector = Collector(self.store, REGION, self.retention)
        self.savepoints = Savepoints(self.store, REGION)

    # --- what may happen ---

    def publish(self) -> None:
        epoch, self.next_epoch = self.next_epoch, self.next_epoch + self.chance.randint(1, 3)
        base = self.chance.choice(list(self.needs.values())) if self.needs else set()
        kept = {piece for piece in sorted(base) if self.chance.random() < 0.6}
        self.needs[epoch] = kept | {f"e{epoch}-{n}" for n in range(self.chance.randint(1, 3))}
        self.walls[epoch] = self.now
        fabricated.publish(self.store, epoch, self.needs[epoch], self.now)

    def abandon(self) -> None:
        """An epoch that never came about: its pieces are there, and a reset follows."""
        fabricated.put(self.store, {f"e{self.next_epoch}-half{self.chance.randint(0, 2)}"})
        self.next_epoch += 1
        self.collector.sweep_next()

    def name(self) -> None:
        if self.needs:
            name, epoch = f"s{self.chance.randint(0, 3)}", self.chance.choice(sorted(self.needs))
            if name not in self.named:
                self.savepoints.add(name, Epoch(epoch), self.now)
                self.named[name] = epoch

    def unname(self) -> None:
        if self.named:
            name = self.chance.choice(sorted(self.named))
            self.savepoints.remove(name)
            del self.named[name]

    def tick(self) -> None:
        self.now += self.chance.choice([0.5, 3.0, 10.0, -4.0])

    def collect(self) -> None:
        self.collector.collect(self.now)
        newest = sorted(self.needs)[-self.retention.keep :]
        for epoch in list(self.needs):
            young = self.retention.keep_for_s
            is_young = young is not None and self.now - self.walls[epoch] < young
            if epoch not in newest and epoch not in self.named.values() and not is_young:
                del self.needs[epoch]
        assert [int(e) for e in self.store.epochs(REGION)] == sorted(self.needs)
        there = set(self.store.keys(ENTRY)) if self.store.has_entry(ENTRY) else set()
        assert there == set().union(*self.needs.values()), "what nobody needs is still there"

    def collect_and_die(self) -> None:
        """Or fail in place: the same object may have to go on."""
        point = f"{self.chance.choice(POINTS)}=raise@{self.chance.randint(1, 4)}"
        self.story.append(point)
        failpoints.arm(point)
        try:
            self.collector.collect(self.now)
        except failpoints.FaultInjected:
            if self.chance.random() < 0.6:
                self.restart()
        finally:
            failpoints.disarm()
        published = {int(e) for e in self.store.epochs(REGION)}
        self.needs = {epoch: needed for epoch, needed in self.needs.items() if epoch in published}

    # --- what must hold ---

    def check(self) -> None:
        published = {int(e) for e in self.store.epochs(REGION)}
        assert published == set(self.needs)
        there = set(self.store.keys(ENTRY)) if self.store.has_entry(ENTRY) else set()
        for epoch, needed in self.needs.items():
            assert needed <= there, f"epoch {epoch} misses {needed - there}"
        assert set(self.named.values()) <= published, "a savepoint lost its epoch"
        if self.walls:
            assert max(self.walls) in published, "the newest epoch is gone"


ACTIONS = (
    [World.publish] * 6
    + [World.collect] * 3
    + [World.collect_and_die] * 4
    + [World.abandon, World.name, World.name, World.unname, World.tick, World.tick, World.restart]
)


def live(seed: int) -> int:
    """One life; returns the number of collections that were broken off."""
    chance = random.Random(seed)
    world = World(chance)
    try:
        for _ in range(STEPS):
            action = chance.choice(ACTIONS)
            world.story.append(action.__name__)
            action(world)
            world.check()
        if world.needs:
            world.restart()
            world.collect()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}; {world.story}") from error
    finally:
        memory.forget(world.store.name)
    return sum("=raise" in line for line in world.story)


@pytest.mark.fault("S15", "S17", "O05")
def test_no_schedule_loses_a_piece_that_is_needed_or_keeps_one_that_is_not(extent: Extent) -> None:
    first = int(os.environ.get("HOLDFAST_SEED", random.randrange(1 << 30)))
    print(f"seeds from {first} on")
    seeds = extent.of(range(first, first + SCHEDULES), keep=SAMPLED)
    broken_off = sum(live(seed) for seed in seeds)
    assert broken_off > len(seeds)


@pytest.mark.planted
def test_the_model_notices_a_collector_that_deletes_pieces_first(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """A planted defect: pieces before manifests. Some schedule must die in between."""

    def pieces_first(self: Collector, doomed: list[Epoch], gone: dict[str, list[str]]) -> None:
        for entry, keys in gone.items():
            failpoints.fp("gc.delete")
            self._store.delete(entry, keys)
        failpoints.fp("gc.pieces")
        for epoch in doomed:
            self._store.delete_epoch(self._region, epoch)

    monkeypatch.setattr(Collector, "_delete", pieces_first)
    for seed in range(400):
        try:
            live(seed)
        except AssertionError:
            return
    raise AssertionError("no schedule noticed")
