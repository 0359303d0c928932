"""Whether a run stands still: something is parked, and everything else has come to its end or waits for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set

from holdfast.ids import ElementName, RegionName
from holdfast.runtime.element.alone_life import AloneLife
from holdfast.runtime.element.loop import ElementLoop
from holdfast.runtime.region.region import Region


def stands_still(regions: Collection[Region], loops: Iterable[ElementLoop]) -> bool:
    """True if a region or an element is parked and everything else has come to its end, or waits for what is parked."""
    alone = [loop for loop in loops if isinstance(loop.life, AloneLife)]
    parked = [region for region in regions if region.parked]
    waits = [loop for loop in alone if isinstance(loop.life, AloneLife) and loop.life.is_parked]
    groups = {region.plan.group for region in parked} - {None}
    if not (parked or waits) or not all(_is_still(region, groups) for region in regions):
        return False
    silent = {name for region in parked for name in region.lives} | {loop.name for loop in waits}
    waiting = [loop for loop in alone if loop not in waits]
    while starved := [loop for loop in waiting if is_starved(loop, silent) or is_blocked(loop, silent)]:
        silent.update(loop.name for loop in starved)
        waiting = [loop for loop in waiting if loop not in starved]
    return not waiting


def is_starved(loop: ElementLoop, silent: Set[ElementName]) -> bool:
    """True if an element outside of regions can only get more to do from elements that are silent."""
    assert isinstance(loop.life, AloneLife)
    return loop.finished or loop.life.is_starved({c.id for c in loop.plan.inputs if c.source in silent})


def is_blocked(loop: ElementLoop, silent: Set[ElementName]) -> bool:
    """True if it waits for space before an element that is silent."""
    is_before = any(c.target in silent for c in loop.plan.outputs)
    return is_before and loop.metrics.waiting == "space downstream"


def _is_still(region: Region, groups: Set[RegionName | None]) -> bool:
    """True if a region is parked or over, or one of those `groups`, of which a member is parked, and cannot go on."""
    if region.parked or region.done.is_set():
        return True
    loops = [life.loop for life in region.lives.values()]
    return region.plan.group in groups and all(loop.is_stuck for loop in loops)
