"""What a store tells about its run: newest summary, epochs, events, owner."""

from __future__ import annotations

from typing import Any

from holdfast.store.urls import open_store

RECENT_EVENTS = 12


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
    return {
        "store": store.url,
        "owner": dict(owner) if owner else None,
        "alive": alive,
        "summary": summary,
        "events": recent,
    }
