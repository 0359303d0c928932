"""The newest status of a run that nobody runs any more: what it said of that very moment is not so now. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LASTING = ("stopped", "parked")
"""Phases of a region that outlive the run."""
OVER = "over"


def at_rest(status: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing is under way, nobody waits, no rows come."""
    regions = {name: _region(region) for name, region in status.get("regions", {}).items()}
    elements = {name: _element(element) for name, element in status.get("elements", {}).items()}
    return {**status, "regions": regions, "elements": elements}


def _region(region: Mapping[str, Any]) -> dict[str, Any]:
    phase = region.get("phase")
    lasts = phase if phase in LASTING else OVER
    return {**region, "phase": lasts, "under_way": None, "idle_since": None}


def _element(element: Mapping[str, Any]) -> dict[str, Any]:
    sources = {name: {**of, "rows_per_s": 0} for name, of in element.get("sources", {}).items()}
    return {**element, "rows_per_s": 0, "waiting": "—", "sources": sources}
