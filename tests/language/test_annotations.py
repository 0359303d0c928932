"""Durations and region settings are checked where they are written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.durations import seconds
from holdfast.errors import TopologyError
from holdfast.language.annotations import region_settings
from holdfast.language.graph import RegionSettings


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (2, 2.0),
        (0.5, 0.5),
        (timedelta(minutes=1), 60.0),
        ("90 seconds", 90.0),
        ("1 hour 30 minutes", 5400.0),
        ("1 hour, 30 minutes and 5 s", 5405.0),
        ("2s", 2.0),
        ("1.5 h", 5400.0),
        ("250ms", 0.25),
        ("3 Days", 259200.0),
        ("1 week", 604800.0),
    ],
)
def test_durations_are_seconds_timedeltas_or_text(given: Any, expected: float) -> None:
    assert seconds(given, "period") == expected


@pytest.mark.parametrize(
    "given", ["", "5", "minutes", "5 parsecs", "5 minutes later", "-5 s", "1e3 s", "5 ss"]
)
def test_text_that_is_no_duration_is_refused_with_examples(given: str) -> None:
    with pytest.raises(TopologyError, match=r"is no duration\..* Write"):
        seconds(given, "period")


@pytest.mark.parametrize("given", [0, -1, timedelta(0), float("nan"), float("inf"), None, True, "0 s"])
def test_other_durations_are_refused(given: Any) -> None:
    with pytest.raises(TopologyError, match=r"^period must be .* Give period as seconds, as text such as"):
        seconds(given, "period")


def test_defaults_are_those_of_the_documents() -> None:
    assert region_settings() == RegionSettings()
    assert (RegionSettings().drain_timeout_s, RegionSettings().reset_timeout_s) == (180.0, 180.0)
    assert RegionSettings().max_consecutive_resets == 5


def test_all_settings_arrive() -> None:
    settings = region_settings(
        name="pay",
        period=timedelta(seconds=8),
        mode="drain",
        drain_timeout=1,
        reset_timeout=2.5,
        max_consecutive_resets=1,
    )
    assert settings == RegionSettings("pay", 8.0, "periodic", "drain", 1.0, 2.5, 1, retries_own=True)


def test_timing_aware_has_a_period_and_any_mode() -> None:
    settings = region_settings(trigger="aware", period="5 seconds", mode="token")
    assert (settings.trigger, settings.period_s, settings.mode) == ("aware", 5.0, "token")
    assert region_settings(trigger="aware").period_s == RegionSettings().period_s


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "a/b"}, "'a/b' cannot be the name of a region"),
        ({"period": 0}, "period must be more than 0 s"),
        ({"drain_timeout": -1}, "drain_timeout must be more than 0 s"),
        ({"reset_timeout": "x"}, "reset_timeout='x' is no duration"),
        (
            {"trigger": "sometimes"},
            "There is no trigger 'sometimes'. Use one of periodic, operator, manual, aware",
        ),
        ({"trigger": "operator", "period": 2}, "Give either period=… or trigger=…, not both"),
        ({"mode": "aware"}, "'aware' is no mode but a trigger. Use trigger=\"aware\""),
        ({"mode": "fast"}, "There is no mode 'fast'"),
        ({"max_consecutive_resets": 0}, "must be a whole number above 0"),
        ({"max_consecutive_resets": 1.5}, "must be a whole number above 0"),
    ],
)
def test_mistakes_are_explained(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        region_settings(**given)
    assert message in str(caught.value)
    assert caught.value.cure
