"""When a run looks for commands."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from holdfast.clock import ManualClock
from holdfast.runtime.looks import DEAR_MAIL_S, MAIL_S, RESTS_S, Looks
from holdfast.store.base import Store
from holdfast.store.objects.object_store import ObjectStore
from holdfast.store.urls import open_store

HOUR_S = 3600.0


def times(store: Store | None, still_since_s: float | None) -> list[float]:
    """When it looks within an hour, of which nothing has been new from some moment on."""
    clock = ManualClock()

    def still_s() -> float:
        return 0.0 if still_since_s is None else max(0.0, clock.monotonic() - still_since_s)

    looks, found = Looks(store, clock, still_s), []
    while clock.monotonic() < HOUR_S:
        if looks.due():
            found.append(clock.monotonic())
        clock.advance(0.125)
    return found


def gaps(found: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(found)]


def test_without_a_store_there_is_nothing_to_look_for() -> None:
    assert times(None, 0.0) == []


def test_where_looks_cost_nothing_they_come_often_for_ever(tmp_path: Path) -> None:
    assert set(gaps(times(open_store(str(tmp_path / "store")), 0.0))) == {MAIL_S}


@pytest.mark.parametrize(("option", "most_s"), [("", 10.0), ("?commands=30", 30.0), ("?commands=1", 2.0)])
def test_where_they_cost_they_become_seldom_while_nothing_happens(
    tmp_path: Path, option: str, most_s: float
) -> None:
    url = f"objects+file://{tmp_path}/store{option}"
    assert set(gaps(times(ObjectStore(url), None))) == {DEAR_MAIL_S}
    found = gaps(times(ObjectStore(url), 100.0))
    assert found == sorted(found), "ever more seldom"
    assert found[0] == DEAR_MAIL_S
    assert found[-1] == most_s


def test_the_store_is_told_whether_anything_happens(tmp_path: Path) -> None:
    told: list[bool] = []

    class Told(ObjectStore):
        def rest(self, is_idle: bool) -> None:
            told.append(is_idle)

    times(Told(f"objects+file://{tmp_path}/store"), 0.0)
    assert told == sorted(told)
    assert told.count(False) == RESTS_S / 0.125
