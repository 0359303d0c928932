"""How a region stands, for people: what `status` says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.runtime.telling.stored_events import encode

if TYPE_CHECKING:
    from holdfast.runtime.region.region import Region


def standing(region: Region, now: float, reason: str) -> dict[str, Any]:
    """`reason`: of the last failure. Any thread may ask."""
    lives = region.lives.values()
    unready = [str(name) for life in lives for name in life.care.unready]
    pauses = [pause for life in lives for pause in life.pauses.seconds]
    return {
        **region.metrics.as_dict(now, region.controller.phase.value, reason),
        **region.restoring.status(),
        **({"waits_for": unready} if unready else {}),
        "longest_pause_ms": round(max(pauses, default=0.0) * 1000, 1),
        **region.trigger.status(),
        **({} if region.change is None else {"topology_changed": encode(region.change)[1]}),
    }
