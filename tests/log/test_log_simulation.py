"""Writer and reader machines in a small world of a disk, a memory and crashes: every interleaving of small cases, thousands of
random larger ones. Rows are numbers; what a writer appends is known beforehand, so that each reader can be judged."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from holdfast.log.format.frame import NO_EPOCH, NO_TIME, Frame, Kind
from holdfast.log.machines.partition_state import PartitionState
from holdfast.log.machines.reader_machine import Facts, FromDisk, FromMemory, ReaderMachine, Trimmed, Wait
from holdfast.log.machines.writer_machine import Behind, Entry, Phase, Stored, UnderWay, WriterMachine

LOG = bytes(16)


def frame_of(entry: Entry) -> Frame:
    return Frame(
        entry.kind, LOG, 0, entry.position, entry.rows, 1, entry.writer, entry.sequence, 0, entry.epoch,
        NO_TIME, NO_TIME, NO_TIME, 0, 0, 0,
    )  # fmt: skip


@dataclass
class SimReader:
    machine: ReaderMachine
    start: int
    committed: bool
    action: FromDisk | FromMemory | None = None
    seen: list[tuple[int, str]] = field(default_factory=list)
    trimmed: bool = False


@dataclass
class World:
    """A partition. Frames on disk are (frame, payload); those behind `durable` may get lost in a crash."""

    plan: list[tuple[str, int, int, int]]
    """What is to be appended: (writer, sequence, rows, epoch); epoch with rows -1: a seal; -2: a withdrawal behind it."""
    readers: list[SimReader]
    window: int = 2
    memory_rows: int = 3
    faults: int = 1
    trims: int = 0
    disk: list[tuple[Frame, str]] = field(default_factory=list)
    durable: int = 0
    submitted: int = 0
    low: int = 0
    memory_from: int = 0
    acked: list[str] = field(default_factory=list)
    state: PartitionState = field(default_factory=PartitionState)
    machine: WriterMachine = field(init=False)
    written: bool = False
    payloads: dict[int, str] = field(default_factory=dict)
    group: tuple[Entry, ...] = ()
    tickets: dict[int, int] = field(default_factory=dict)
    """ticket → place in the plan"""
    confirmed: set[int] = field(default_factory=set)
    lost: list[int] = field(default_factory=list)
    """Places in the plan whose appends failed, as long as the writer has not heard of it."""

    def __post_init__(self) -> None:
        self.machine = WriterMachine(self.state)

    # --- what may happen next ---
    def moves(self) -> Iterator[str]:
        if self.submitted < len(self.plan) and self.machine.outstanding("w") < self.window:
            yield "submit"
        if not self.group and not self.machine.idle:
            yield "take"
        if self.group and not self.written:
            yield "write"
            if self.faults:
                yield "no space"
        if self.group and self.written:
            yield "sync"
        if self.lost:
            yield "tell"
        if self.faults:
            yield from (f"crash {kept}" for kept in range(len(self.disk) - self.durable + 1))
        if self.trims and self.low < self.state.committed:
            yield "trim"
        for number, reader in enumerate(self.readers):
            if not reader.trimmed:
                yield f"look {number}" if reader.action is None else f"read {number}"

    def move(self, what: str) -> None:
        name, _, number = what.partition(" ")
        if what == "no space":
            self.fail()
        elif name == "crash":
            self.crash(int(number))
        elif name in ("look", "read"):
            getattr(self, name)(self.readers[int(number)])
        else:
            getattr(self, name)()

    def submit(self) -> None:
        writer, sequence, rows, epoch = self.plan[self.submitted]
        kind = {-1: Kind.SEAL, -2: Kind.WITHDRAW}.get(rows, Kind.ROWS)
        answer = self.machine.submit(kind, writer, sequence, max(rows, 0), 1, epoch)
        if isinstance(answer, Behind):
            assert self.lost
            self.tell()
            return
        assert not self.lost or kind is Kind.WITHDRAW, "taken behind a failure"
        place = self.submitted
        self.submitted += 1
        if isinstance(answer, Stored | UnderWay):
            return
        assert isinstance(answer, Entry), answer
        self.tickets[answer.ticket] = place
        self.payloads[answer.ticket] = f"{writer}{sequence}"

    def take(self) -> None:
        self.group = self.machine.take(2)
        self.written = False

    def write(self) -> None:
        self.disk += [(frame_of(entry), self.payloads[entry.ticket]) for entry in self.group]
        self.written = True

    def sync(self) -> None:
        for entry in self.group:
            self.state.apply(frame_of(entry))
        self.durable = len(self.disk)
        for entry in self.machine.done():
            place = self.tickets[entry.ticket]
            assert not self.confirmed or max(self.confirmed) < place, "acknowledged out of order"
            self.confirmed.add(place)
        self.group = ()
        self.memory_from = max(self.memory_from, self.state.next - self.memory_rows)

    def fail(self) -> None:
        """A part of the group may have reached the file; it is cut off again."""
        self.faults -= 1
        lost = self.machine.failed()
        self.disk = self.disk[: self.durable]
        self.group = ()
        self.lost += [self.tickets[entry.ticket] for entry in lost]

    def tell(self) -> None:
        """The writer hears of its failure."""
        self.machine.told("w")
        self.submitted = min([self.submitted, *self.lost])
        self.lost = []

    def crash(self, kept: int) -> None:
        """The owner dies; of what was not durable a beginning is left. The next one looks up what is there."""
        self.faults -= 1
        lost = self.machine.failed(Phase.BROKEN)
        self.disk = self.disk[: self.durable + kept]
        self.durable = len(self.disk)
        self.state = PartitionState()
        for frame, _ in self.disk:
            self.state.apply(frame)
        self.machine = WriterMachine(self.state)
        self.memory_from = self.state.next
        self.group = ()
        self.again(lost)

    def again(self, lost: object) -> None:
        """Whoever got no acknowledgement appends again, under the same sequences."""
        places = [self.tickets[entry.ticket] for entry in lost]  # type: ignore[attr-defined]
        self.submitted = min([self.submitted, *places, *self.lost])
        self.lost = []

    def trim(self) -> None:
        self.trims -= 1
        self.low = self.state.committed

    # --- readers ---
    def look(self, reader: SimReader) -> None:
        end = self.state.committed if reader.committed else self.state.next
        memory = min(end, max(self.memory_from, self.low))
        found = reader.machine.decide(Facts(self.low, end, memory, tuple(self.state.withdrawn)))
        if isinstance(found, Trimmed):
            assert found.low == self.low
            reader.trimmed = True
        elif not isinstance(found, Wait):
            reader.action = found

    def read(self, reader: SimReader) -> None:
        action = reader.action
        reader.action = None
        assert action is not None
        if isinstance(action, FromMemory) and action.start < self.memory_from:
            return  # it has left memory: look again
        if action.start < self.low:
            return  # trimmed meanwhile
        at = action.start
        for frame, payload in self.disk[: self.durable]:
            if frame.kind is Kind.ROWS and frame.position <= at < frame.next:
                behind = min(frame.next, action.end)
                reader.seen += [(position, payload) for position in range(at, behind)]
                reader.machine.delivered(action, at, behind)
                return
        raise AssertionError(f"{action} is not on disk")

    # --- what must hold ---
    def truth(self, committed: bool) -> list[tuple[int, str]]:
        gone = {p for a, b in self.state.withdrawn for p in range(a, b)} if committed else set()
        rows = [
            (position, payload)
            for frame, payload in self.disk[: self.durable]
            for position in range(frame.position, frame.next)
        ]
        end = self.state.committed if committed else self.state.next
        return [row for row in rows if row[0] not in gone and row[0] < end]

    def check(self) -> None:
        stored = [payload for frame, payload in self.disk[: self.durable] if frame.kind is Kind.ROWS]
        assert len(stored) == len(set(stored)), f"stored twice: {stored}"
        wanted = {
            f"{w}{s}" for at, (w, s, rows, _) in enumerate(self.plan) if at in self.confirmed and rows > 0
        }
        assert wanted <= set(stored), "acknowledged, but not stored"
        order = [f"{w}{s}" for w, s, rows, _ in self.plan if rows > 0]
        assert stored == [name for name in order if name in set(stored)], "stored out of order"
        for reader in self.readers:
            if reader.committed:
                truth = [row for row in self.truth(True) if row[0] >= reader.start]
                assert reader.seen == truth[: len(reader.seen)], (reader.seen, truth)
            else:
                assert all(a[0] + 1 == b[0] for a, b in zip(reader.seen, reader.seen[1:], strict=False)) or (
                    self.state.withdrawn
                )

    def finish(self) -> None:
        """No more faults; all goes to its end."""
        self.faults = self.trims = 0
        for _ in range(1000):
            moves = [move for move in self.moves() if not move.startswith("look")]
            if not moves:
                break
            self.move(moves[0])
        assert self.submitted == len(self.plan)
        assert self.machine.idle
        for reader in self.readers:
            for _ in range(100):
                if reader.trimmed:
                    break
                self.look(reader)
                if reader.action is None:
                    break
                self.read(reader)
        self.check()
        for reader in self.readers:
            if not reader.trimmed and reader.committed:
                assert reader.seen == [row for row in self.truth(True) if row[0] >= reader.start]
                assert reader.machine.is_live


def world(plan: list[tuple[str, int, int, int]], **settings: int) -> World:
    readers = [SimReader(ReaderMachine(0), 0, True), SimReader(ReaderMachine(1), 1, True)]
    return World(plan, readers[: settings.pop("readers", 1)], **settings)  # type: ignore[arg-type]


def every_interleaving(start: World) -> int:
    """Depth first over all moves; worlds that look alike are gone through once."""
    seen: set[str] = set()
    stack = [start]
    while stack:
        here = stack.pop()
        for what in list(here.moves()):
            there = copy.deepcopy(here)
            there.move(what)
            there.check()
            key = repr((
                there.disk, there.durable, there.submitted, there.faults, there.trims, there.low, there.memory_from,
                there.group, there.written, there.lost, there.machine.phase, there.machine._queued, there.state,
                [(r.machine.position, r.action, r.trimmed) for r in there.readers],
            ))  # fmt: skip
            if key not in seen:
                seen.add(key)
                stack.append(there)
        copy.deepcopy(here).finish()
    return len(seen)


PLAIN = [("w", 1, 2, NO_EPOCH), ("w", 2, 1, NO_EPOCH), ("w", 3, 1, NO_EPOCH)]
EPOCHS = [("w", 1, 1, 1), ("w", 0, -1, 1), ("w", 2, 1, 2), ("w", 0, -2, 1), ("w", 3, 1, 2), ("w", 0, -1, 2)]


@pytest.mark.fault("N03")
def test_every_interleaving_of_a_writer_a_reader_and_a_fault() -> None:
    assert every_interleaving(world(list(PLAIN))) > 300


def test_every_interleaving_with_a_small_memory_and_a_trim() -> None:
    assert every_interleaving(world(list(PLAIN), memory_rows=1, trims=1, faults=0)) > 200


def test_every_interleaving_with_seals_and_a_withdrawal() -> None:
    assert every_interleaving(world(list(EPOCHS), faults=0, window=3)) > 100


def random_plan(dice: random.Random) -> list[tuple[str, int, int, int]]:
    plan: list[tuple[str, int, int, int]] = []
    epoch, epochs = 1, dice.random() < 0.5
    for sequence in range(1, dice.randint(3, 14)):
        plan.append(("w", sequence, dice.randint(1, 4), epoch if epochs else NO_EPOCH))
        if epochs and dice.random() < 0.4:
            plan.append(("w", 0, -1, epoch))
            epoch += 1
    if epochs:
        plan.append(("w", 0, -1, epoch))
    return plan


@pytest.mark.parametrize("block", range(4))
def test_thousands_of_random_worlds(block: int) -> None:
    for seed in range(1000 * block, 1000 * block + 1000):
        dice = random.Random(seed)
        here = world(
            random_plan(dice), readers=2, window=dice.randint(1, 5), memory_rows=dice.randint(1, 6),
            faults=dice.randint(0, 3), trims=dice.randint(0, 2),
        )  # fmt: skip
        story = []
        try:
            for _ in range(dice.randint(5, 80)):
                moves = list(here.moves())
                if not moves:
                    break
                story.append(dice.choice(moves))
                here.move(story[-1])
                here.check()
            here.finish()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {story}") from error


@pytest.mark.planted
def test_a_reader_that_skips_rows_is_caught() -> None:
    here = world(list(PLAIN), faults=0)
    while moves := [move for move in here.moves() if not move.startswith(("look", "read"))]:
        here.move(moves[0])
    here.readers[0].machine.position = 1
    with pytest.raises(AssertionError):
        here.finish()


@pytest.mark.planted
def test_a_writer_that_forgets_its_sequences_is_caught() -> None:
    here = world(list(PLAIN), faults=1, window=3)
    for what in ("submit", "submit", "take", "write", "crash 2"):
        here.move(what)
    here.state.writers.clear()
    with pytest.raises(AssertionError):
        here.finish()
