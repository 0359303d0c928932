"""How a run comes to its end: which parts wait for others, and which would wait in vain."""

from __future__ import annotations

from collections.abc import Mapping, Set

from holdfast.compiler.plan import Plan
from holdfast.ids import ConnectionId, ElementName, RegionName
from holdfast.runtime.element.life import OutsideLife
from holdfast.runtime.element.loop import ElementLoop
from holdfast.runtime.links.connection import Connection, Signals
from holdfast.runtime.region.region import Region


def ending_last(plan: Plan) -> frozenset[RegionName]:
    """Regions that end after what feeds them from outside has ended, so that their last epochs cover all that it sent."""
    region_of = {element.name: element.region for element in plan.elements}
    borders = [c for c in plan.connections if c.region is None]
    fed = {region for c in borders if (region := region_of[c.target]) is not None}
    return frozenset(region for region in fed if not _feeds_itself(plan, region))


def _feeds_itself(plan: Plan, region: RegionName) -> bool:
    """True if what leaves the region comes back: then it cannot wait for who feeds it."""
    inside = {element.name for element in plan.elements if element.region == region}
    leaving: dict[ElementName, set[ElementName]] = {}
    for c in plan.connections:
        if c.region != region:
            leaving.setdefault(c.source, set()).add(c.target)
    found: set[ElementName] = set()
    todo = list(inside)
    while todo:
        for after in leaving.get(todo.pop(), set()) - found:
            found.add(after)
            todo += [] if after in inside else [after]
    return bool(found & inside)


class Ending:
    """Looks at the parts of a run. Any thread may ask."""

    def __init__(
        self,
        regions: Mapping[RegionName, Region],
        loops: Mapping[ElementName, ElementLoop],
        connections: Mapping[ConnectionId, Connection],
        signals: Signals,
        bounded: bool = False,
    ) -> None:
        """`bounded`: sources that have nothing more have come to their end."""
        self._regions = regions
        self._bounded = bounded
        self._loops = loops
        self._connections = connections
        self._signals = signals

    def stands_still(self) -> bool:
        """True if a region or an element is parked and everything else has come to its end, or waits for what is parked."""
        parked = self._parked()
        groups = {region.plan.group for region in parked} - {None}
        if not (parked or self._parked_alone()):
            return False
        if not all(self._is_still(r, groups) or self._is_idle(r) for r in self._regions.values()):
            return False
        silent = self._silent()
        return all(loop.name in silent or loop.finished for loop in self._alone())

    def waits_in_vain(self, region: Region) -> bool:
        """True if a region that is to end waits only for what a parked one would have to send."""
        if region.plan.group is not None or not (self._parked() or self._parked_alone()):
            return False
        silent = self._silent()
        borders = [c for life in region.lives.values() for c in life.loop.plan.inputs if c.region is None]
        return all(self._connections[c.id].closed or c.source in silent for c in borders)

    def end_cycles(self) -> None:
        """Elements outside of regions that rest and only wait for each other have come to their end: no other would tell."""
        with self._signals.condition:
            waiting = [loop for loop in self._alone() if loop.resting and not loop.finished]
            names = {loop.name for loop in waiting}
            while any(busy := [not self._is_starved(loop, names) for loop in waiting]):
                waiting = [loop for loop, is_busy in zip(waiting, busy, strict=True) if not is_busy]
                names = {loop.name for loop in waiting}
            for connection in [c for loop in waiting for c in loop.plan.outputs if c.target in names]:
                self._connections[connection.id].close()

    def _parked(self) -> list[Region]:
        return [region for region in self._regions.values() if region.parked]

    def _parked_alone(self) -> list[ElementLoop]:
        """Elements outside of regions that take nothing, because too much was lost."""
        return [loop for loop in self._alone() if isinstance(loop.life, OutsideLife) and loop.life.is_parked]

    def _alone(self) -> list[ElementLoop]:
        return [loop for loop in self._loops.values() if isinstance(loop.life, OutsideLife)]

    def _silent(self) -> set[ElementName]:
        """Elements that send nothing any more: of parked regions, and those that only such ones could give something to do."""
        parked = self._parked_alone()
        silent = {name for region in self._parked() for name in region.lives} | {loop.name for loop in parked}
        waiting = [loop for loop in self._alone() if loop not in parked]
        while starved := [
            loop for loop in waiting if self._rests(loop, silent) or self._is_blocked(loop, silent)
        ]:
            silent.update(loop.name for loop in starved)
            waiting = [loop for loop in waiting if loop not in starved]
        return silent

    def _is_still(self, region: Region, groups: Set[RegionName | None]) -> bool:
        """True if a region is parked or over, or one of those `groups`, of which a member is parked, and cannot go on."""
        if region.parked or region.done.is_set():
            return True
        loops = [life.loop for life in region.lives.values()]
        return region.plan.group in groups and all(loop.is_stuck for loop in loops)

    def _rests(self, loop: ElementLoop, silent: Set[ElementName]) -> bool:
        """True if it has nothing to do; in a step it has taken what waited."""
        return loop.finished or (loop.resting and self._is_starved(loop, silent))

    def _is_blocked(self, loop: ElementLoop, silent: Set[ElementName]) -> bool:
        """True if it waits for space before an element that is silent."""
        is_before = any(c.target in silent and self._connections[c.id].full for c in loop.plan.outputs)
        return is_before and loop.metrics.waiting == "space downstream"

    def _is_idle(self, region: Region) -> bool:
        """True if a region has worked off its own input, and what feeds it from outside is parked."""
        if not self._bounded or not self.waits_in_vain(region):
            return False
        loops = [life.loop for life in region.lives.values()]
        borders = [c.id for loop in loops for c in loop.plan.inputs if c.region is None]
        if all(self._connections[id].closed for id in borders):
            return False  # it comes to its end by itself
        is_read = all(run.dry for loop in loops for run in loop.worker.sources)
        return is_read and all(loop.is_stuck for loop in loops)

    def _is_starved(self, loop: ElementLoop, silent: Set[ElementName]) -> bool:
        """True if an element outside of regions can only get more to do from elements that are silent."""
        assert isinstance(loop.life, OutsideLife)
        return loop.finished or loop.life.is_starved({c.id for c in loop.plan.inputs if c.source in silent})
