"""What users say about an operator: durations and region settings, checked where they are written."""

from __future__ import annotations

from typing import Any, Literal, cast

from holdfast.durations import Duration, seconds
from holdfast.errors import TopologyError
from holdfast.ids import is_safe_name
from holdfast.language.graph import RegionSettings
from holdfast.protocol.bounds.loss_budget import THENS, LossBudget
from holdfast.protocol.shape import MODES, Mode

Trigger = Literal["periodic", "operator", "manual", "aware"]

TRIGGERS = ("periodic", "operator", "manual", "aware")
TIMED = ("periodic", "aware")
"""Triggers with a period."""

NAME_RULE = "Use letters, digits, '_', '-' and '.', beginning with a letter or digit, at most 100 characters."


def safe_name(name: Any, what: str) -> str:
    """A name that may become part of a file name."""
    if not isinstance(name, str) or not is_safe_name(name):
        raise TopologyError(f"{name!r} cannot be the name of {what}.", cure=NAME_RULE)
    return name


def region_settings(
    *,
    name: str | None = None,
    period: Duration | None = None,
    trigger: str | None = None,
    mode: str = "async",
    drain_timeout: Duration = 180.0,
    reset_timeout: Duration = 180.0,
    max_consecutive_resets: int | None = None,
    retry_for: Duration = 600.0,
    keep: int = 3,
    keep_for: Duration | None = None,
    restore_within: Duration | None = None,
) -> RegionSettings:
    """The arguments of `.consistent(…)`, checked, with their defaults filled in."""
    if name is not None:
        safe_name(name, "a region")
    return RegionSettings(
        name=name,
        period_s=RegionSettings().period_s if period is None else seconds(period, "period"),
        trigger=_trigger(trigger, period),
        mode=_mode(mode),
        drain_timeout_s=seconds(drain_timeout, "drain_timeout"),
        reset_timeout_s=seconds(reset_timeout, "reset_timeout"),
        max_consecutive_resets=_count(
            RegionSettings().max_consecutive_resets
            if max_consecutive_resets is None
            else max_consecutive_resets,
            "max_consecutive_resets",
            "resets in a row after which the region is parked; the default is 5",
        ),
        retries_own=max_consecutive_resets is not None,
        retry_for_s=seconds(retry_for, "retry_for"),
        keep=_count(keep, "keep", "newest epochs that are never deleted; the default is 3"),
        keep_for_s=None if keep_for is None else seconds(keep_for, "keep_for"),
        restore_within_s=None if restore_within is None else seconds(restore_within, "restore_within"),
    )


def loss_budget(rows: Any, share: Any, set_back: Duration | None, then: Any) -> LossBudget:
    """The arguments of `.may_lose(…)`, checked."""
    if rows is None and share is None and set_back is None:
        raise TopologyError(
            "may_lose() says nothing.", cure="Give rows=…, share=… or seconds=…: how much may be lost."
        )
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 0):
        raise TopologyError(
            f"rows must be a whole number, 0 or more, not {rows!r}.", cure="Give how many rows may be lost."
        )
    is_number = isinstance(share, int | float) and not isinstance(share, bool)
    if share is not None and not (is_number and 0 <= share < 1):
        raise TopologyError(
            f"share must be at least 0 and less than 1, not {share!r}.",
            cure="Give the part of all rows that may be lost: share=0.001 is one in a thousand.",
        )
    if then not in THENS:
        raise TopologyError(f"then={then!r} is not known.", cure='Use "warn", "park" or "consistent".')
    back = None if set_back is None else seconds(set_back, "seconds", zero=True)
    return LossBudget(rows, None if share is None else float(share), back, then)


def _trigger(trigger: str | None, period: Duration | None) -> Trigger:
    if trigger is None:
        return "periodic"
    if trigger not in TRIGGERS:
        raise TopologyError(f"There is no trigger {trigger!r}.", cure=f"Use one of {', '.join(TRIGGERS)}.")
    if period is not None and trigger not in TIMED:
        raise TopologyError(
            f"A region with trigger={trigger!r} has no period.",
            cure="Give either period=… or trigger=…, not both.",
        )
    return cast(Trigger, trigger)


def _mode(mode: str) -> Mode:
    if mode == "aware":
        raise TopologyError(
            "'aware' is no mode but a trigger.", cure='Use trigger="aware", with any mode and a period.'
        )
    if mode not in MODES:
        raise TopologyError(f"There is no mode {mode!r}.", cure=f"Use one of {', '.join(MODES)}.")
    return mode


def _count(count: int, what: str, meaning: str) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise TopologyError(
            f"{what} must be a whole number above 0, not {count!r}.", cure=f"Give the number of {meaning}."
        )
    return count
