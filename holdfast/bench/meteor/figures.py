"""What windows come to: ratios of variants per application and on average, as document 002 reports them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from holdfast.bench.measure.ratios import speedup_of
from holdfast.bench.measure.report import figure
from holdfast.bench.meteor.link import GIGABIT
from holdfast.bench.meteor.window import CHECKED, Setting, Window

Round = Mapping[str, Window]
PACED = 0.5
"""Of what can be taken without epochs, when latency is measured."""
ORDER = ("independent", "token", "async", "aware")
"""By throughput, the least first, as the document found it."""


@dataclass(frozen=True)
class Recovery:
    """Seconds from the new driver's session being ready until the region works again, and bytes of the epoch."""

    seconds: Mapping[str, float]
    restore_s: Mapping[str, float]


@dataclass(frozen=True)
class Found:
    """All windows of one application: saturated rounds, paced ones, on the machine's own disk, and by number of epochs."""

    app: str
    setting: Setting
    rounds: Sequence[Round]
    paced: Sequence[Round]
    disk: Sequence[Round]
    by_count: Mapping[int, Round]
    recoveries: Sequence[Recovery]
    outputs: tuple[int, int] = (0, 0)
    """Runs that wrote something, and how many rows of them were compared at most."""


def report(found: Sequence[Found], seconds: float, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Ratios on top, each the mean of the applications', round by round; then every application."""
    result: dict[str, Any] = {"bench": "meteor", "window_s": seconds}
    for name, pairs_of in RATIOS.items():
        by_app = {one.app: pairs_of(one) for one in found}
        if not all(by_app.values()):
            continue  # its part was not measured
        together = [fmean(pairs) for pairs in zip(*by_app.values(), strict=False)]
        result |= figure(name, speedup_of(together))
        result[f"{name}_by_app"] = {app: round(median(pairs), 4) for app, pairs in by_app.items()}
    if all(one.rounds for one in found):
        result["order"] = order(found)
    result["apps"] = {one.app: _app(one) for one in found}
    result["configuration"] = dict(configuration)
    return result


def order(found: Sequence[Found]) -> dict[str, Any]:
    """Variants by throughput at the checked count, relative to `independent`, and whether each is as fast as the one before it."""
    relative = {
        name: fmean(_median(one, name) / _median(one, "independent") for one in found) for name in ORDER
    }
    steps = [f"{slow} <= {fast}" for slow, fast in pairwise(ORDER) if relative[slow] <= relative[fast]]
    return {
        "throughput_over_independent": {name: round(ratio, 4) for name, ratio in relative.items()},
        "holds": steps,
        "as_in_document": len(steps) == len(ORDER) - 1,
    }


def _median(one: Found, name: str) -> float:
    return median(windows[name].rows_per_s for windows in one.rounds)


def _pairs(rounds: Sequence[Round], over: str, under: str, value: Callable[[Window], float]) -> list[float]:
    return [value(one[over]) / value(one[under]) for one in rounds if value(one[under])]


def _bytes(one: Found, over: str, under: str) -> list[float]:
    """Bytes of an epoch over bytes of one of the other variant, of paced rounds: there hardly anything is on its way at an epoch."""
    both = [w for w in one.paced if w[over].epochs and w[under].epochs]
    return _pairs(both, over, under, lambda window: window.bytes / len(window.epochs))


def _over_least(one: Found) -> list[float]:
    """Bytes of an epoch over the least size that the state truly had in each period: an oracle for whom nothing is on its way."""
    setting, found = one.setting, []
    for windows in one.paced:
        window = windows["aware"]
        rows = PACED * setting.rate * setting.lead_s
        least = setting.curve.least(rows, rows, CHECKED)
        if window.epochs and sum(least):
            found.append(window.bytes / len(window.epochs) / fmean(least))
    return found


def _in_epochs(one: Found) -> list[float]:
    found = []
    for windows in one.paced:
        during, without = windows["aware"].latency_in_epochs_s, windows["none"].latency_s
        if during is not None and without:
            found.append(during / without)
    return found


RATIOS: dict[str, Callable[[Found], list[float]]] = {
    "throughput_aware_over_independent": lambda f: _pairs(
        f.rounds, "aware", "independent", lambda w: w.rows_per_s
    ),
    "latency_aware_over_independent": lambda f: _pairs(
        f.paced, "aware", "independent", lambda w: w.latency_s
    ),
    "throughput_aware_over_independent_own_disk": lambda f: _pairs(
        f.disk, "aware", "independent", lambda w: w.rows_per_s
    ),
    "checkpoint_bytes_aware_over_async": lambda f: _bytes(f, "aware", "async"),
    "checkpoint_bytes_aware_over_oracle": lambda f: _bytes(f, "aware", "oracle"),
    "checkpoint_bytes_aware_over_least_state": _over_least,
    "instantaneous_latency_aware_over_none": _in_epochs,
    "recovery_seconds_aware_over_async": lambda f: [
        one.seconds["aware"] / one.seconds["async"] for one in f.recoveries
    ],
}


def _app(one: Found) -> dict[str, Any]:
    setting, curve = one.setting, one.setting.curve
    period_s = setting.seconds / CHECKED
    return {
        "outputs_equal": {"runs": one.outputs[0], "rows": one.outputs[1]},
        "state_least_over_average": round(curve.least_over_average, 4),
        "state_bytes": {"mean": round(curve.mean), "max": max(size for _, size in curve.points)},
        "link_share": round(curve.mean / GIGABIT / period_s, 4),
        "rows_per_s_without_epochs": round(setting.rate),
        "rows_per_step": setting.input.rows_per_step,
        "by_epochs": _by_epochs(one.by_count),
        "rows_per_s": _of_rounds(one.rounds, lambda window: round(window.rows_per_s)),
        "paced_latency_ms": _of_rounds(one.paced, lambda window: _ms(window.latency_s)),
        "latency_in_epochs_ms": _of_rounds(one.paced, lambda window: _ms(window.latency_in_epochs_s)),
        "epochs": _of_rounds(one.rounds, lambda window: len(window.epochs)),
        "epoch_bytes": _of_rounds(one.paced, lambda window: [epoch.bytes for epoch in window.epochs]),
        "epoch_ms": _of_rounds(
            one.paced, lambda window: [_ms(epoch.published - epoch.begun) for epoch in window.epochs]
        ),
        "recovery_s": {
            name: [round(recovery.seconds[name], 3) for recovery in one.recoveries]
            for name in (one.recoveries[0].seconds if one.recoveries else ())
        },
        "restore_s": {
            name: [round(recovery.restore_s[name], 3) for recovery in one.recoveries]
            for name in (one.recoveries[0].restore_s if one.recoveries else ())
        },
        "state_curve": _thin(curve.points),
    }


def _of_rounds(rounds: Sequence[Round], value: Callable[[Window], Any]) -> dict[str, list[Any]]:
    """By variant, of each round."""
    return {name: [value(windows[name]) for windows in rounds] for name in (rounds[0] if rounds else ())}


def _by_epochs(by_count: Mapping[int, Round]) -> dict[str, Any]:
    """Relative to `independent` without epochs."""
    if not by_count:
        return {}
    base = by_count[0]["independent"]
    return {
        str(count): {
            name: {
                "throughput": round(window.rows_per_s / base.rows_per_s, 4),
                "latency": round(window.latency_s / base.latency_s, 4) if base.latency_s else None,
                "epochs": len(window.epochs),
                "bytes": window.bytes,
            }
            for name, window in windows.items()
        }
        for count, windows in sorted(by_count.items())
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 1)


def _thin(points: Sequence[tuple[int, int]]) -> list[list[int]]:
    step = max(1, len(points) // 400)
    return [list(point) for point in points[::step]]
