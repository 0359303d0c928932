"""What best effort means, judged apart from the machines and accounts: from where rows really are.

    at most once    a row is in a sink once, unless it came along a region
    never too few   for each sink, rows that can no longer reach it <= rows that are counted for it
    hardly too many rows that are counted for it <= places in which rows for it were destroyed
                    + rows of one step of each element on the way, for each failed step, and once for each end of a run

A row *reached* a sink if it is there and every operator with state on its way still has it. A row that was destroyed in
two places (in a queue, and in the state of an operator that it had passed) may count twice. Where that cannot be, in
*plain* sinks, the number of destroyed places must be the number of missing rows: the two are found in different ways.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.chaos.checkers import InvariantBroken
from holdfast.chaos.mixed.graph import Element, MixedGraph, Wire
from holdfast.ids import ConnectionId, OperatorName
from holdfast.protocol.accounts import Sinks

if TYPE_CHECKING:
    from holdfast.chaos.mixed.connection import SimConnection
    from holdfast.chaos.mixed.element import AutonomousElement
    from holdfast.chaos.mixed.region import RegionElement


@dataclass(frozen=True, slots=True)
class Settled:
    """Figures of one sink when a run began or ended."""

    missing: int
    counted: int
    destroyed: int
    allowed: int


class MixedCheckers:
    """Judges one schedule over all its runs. `look_at` tells it where rows are in the run that goes on."""

    def __init__(self, graph: MixedGraph) -> None:
        self._graph = graph
        self.shown: dict[OperatorName, int] = {s: 0 for e in graph.elements for s, _ in e.sinks}
        self._destroyed: Counter[OperatorName] = Counter()
        self._allowed: Counter[OperatorName] = Counter()
        self._outside: dict[int, AutonomousElement] = {}
        self._inside: dict[int, RegionElement] = {}
        self._connections: Mapping[ConnectionId, SimConnection] = {}
        self._settled = dict.fromkeys(self.shown, Settled(0, 0, 0, 0))
        self.is_changed = False  # something was destroyed since the last judgement
        self.still_coming = False

    def look_at(
        self,
        outside: dict[int, AutonomousElement],
        inside: dict[int, RegionElement],
        connections: Mapping[ConnectionId, SimConnection],
    ) -> None:
        self._outside, self._inside, self._connections = outside, inside, connections

    # --- at most once -------------------------------------------------------------------------------------------

    def writes(self, element: Element, sink: OperatorName, rows: int) -> None:
        again = self.shown[sink] & rows & element.once
        if again:
            raise InvariantBroken(f"{again.bit_count()} rows are in {sink} a second time")
        self.shown[sink] |= rows

    def shows(self, element: Element, sink: OperatorName, rows: int) -> None:
        """A sink of the region shows an epoch."""
        if self.shown[sink] & ~rows:
            raise InvariantBroken(f"{sink} takes rows back that it has shown")
        self.shown[sink] = rows

    # --- what is allowed to count without being gone ------------------------------------------------------------

    def may_overcount(self, sinks: Sinks, rows: int) -> None:
        for sink in sinks:
            self._allowed[sink] += rows

    def run_ends(self) -> None:
        """Nobody knows how far the steps under way came."""
        for element in self._outside.values():
            held = 0 if element.step is None else element.step.held
            self.may_overcount(element.plan.reach, max(held, element.saved_rows))

    # --- places in which rows are destroyed ---------------------------------------------------------------------

    @contextmanager
    def destroying(self) -> Iterator[None]:
        """Whatever is gone afterwards, and was there before, is destroyed."""
        before = self._copies()
        yield
        before.subtract(self._copies())
        self._destroyed.update(before)
        self.is_changed = True

    def _copies(self) -> Counter[OperatorName]:
        """For each sink, how many rows wait, are in steps or in states on their way to it."""
        copies: Counter[OperatorName] = Counter()
        for inside in self._inside.values():
            for wire in inside.plan.inputs:
                if not wire.is_link:
                    taken = inside.state & (self._graph.elements[wire.source].rows << wire.shift)
                    self._add(copies, inside.plan.reach, self._waiting(wire) + taken.bit_count())
        for element in self._outside.values():
            for wire in element.plan.inputs:
                self._add(copies, element.plan.reach, self._waiting(wire))
            self._add_work(copies, element)
        return copies

    def _add(self, copies: Counter[OperatorName], sinks: Sinks, rows: int) -> None:
        if rows:
            for sink in sinks:
                copies[sink] += rows

    def _waiting(self, wire: Wire) -> int:
        connection = self._connections[wire.id]
        return connection.sent - connection.taken

    def _add_work(self, copies: Counter[OperatorName], element: AutonomousElement) -> None:
        plan, step = element.plan, element.step
        if step is not None:
            rows = (step.rows if step.is_saved else step.rows & ~step.slice).bit_count()
            if step.stage <= 1:
                self._add(copies, tuple(sink for sink, _ in plan.sinks), rows)
            for wire in plan.outputs[max(0, step.stage - 2) :]:
                self._add(copies, self._graph.reach_of_wire[wire.id], rows)
        for op in plan.operators:
            self._add(copies, plan.reach_of[op], element.safe[op].bit_count() + element.again[op])

    # --- what is missing ----------------------------------------------------------------------------------------

    def missing(self) -> dict[OperatorName, int]:
        """For each sink, rows that can no longer reach it."""
        kept: list[int] = []  # per element, rows that every operator with state on their way still has
        coming: list[int] = []  # per element, rows that will still come
        missing: dict[OperatorName, int] = {}
        for plan in self._graph.elements:
            here, more = self._arriving(plan, kept, coming)
            kept.append(here)
            coming.append(more)
            for sink, after in plan.sinks:
                gone = plan.rows & ~(self._arrived(plan, sink, after, here) | more)
                missing[sink] = self._fold(gone).bit_count()
        self.still_coming = any(coming)
        return missing

    def _arriving(self, plan: Element, kept: list[int], coming: list[int]) -> tuple[int, int]:
        here = plan.own
        inside = self._inside.get(plan.number)
        more = plan.own & ~inside.state if inside else self._outside[plan.number].unread
        for wire in plan.inputs:
            via = kept[wire.source]
            sender = self._outside.get(wire.source)
            if sender is not None:
                for op in sender.plan.operators[: wire.after]:
                    via &= sender.states[op]
            if wire.is_link:
                waiting = self._inside[wire.source].state & via
            else:
                waiting = self._connections[wire.id].waiting & via
            if sender is not None and sender.step is not None and not self._is_handed(sender, wire):
                waiting |= sender.step.rows & kept[wire.source]
            here |= via << wire.shift
            more |= (waiting | coming[wire.source]) << wire.shift
        return here, more & ~inside.state if inside else more

    def _is_handed(self, sender: AutonomousElement, wire: Wire) -> bool:
        assert sender.step is not None
        return sender.plan.outputs.index(wire) < sender.step.stage - 2

    def _arrived(self, plan: Element, sink: OperatorName, after: int, here: int) -> int:
        if plan.in_region:
            return self._inside[plan.number].state & here
        element = self._outside[plan.number]
        rows = self.shown[sink]
        for op in plan.operators[:after]:
            rows &= element.states[op]
        if element.step is not None and element.step.stage <= 1:
            rows |= element.step.rows
        return rows & here

    def _fold(self, rows: int) -> int:
        """Rows of all lanes, each once."""
        lane = (1 << self._graph.width) - 1
        folded = 0
        while rows:
            folded |= rows & lane
            rows >>= self._graph.width
        return folded

    # --- judgement ----------------------------------------------------------------------------------------------

    def judge(self, counted: Mapping[OperatorName, int], *, is_settled: bool) -> None:
        """`is_settled`: nothing is under way, so what is counted too much can be judged as well."""
        for sink, missing in self.missing().items():
            count = counted.get(sink, 0)
            before = self._settled[sink]
            if count - missing < before.counted - before.missing:
                raise InvariantBroken(
                    f"{sink}: {missing} rows are missing, {count} are counted; before {before}"
                )
            if is_settled:
                now = Settled(missing, count, self._destroyed[sink], self._allowed[sink])
                self._judge_settled(sink, before, now)
                self._settled[sink] = now

    def _judge_settled(self, sink: OperatorName, before: Settled, now: Settled) -> None:
        most = now.destroyed - before.destroyed + now.allowed - before.allowed
        if now.counted - before.counted > most:
            raise InvariantBroken(
                f"{sink}: at most {most} rows more should be counted; before {before}, now {now}"
            )
        if sink in self._graph.plain_sinks and now.destroyed != now.missing:
            raise InvariantBroken(
                f"{sink}: {now.missing} rows are missing, but {now.destroyed} were destroyed"
            )

    def ended(self, counted: Mapping[OperatorName, int]) -> None:
        """The input was read to its end."""
        self.judge(counted, is_settled=True)
        if self.still_coming:
            raise InvariantBroken("everything has ended, but rows are still on their way")
        for inside in self._inside.values():
            for sink, _ in inside.plan.sinks:
                if self.shown[sink] != inside.state:
                    raise InvariantBroken(f"{sink} does not show all that its element has")
