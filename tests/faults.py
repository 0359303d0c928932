"""Faults that fired while a test ran, for the table of `make chaos` (chaos_table.py)."""

from __future__ import annotations

from collections import Counter

FIRED: Counter[str] = Counter()
"""What was broken → how often, in the test that runs now."""

DRIVER_KILLED = "driver killed"


def fired(what: str, count: int = 1) -> None:
    """Whoever breaks something, and sees that it broke, says so here."""
    FIRED[what] += count
