"""Elements that fail and restart alone (mode `independent`), run through random schedules, decided by a seed alone.

Journals and connections are the real ones (`holdfast.protocol.preserved`); elements are simulated: a step takes some batches, or
reads some rows, and sends what it took along each output, one after the other, and may fail anywhere in between. An epoch is
pinned, and published later or never. A failed element goes back to its newest published epoch.

    exactly once    an element never has a row twice or leaves one out, whoever failed
    visible         a sink shows what was published, in order, once
    alone           a failure of one element changes nothing in another
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from holdfast.chaos.checkers import InvariantBroken
from holdfast.chaos.outcome import Outcome, SimulationFailed, Teller, command_line
from holdfast.chaos.tapes import Floats
from holdfast.protocol.preserved import Journal, NotRepeated, Preserved

Rows = tuple[int, ...]


@dataclass(frozen=True)
class SimStep:
    """What a step did: rows read up to, and batches taken from each input."""

    read_to: int
    taken: tuple[int, ...]


@dataclass
class State:
    """What an element has made of its input; copied by a pin."""

    position: int = 0
    seen: tuple[Rows, ...] = ()
    """Of each input, or of the source, the rows in order."""
    staged: Rows = ()
    """Of a sink: rows that are not shown yet."""


@dataclass
class Alone:
    """One element with its ends. `source`: it reads rows; one without outputs is a sink."""

    name: str
    inputs: list[Preserved[Rows]]
    outputs: list[Preserved[Rows]] = field(default_factory=list)
    journal: Journal[SimStep] = field(default_factory=Journal)
    state: State = field(default_factory=State)
    pins: dict[int, tuple[State, tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    pending: int | None = None
    epoch: int = 0
    shown: Rows = ()

    @property
    def is_source(self) -> bool:
        return not self.inputs


class IndependentSimulator(Teller):
    """One schedule. The classes may be replaced by defective ones."""

    def __init__(
        self,
        seed: int,
        *,
        rng: Random | None = None,
        journal_class: type[Journal[SimStep]] = Journal,
        link_class: type[Preserved[Rows]] = Preserved,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.rng = rng or Floats(seed)
        self.seed = seed
        self.trace = trace
        self.rows = self.rng.randint(5, 40)
        self.failures = self.rng.randint(0, 12)
        self.outcome = Outcome(schedules=1)
        self.elements: list[Alone] = []
        for number in range(self.rng.randint(2, 6)):
            feeding = self.rng.sample(self.elements, min(len(self.elements), self.rng.randint(1, 2)))
            links = [link_class() for _ in feeding]
            for element, link in zip(feeding, links, strict=True):
                element.outputs.append(link)
            made = Alone(f"e{number}", links, journal=journal_class())
            made.state.seen = ((),) * max(1, len(links))
            self.elements.append(made)
        for element in self.elements:
            self._pin(element, 0)

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run to the end; SimulationFailed if an invariant breaks or the end is not reached."""
        try:
            for _ in range(20_000):
                if self._is_over():
                    self._judge()
                    return self.outcome
                self._turn(self.rng.choice(self.elements))
            raise InvariantBroken("no end")
        except (InvariantBroken, NotRepeated, IndexError, AssertionError, KeyError) as broken:
            raise SimulationFailed(self.seed, f"{type(broken).__name__}: {broken}", "independent") from broken

    def _turn(self, element: Alone) -> None:
        self.outcome.events += 1
        dice = self.rng.random()
        if dice < 0.06 and self.failures:
            self._fail(element)
        elif dice < 0.2:
            self._go_on_with_epoch(element)
        else:
            self._step(element)

    def _is_over(self) -> bool:
        return all(
            not e.journal.is_repeating and e.pending is None and not e.state.staged and self._is_dry(e)
            for e in self.elements
        )

    def _is_dry(self, element: Alone) -> bool:
        if element.is_source:
            return element.state.position == self.rows
        return not any(link.waiting for link in element.inputs)

    def _judge(self) -> None:
        """Every element has seen every row of every input, once, in order."""
        golden = tuple(range(self.rows))
        for element in self.elements:
            for number, seen in enumerate(element.state.seen):
                if element.is_source and seen != golden:
                    raise InvariantBroken(f"{element.name} read {seen}")
                if not element.is_source:
                    self._compare(element, number, seen)
            if not element.outputs and len(element.shown) != sum(map(len, element.state.seen)):
                raise InvariantBroken(f"{element.name} shows {element.shown}, has {element.state.seen}")

    def _compare(self, element: Alone, number: int, seen: Rows) -> None:
        link = element.inputs[number]
        sender = next(e for e in self.elements if any(link is each for each in e.outputs))
        sent = sorted(row for part in sender.state.seen for row in part)
        if sorted(seen) != sent:
            raise InvariantBroken(f"{element.name} has {sorted(seen)} of {sender.name}, which sent {sent}")

    # --- steps ------------------------------------------------------------------------------------------------------

    def _step(self, element: Alone) -> None:
        if element.journal.is_repeating:
            did = element.journal.next()
        else:
            new = self._new_step(element)
            if new is None:
                return
            did = new
            element.journal.did(did)
        self._do(element, did)

    def _new_step(self, element: Alone) -> SimStep | None:
        if element.is_source:
            read_to = min(self.rows, element.state.position + self.rng.randint(1, 4))
            return None if read_to == element.state.position else SimStep(read_to, ())
        taken = tuple(self.rng.randint(0, len(link.waiting)) for link in element.inputs)
        return SimStep(0, taken) if any(taken) else None

    def _do(self, element: Alone, did: SimStep) -> None:
        state = element.state
        if element.is_source:
            made = tuple(range(state.position, did.read_to))
            state.position, state.seen = did.read_to, (state.seen[0] + made,)
        else:
            parts = [
                tuple(row for _ in range(count) for row in link.take())
                for link, count in zip(element.inputs, did.taken, strict=True)
            ]
            state.seen = tuple(seen + part for seen, part in zip(state.seen, parts, strict=True))
            made = tuple(row for part in parts for row in part)
        if not element.outputs:
            state.staged += made
        for link in element.outputs:
            if self.failures and self.rng.random() < 0.02:
                self._fail(element)  # in the middle: some receivers have it, others do not
                return
            link.put(made, len(made))
        self.say("%s did %s", element.name, did)

    # --- epochs and failures ----------------------------------------------------------------------------------------

    def _pin(self, element: Alone, epoch: int) -> None:
        state = State(element.state.position, element.state.seen, element.state.staged)
        taken = tuple(link.taken for link in element.inputs)
        element.pins[epoch] = (state, taken, tuple(link.sent for link in element.outputs))
        element.journal.pinned(epoch)
        element.state.staged = ()  # sealed with the epoch

    def _go_on_with_epoch(self, element: Alone) -> None:
        if element.pending is None:
            if not element.journal.is_repeating:
                element.pending = max(element.pins) + 1
                self._pin(element, element.pending)
                self.outcome.epochs_begun += 1
            return
        epoch, element.pending = element.pending, None
        state, taken, sent = element.pins[epoch]
        element.epoch = epoch
        element.shown += state.staged
        element.journal.published(epoch)
        for link, number in zip(element.inputs, taken, strict=True):
            link.cover(number)
        for link, number in zip(element.outputs, sent, strict=True):
            link.sent_for_good(number)
        self.outcome.epochs_published += 1
        self.say("%s publishes %s", element.name, epoch)

    def _fail(self, element: Alone) -> None:
        self.failures -= 1
        self.outcome.faults += 1
        self.outcome.resets += 1
        state, taken, sent = element.pins[element.epoch]
        element.pending = None
        element.state = State(state.position, state.seen)
        element.journal.restored(element.epoch)
        for link, number in zip(element.inputs, taken, strict=True):
            link.take_back(number)
        for link, number in zip(element.outputs, sent, strict=True):
            link.send_again(number)
        self.say("%s goes back to %s", element.name, element.epoch)


def main(arguments: list[str] | None = None) -> int:
    """Command line: one schedule told event by event, or the figures of many."""
    about = "Run elements that restart alone through random failures."
    return command_line(
        "independent",
        about,
        lambda seed, trace, _: IndependentSimulator(seed, trace=trace).run(),
        Outcome(),
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
