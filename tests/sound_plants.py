"""A planted defect is noticed if the product goes wrong with it. That the planting itself is broken, because what it replaces has changed,
looks the same: some test fails."""

from __future__ import annotations

import re

_BROKEN = re.compile(
    r"\b(TypeError|AttributeError|NameError|UnboundLocalError|ImportError|ModuleNotFoundError)\b"
)


def sound(defect: str, told: str) -> str:
    """`told`, which is what somebody said about a planted defect ('': nothing). AssertionError if it tells of a defect that no longer fits."""
    assert not _BROKEN.search(told), f"the planted defect {defect} does not fit the product any more: {told}"
    return told
