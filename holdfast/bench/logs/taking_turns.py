"""Sides that take turns, each a function that answers what it found; all must find the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.bench.measure.place import Place
from holdfast.errors import HoldfastError

WARM_UPS = 2

Side = Callable[[], Any]
Seconds = Mapping[str, float]
"""By side: of one call, on average over a stretch."""


def take_turns(place: Place, sides: Mapping[str, Side], pairs: int, seconds: float) -> list[Seconds]:
    """Rounds in which each side has a stretch of at least so many seconds, in turn from the first and from the last."""
    for _ in range(WARM_UPS):
        _compare({name: side() for name, side in sides.items()})
    rounds: list[Seconds] = []
    for number in range(pairs):
        order = list(sides) if number % 2 == 0 else list(sides)[::-1]
        done = {name: _stretch(place, sides[name], seconds) for name in order}
        _compare({name: found for name, (_, found) in done.items()})
        rounds.append({name: done[name][0] for name in sides})
        line = ", ".join(f"{name} {took:.3f} s" for name, took in rounds[-1].items())
        place.console.print(f"pair {number + 1} of {pairs}: {line}")
    return rounds


def _stretch(place: Place, side: Side, seconds: float) -> tuple[float, Any]:
    place.settle()
    calls, begun = 0, time.perf_counter()
    while True:
        found = side()
        calls += 1
        took = time.perf_counter() - begun
        if took >= seconds:
            return took / calls, found


def _compare(found: Mapping[str, Any]) -> None:
    first = next(iter(found))
    for name, answer in found.items():
        if answer != found[first]:
            raise HoldfastError(f"{name} found {answer}, and {first} {found[first]}: nothing is measured.")


def shares(rounds: Sequence[Seconds], over: str, under: str) -> list[float]:
    """Seconds of `over` per second of `under`, by round."""
    return [each[over] / each[under] for each in rounds]


def seconds_of(rounds: Sequence[Seconds]) -> dict[str, list[float]]:
    return {name: [round(each[name], 4) for each in rounds] for name in rounds[0]}
