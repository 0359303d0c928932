"""What operators outside of regions missed, told from how fast their rows came and how long they came unrecorded.

After a failure an element goes on behind the rows it had taken, with the state of an earlier checkpoint: what it took in
between is missed. It took its last rows when `taken_s` says; what arrived since waits in the sources. Two kinds of input
are different when a driver starts again:

    gone    from a source that cannot replay: what came while nobody ran is missed as well
    again   out of a region: it goes back too and sends its rows again, so nothing is missed

Nothing of this is ever asked in a region, which replays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from holdfast.checkpoint.missed_rows_estimate import Pace
from holdfast.checkpoint.own_records import OwnCheckpoint
from holdfast.clock import Clock
from holdfast.compiler.plan import Plan
from holdfast.compiler.traverse import edges, edges_into
from holdfast.ids import OperatorName
from holdfast.language.graph import SourceSpec
from holdfast.runtime.runs.keyed_run import KeyedRun

Feed = Literal["waits", "gone", "again"]
"""Where the rows of an input are that came while nobody ran."""


class Aging:
    """Of the operators of one element that become stale. Called by the element's thread."""

    def __init__(self, plan: Plan, runs: Iterable[KeyedRun], clock: Clock) -> None:
        self.taken_s: float | None = None
        """When the element last took rows, in this run or in an earlier one; None: that is not known."""
        self._clock = clock
        self._ran = False
        self._feeds = {
            run.name: feeds(plan, run.name) for run in runs if run.task.logic.had(None, {}) is not None
        }
        self._paces: dict[OperatorName, Pace] = {}

    @property
    def is_needed(self) -> bool:
        return bool(self._feeds)

    @property
    def operators(self) -> frozenset[OperatorName]:
        """Those whose checkpoints tell how fast rows come, and so have to be taken also if none do."""
        return frozenset(self._feeds)

    def took_rows(self) -> None:
        """A step begins."""
        self._ran = True
        self.taken_s = self._clock.wall()

    def missed(self, run: KeyedRun, found: OwnCheckpoint | None) -> tuple[int, ...]:
        """For each input of an operator the rows it missed since a checkpoint; empty if nobody can know."""
        if found is None or found.pace is None or run.name not in self._feeds:
            return ()
        return found.pace.missed([self._until(feed) for feed in self._feeds[run.name]])

    def _until(self, feed: Feed) -> float | None:
        if self._ran or feed == "waits":
            return self.taken_s
        return self._clock.wall() if feed == "gone" else None

    def restored(self, run: KeyedRun, found: OwnCheckpoint | None) -> bool:
        """An operator was restored to a checkpoint. True if that should be stored at once: a second restore must neither
        remove rows for the same time again, nor for that in which nobody ran."""
        had = run.had
        if had is None or run.name not in self._feeds:
            return False
        now = self._clock.wall()
        known = None if found is None else found.pace
        self._paces[run.name] = Pace.begin(now, had) if known is None else known.resumed(now, had)
        return found is not None

    def measured(self, run: KeyedRun) -> Pace | None:
        """What a checkpoint of the operator, taken now, keeps of its pace."""
        had = run.had
        if had is None or run.name not in self._paces:
            return None
        self._paces[run.name] = self._paces[run.name].looked(self._clock.wall(), had)
        return self._paces[run.name]


def feeds(plan: Plan, name: OperatorName) -> tuple[Feed, ...]:
    """For each input of an operator where its rows are that came while nobody ran; of several answers the first that
    holds: gone, again, waits."""
    return tuple(
        _feed(plan, {s.operator for s in port.streams}) for port in plan.graph.operators[name].inputs
    )


def _feed(plan: Plan, above: set[OperatorName]) -> Feed:
    entering = edges_into(edges(plan.graph))
    in_regions = {member for region in plan.regions for member in region.members}
    found: set[Feed] = set()
    seen, todo = set(above), list(above)
    while todo:
        name = todo.pop()
        spec = plan.graph.operators[name].spec
        if name in in_regions:
            found.add("again")
            continue
        if isinstance(spec, SourceSpec) and not spec.source.replayable:
            found.add("gone")
        new = {edge.source for edge in entering.get(name, ())} - seen
        seen |= new
        todo += new
    order: tuple[Feed, ...] = ("gone", "again", "waits")
    return next((feed for feed in order if feed in found), "waits")
