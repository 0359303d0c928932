"""What a store tells about its run: newest summary, epochs, events, owner."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from holdfast.dashboard.at_rest import at_rest
from holdfast.runtime.telling.events import EpochPublished
from holdfast.runtime.telling.stored_events import decode
from holdfast.store.base import Event
from holdfast.store.urls import open_store

RECENT_EVENTS = 12
ENDED_STATES = ("ended", "failed", "parked")


def read_status(url: str) -> dict[str, Any]:
    """Plain data for `holdfast status`. Reads only; a live run is not disturbed."""
    store = open_store(url)
    events = store.events()
    summary = next((dict(e.data) for e in reversed(events) if e.kind == "summary"), None)
    recent = [
        {"number": e.number, "wall": e.wall, "kind": e.kind, **dict(e.data)}
        for e in events
        if e.kind != "summary"
    ][-RECENT_EVENTS:]
    owner = store.owner()
    alive = bool(owner and owner.get("alive"))
    if summary is not None and not alive:
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            _say_how_it_ended(summary, events)  # what a store holds may be anything; the table says so
    return {
        "store": store.url,
        "owner": dict(owner) if owner else None,
        "alive": alive,
        "summary": summary,
        "events": recent,
    }


def _say_how_it_ended(summary: dict[str, Any], events: Sequence[Event]) -> None:
    """The last summary of a run that was killed says "running", and misses what was published after it."""
    if summary.get("state") not in ENDED_STATES:
        summary["state"] = "killed, or its machine went down"
    regions = {name: dict(region) for name, region in summary.get("regions", {}).items()}
    for event in (decode(event.kind, event.data) for event in events):
        if isinstance(event, EpochPublished) and event.region in regions:
            region = regions[event.region]
            region["epoch"] = max(region["epoch"], event.epoch)
    summary.update(at_rest({**summary, "regions": regions}))
