"""Wherever a length of time is given it may be text, and means what a number of seconds means."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import TopologyError

PLACES: dict[str, Callable[[Any], Any]] = {
    "incremental": lambda d: hf.incremental(restore_within=d),
    "latest": lambda d: hf.latest(d),
    "ttl": lambda d: hf.ttl(d, on="at", delay=d),
    "tumbling": lambda d: hf.tumbling(d, on="at", delay=d, lateness=d, idle=d),
    "sliding": lambda d: hf.sliding(d, d, on="at", delay={"a": d}),
    "session": lambda d: hf.session(d),
    "Value": lambda d: hf.Value(int, default=0, ttl=d).ttl_us,
    "Map": lambda d: hf.Map(str, int, ttl=d).ttl_us,
    "Window": lambda d: hf.Window(float, seconds=d).seconds_us,
}


@pytest.mark.parametrize("place", PLACES)
def test_text_means_what_seconds_mean(place: str) -> None:
    make = PLACES[place]
    assert make("1 minute 30 seconds") == make(90) == make(timedelta(seconds=90))
    with pytest.raises(TopologyError, match="is no duration"):
        make("soon")


def test_the_distance_of_timestamps_may_be_text() -> None:
    assert hf.tumbling(delta="5 minutes", of="at") == hf.tumbling(delta=timedelta(minutes=5), of="at")
