"""How a region stands, for people: what `status` says of it, and who holds up an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.ids import Epoch
from holdfast.protocol import messages
from holdfast.protocol.commands import UnderWay
from holdfast.protocol.controller import ControllerPhase
from holdfast.runtime.region.holdups import ElementFacts, Holdup, holdups, sentence
from holdfast.runtime.telling.events import EpochOverdue, EpochVisible
from holdfast.runtime.telling.stored_events import encode

if TYPE_CHECKING:
    from holdfast.runtime.element.region_life import RegionLife
    from holdfast.runtime.region.region import Region


def standing(region: Region, now: float, reason: str) -> dict[str, Any]:
    """`reason`: of the last failure. Any thread may ask."""
    lives = region.lives.values()
    unready = [str(name) for life in lives for name in life.care.unready]
    pauses = [pause for life in lives for pause in life.pauses.seconds]
    return {
        "mode": region.plan.settings.mode,
        "trigger": region.plan.settings.trigger,
        "sinks": sorted(str(run.name) for life in lives for run in life.loop.worker.sinks),
        **region.metrics.as_dict(now, region.controller.phase.value, region.controller.is_idle, reason),
        **region.restoring.status(),
        **({"waits_for": unready} if unready else {}),
        **({"kept_rows": _kept(region)} if region.parked else {}),
        **_under_way(region, now),
        "longest_pause_ms": round(max(pauses, default=0.0) * 1000, 1),
        **region.trigger.status(),
        **({} if region.change is None else {"topology_changed": encode(region.change)[1]}),
    }


def _kept(region: Region) -> int:
    """Rows that wait for a parked region: they entered by `.replayable()`."""
    queues = [queue for life in region.lives.values() for queue in life.borders.kept.values()]
    return sum(parcel.batch.rows for queue in queues for parcel in queue.uncovered)


def who_holds_up(region: Region) -> list[Holdup]:
    """Nobody if no epoch is being established. Any thread may ask; what it finds is of one moment only about."""
    under_way = region.controller.under_way
    if under_way is None:
        return []
    return holdups(under_way, {name: _facts(region.lives[name], under_way) for name in under_way.silent})


def tell_overdue(region: Region, epoch: Epoch) -> None:
    """`epoch` takes long: say who holds it up, unless it has been established meanwhile."""
    under_way = region.controller.under_way
    if under_way is not None and under_way.epoch == epoch and region.begun is not None:
        seconds = round(region.metrics.clock.monotonic() - region.begun, 1)
        region.announce(EpochOverdue(region.plan.name, epoch, seconds, sentence(who_holds_up(region))))


def tell_visible(region: Region, epoch: Epoch) -> None:
    """The output of `epoch` is visible: say where its time went. Called by the region's thread."""
    begun, published = region.begun, region.metrics.published_at
    if begun is None or published is None:
        return  # of the run before: only its output was left to be shown

    def since(moment: float) -> float:
        return round((moment - begun) * 1000, 1)

    elements = {
        str(name): {what: since(moment) for what, moment in life.milestones.of(epoch).items()}
        for name, life in region.lives.items()
    }
    now = region.metrics.clock.monotonic()
    region.announce(EpochVisible(region.plan.name, epoch, since(published), since(now), elements))


def _facts(life: RegionLife, under_way: UnderWay) -> ElementFacts:
    machine, ends = life.machine, life.loop.ends
    marker = messages.Marker(under_way.style, under_way.epoch, machine.attempt)
    missing = machine.missing(under_way.epoch)
    with ends.signals.condition:
        found = {id: ends.inputs[id].ahead_of(marker) for id in missing}
    return ElementFacts(
        machine.phase,
        machine.has_joined(under_way.epoch),
        machine.stores == under_way.epoch,
        missing,
        {id: sum(batch.rows for batch in batches) for id, batches in found.items() if batches is not None},
        tuple(map(str, life.care.unready)),
        life.loop.metrics.waiting,
        life.loop.long_call,
    )


def _under_way(region: Region, now: float) -> dict[str, Any]:
    """The epoch that is being established, for how long, and who holds it up, since when."""
    under_way, begun = region.controller.under_way, region.begun
    phase = region.controller.phase
    if under_way is None or begun is None:
        return {}
    if phase is ControllerPhase.PUBLISHING:
        holdups: list[dict[str, Any]] = [{"what": "all parts are stored; the epoch is being published"}]
    else:
        holdups = [_as_data(each, region.lives[each.element], now, begun) for each in who_holds_up(region)]
    return {"under_way": {"epoch": under_way.epoch, "seconds": round(now - begun, 2), "held_up_by": holdups}}


def _as_data(each: Holdup, life: RegionLife, now: float, begun: float) -> dict[str, Any]:
    return {
        "element": str(each.element),
        "what": each.what,
        **({"operators": list(each.operators)} if each.operators else {}),
        **({"connections": list(map(str, each.connections))} if each.connections else {}),
        "seconds": round(now - max(begun, life.moved_at), 2),
    }
