"""The switch of streams that are persisted for outages, driven in every order: rows come out once, in order, whoever dies when.

A model of both ends: a source of numbers, the switch, a log that is a list, a reader with snapshots. Nothing of what is tried is timed or threaded.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from holdfast.runtime.persisted.outage.resuming import Mark, Place, Resumed, Snapshot, resumed
from holdfast.runtime.persisted.outage.switch import Switch

BYTES_MAX = 12


@dataclass
class Frame:
    position: int
    rows: list[int]
    sources: dict[str, Any]
    mark: Mark | None


@dataclass
class World:
    """Numbers 0, 1, 2 … are to come out in order. What survives a death: the log, and published snapshots with what was put out."""

    random: random.Random
    log: list[Frame] = field(default_factory=list)
    low: int = 0
    published: list[tuple[Snapshot | None, int]] = field(default_factory=lambda: [(None, 0)])
    """Snapshots, and how many numbers had come out."""
    saved: tuple[Snapshot | None, int] | None = None
    """A savepoint."""
    run: int = 0
    in_log: int = 0
    by_memory: int = 0

    @property
    def end(self) -> int:
        return self.log[-1].position + len(self.log[-1].rows) if self.log else 0

    def start(self, at: tuple[Snapshot | None, int] | None = None) -> None:
        self.run += 1
        known, self.out = at or self.published[-1]
        if at is not None:
            self.published = [at]
        self.initial = known
        low = self.low if known is None else known.place.log
        marks, before = [], None
        for frame in self.log:
            if frame.mark is not None and frame.position >= low:
                marks.append(replace(frame.mark, before=before))
            before = frame.sources
        begun = resumed(known, self.low, self.end, before, marks)
        assert begun.at >= self.low, "what it is to read was let go"
        self.switch: Switch[list[int]] = Switch(self.run, begun, self.end, BYTES_MAX)
        self.next = (begun.sources or {"n": 0})["n"]
        self.number = begun.number
        self.seek(known)

    def seek(self, state: Snapshot | None) -> None:
        self.is_unmoved = state is self.initial
        if state is not None and state.run == self.run:
            self.place = state.place
        else:
            assert state is self.initial
            self.place = Place(self.switch.begun.at)

    # --- what may happen ---

    def write(self) -> None:
        rows = list(range(self.next, self.next + self.random.randint(0, 4)))
        self.next += len(rows)
        sources = {"n": self.next}
        if not rows:
            self.switch.touch(sources)
        elif self.switch.fits(len(rows)):
            self.switch.hold(rows, len(rows), len(rows), sources)
        else:
            wanted = self.switch.to_log()
            whole = [n for part in (*wanted.held, rows) for n in part]
            if self.random.random() < 0.2:
                self.next -= len(rows)  # it was not stored: the step is done again
                return
            self.log.append(Frame(self.end, whole, sources, wanted.mark))
            if self.random.random() < 0.1:
                self.die()
                return
            self.switch.logged(len(rows), sources)
        assert self.switch.bytes_held <= max(BYTES_MAX, 4)

    def skip_over(self) -> None:
        skip = self.switch.begun.skip
        if skip is not None and skip[0] <= self.place.log < skip[1]:
            self.place = Place(skip[1])

    def read(self) -> None:
        skip = self.switch.begun.skip
        self.skip_over()
        self.place = self.switch.caught_up(self.place)
        at = self.switch.physical(self.place)
        if at is not None:
            stop = min(self.switch.end, at + self.random.randint(1, 9))
            stop = min(stop, skip[0]) if skip is not None and at < skip[0] else stop
            rows = self.rows(at, stop)
            self.place = Place(stop) if rows else self.place
            self.in_log += len(rows)
        else:
            taken = self.switch.ahead(self.place, 6)
            if not taken:
                return
            rows = [n for each in taken for n in each.rows]
            self.place = Place(self.place.log, taken[-1].behind)
            self.by_memory += len(rows)
        self.is_unmoved = self.is_unmoved and not rows
        assert rows == list(range(self.out, self.out + len(rows))), (
            "a row is missing, doubled or out of order"
        )
        self.out += len(rows)
        number = self.switch.number(self.place)
        assert number >= self.number + len(rows), "numbers of rows grow"
        self.number = number

    def rows(self, start: int, stop: int) -> list[int]:
        found = []
        for frame in self.log:
            for at, n in enumerate(frame.rows, frame.position):
                if start <= at < stop:
                    found.append(n)
        assert len(found) == stop - start
        assert start >= self.low
        return found

    def snapshot(self) -> Snapshot:
        if self.is_unmoved and self.initial is not None:
            return self.initial
        self.skip_over()
        skip = self.switch.begun.skip
        waits = skip is not None and self.place.log < skip[0]
        sources = self.switch.begun.sources if waits else self.switch.sources_behind(self.place)
        number = self.switch.number(self.place)
        return Snapshot(self.place, self.run, sources, skip if waits else None, number)

    def publish(self) -> None:
        self.published = [*self.published[-2:], (self.snapshot(), self.out)]
        if self.random.random() < 0.1:
            self.saved = self.published[-1]
        if self.random.random() < 0.7:
            mine = [at.place for at, _ in self.published if at is not None and at.run == self.run]
            if mine:
                self.switch.release(max(mine))
            needed = [*self.published, *([self.saved] if self.saved else [])]
            self.low = max(self.low, min(0 if at is None else at.place.log for at, _ in needed))
            gone = [frame for frame in self.log if frame.position + len(frame.rows) <= self.low]
            if len(gone) < len(self.log):
                self.log = self.log[len(gone) :]

    def reset(self) -> None:
        """Who reads goes back to its newest snapshot; who writes knows nothing of it."""
        state, self.out = self.published[-1]
        self.number = 0 if state is None else state.number
        self.seek(state)

    def die(self) -> None:
        self.start()

    def go_back(self) -> None:
        """The savepoint is what a run begins with."""
        if self.saved is not None:
            self.start(self.saved)


@pytest.mark.parametrize("seed", range(60))
def test_rows_come_out_once_and_in_order_whatever_happens(seed: int) -> None:
    world = World(random.Random(seed))
    world.start()
    weights = world.random.choice([(6, 6, 2, 1, 1, 0.2), (9, 3, 1, 1, 0.3, 0.1), (5, 9, 3, 0.5, 0.5, 0.5)])
    for _ in range(800):
        act = world.random.choices(
            [world.write, world.read, world.publish, world.reset, world.die, world.go_back], weights
        )[0]
        act()
    for _ in range(2000):
        world.read()
    assert world.out == world.next
    assert world.in_log + world.by_memory >= world.out


@pytest.mark.planted
def test_the_simulation_finds_a_switch_that_forgets_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: Switch[Any]) -> Any:
        found = honest(self)
        return type(found)(found.held, None)

    honest = Switch.to_log
    monkeypatch.setattr(Switch, "to_log", forgetful)
    with pytest.raises(AssertionError):
        for seed in range(60):
            test_rows_come_out_once_and_in_order_whatever_happens(seed)


def test_a_reader_that_was_in_memory_makes_its_sources_go_back() -> None:
    known = Snapshot(Place(10, 5), 3, {"n": 15}, None, 15)
    assert resumed(known, 0, 10, {"n": 10}, []) == Resumed(10, {"n": 15}, False, None, 15)
    stored = Mark(10, 3, 4, True, {"n": 10})
    assert resumed(known, 0, 30, {"n": 34}, [stored]) == Resumed(11, {"n": 34}, True, None, 15)
    assert resumed(known, 0, 30, {"n": 34}, [Mark(10, 4, 4, True)]).sources == {"n": 15}
