"""The study behind `holdfast impact`: a golden run, then one per operator in which it is killed, and what that did to each sink.

An operator with a state outside of regions is killed twice: with a checkpoint of its own and without, whichever the program says. The
difference is what the checkpoint is worth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from holdfast.chaos.impact.advice import Advice, Effects, advise
from holdfast.chaos.impact.deviation import AT, Deviation, Pairing, compared, pairing_of
from holdfast.chaos.impact.one_run import Observed, Setting, Victim, run_once, victims_of
from holdfast.compiler.traverse import sinks_behind
from holdfast.errors import ConfigError
from holdfast.ids import OperatorName
from holdfast.language.graph import Graph

FEWEST_STEPS = 20
STEPS = 40
"""An input that comes in fewer than FEWEST_STEPS slices is cut into about STEPS."""
CHECKPOINTS = 20
"""Operators that have no checkpoint in the program get so many over the whole input, to see what one would be worth."""

TOLERANCE = 0.01

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Loss:
    """What the death of an operator did, with those that died with it."""

    victim: Victim
    killed_at: float
    sinks: Mapping[OperatorName, Deviation]
    lost_rows: Mapping[str, int]

    @property
    def effect(self) -> float:
        return max((each.effect for each in self.sinks.values()), default=0.0)


@dataclass(frozen=True)
class Study:
    """Everything that was found."""

    topology: str
    golden: Observed
    pairings: Mapping[OperatorName, Pairing]
    losses: Mapping[OperatorName, Loss]
    """By operator, as the program is."""
    others: Mapping[OperatorName, Loss]
    """The same with a checkpoint instead of none, or the other way round."""
    periods: Mapping[OperatorName, float | None]
    """Of the checkpoints that the program has."""
    tried_s: float
    """The period of those that were tried."""
    beat_s: float
    advice: Sequence[Advice] = field(default_factory=tuple)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        order = {each.operator: each for each in self.advice}
        return {
            "topology": self.topology,
            "steps": self.golden.slices,
            "source_rows": self.golden.source_rows,
            "beat_s": self.beat_s,
            "tried_every_s": self.tried_s,
            "sinks": {
                name: {
                    "rows": _count(self.golden.rows[name]),
                    "paired_by": pairing.told,
                    "key": list(pairing.key),
                }
                for name, pairing in self.pairings.items()
            },
            "operators": [self._as_data(name, advice) for name, advice in order.items()],
            "recommended": [each.operator for each in self.advice if each.verdict in ("checkpoint", "keep")],
            "cheap_to_leave": [
                each.operator for each in self.advice if each.verdict in ("leave", "not needed", "no state")
            ],
        }

    def _as_data(self, name: str, advice: Advice) -> dict[str, Any]:
        operator = OperatorName(name)
        loss, other, place = self.losses[operator], self.others.get(operator), self.golden.places[operator]
        return {
            "operator": name,
            "element": str(place.element),
            "region": place.region,
            "killed_with": [each for each in loss.victim.operators if each != name],
            "state_bytes": self.golden.state_bytes.get(operator, 0) if place.has_state else None,
            "checkpoint_every_s": self.periods[operator],
            "killed_at_s": loss.killed_at,
            "lost_rows": dict(loss.lost_rows),
            "effect": round(loss.effect, 6),
            "effect_the_other_way": None if other is None else round(other.effect, 6),
            "sinks": {sink: sink_dict(each) for sink, each in loss.sinks.items()},
            "sinks_the_other_way": None
            if other is None
            else {sink: sink_dict(each) for sink, each in other.sinks.items()},
            "verdict": advice.verdict,
            "advice": advice.sentence,
            "saved": round(advice.saved, 6),
            "saved_per_kb": round(advice.saved_per_kb, 6),
        }


def sink_dict(each: Deviation) -> dict[str, Any]:
    return {
        "rows": each.rows,
        "missing": each.missing,
        "extra": each.extra,
        "wrong": each.wrong,
        "deviation": {name: round(value, 6) for name, value in each.columns.items()},
        "agrees_after_rows": each.agrees_after_rows,
        "agrees_after_s": each.agrees_after_s,
        "effect": round(each.effect, 6),
    }


def study(
    setting: Setting,
    *,
    chosen: Sequence[str] = (),
    keys: Mapping[str, Sequence[str]] | None = None,
    share: float = 0.5,
    tolerance: float = TOLERANCE,
    tell: Tell = lambda line: None,
) -> Study:
    """`chosen`: only these operators; `share`: how much of its input an operator has taken when it dies; `tolerance`: numbers that
    are off by no more than this share agree again."""
    graph = setting.program()
    _check_names(graph, chosen, keys or {})
    setting, golden = _golden(setting, tell)
    judge = Judge(golden, _pairings(graph, golden, keys or {}), tolerance)
    periods = {name: op.annotations.checkpoint_every_s for name, op in graph.operators.items()}
    tried_s = max(golden.slices / CHECKPOINTS, 1.0) * setting.beat_s
    losses: dict[OperatorName, Loss] = {}
    others: dict[OperatorName, Loss] = {}
    victims = victims_of(golden, chosen, share)
    for number, victim in enumerate(victims):
        tell(f"{number + 1} of {len(victims)}: {', '.join(victim.operators)} dies")
        loss = judge.loss(setting, f"kill-{number}", victim, {})
        losses |= dict.fromkeys(victim.operators, loss)
        (name, *more) = victim.operators
        if not more and golden.places[name].has_state and golden.places[name].region is None:
            kept = {str(name): tried_s if periods[name] is None else None}
            others[name] = judge.loss(setting, f"kill-{number}-other", victim, kept)
    found = Study(graph.name, golden, judge.pairings, losses, others, periods, tried_s, setting.beat_s)
    return replace(found, advice=advise(_effects(found, name) for name in losses))


def _golden(setting: Setting, tell: Tell) -> tuple[Setting, Observed]:
    """An undisturbed run, in so many steps that its middle means something."""
    tell("undisturbed")
    golden = run_once(setting, "golden")
    if golden.slices < FEWEST_STEPS and golden.source_rows > golden.slices:
        setting = replace(setting, slice_rows=max(1, math.ceil(golden.source_rows / STEPS)))
        tell(f"undisturbed, in steps of {setting.slice_rows} rows")
        golden = run_once(setting, "golden-cut")
    if golden.slices == 0:
        raise ConfigError(
            "the sources have no rows, so nothing can be compared.", cure="Give the program its input."
        )
    return setting, golden


def _pairings(
    graph: Graph, golden: Observed, keys: Mapping[str, Sequence[str]]
) -> dict[OperatorName, Pairing]:
    behind, found = sinks_behind(graph), {}
    for sink, table in golden.rows.items():
        # The nearest operators come last in the graph.
        before = [op for op in reversed(list(graph.operators.values())) if sink in behind[op.name]]
        hints = [getattr(op.spec, "by", ()) for op in before]
        place = golden.places[sink]
        empty = pa.table({AT: pa.array([], pa.float64())})
        wanted = keys.get(sink, ())
        columns = [] if table is None else table.column_names
        if table is not None and (wrong := [name for name in wanted if name not in columns]):
            raise ConfigError(
                f"sink {sink!r} has no column {wrong[0]!r}.", cure=f"It has: {', '.join(columns[:-1])}."
            )
        found[sink] = pairing_of(empty if table is None else table, wanted, hints, place.region is not None)
    return found


@dataclass(frozen=True)
class Judge:
    """Compares runs with the golden one."""

    golden: Observed
    pairings: Mapping[OperatorName, Pairing]
    tolerance: float

    def loss(self, setting: Setting, name: str, victim: Victim, kept: Mapping[str, float | None]) -> Loss:
        """Run with `victim` killed, and compare."""
        done = run_once(setting, name, victim, kept)
        assert done.killed_at is not None
        empty = pa.table({AT: pa.array([], pa.float64())})
        sinks = {}
        for sink, pairing in self.pairings.items():
            wanted, got = self.golden.rows[sink], done.rows[sink]
            if wanted is None:
                wanted = empty if got is None else got.slice(0, 0)
            sinks[sink] = compared(wanted, got, pairing, done.killed_at, self.tolerance)
        return Loss(victim, done.killed_at, sinks, done.lost_rows)


def _effects(found: Study, name: OperatorName) -> Effects:
    loss, other, every = found.losses[name], found.others.get(name), found.periods[name]
    place = found.golden.places[name]
    size = found.golden.state_bytes.get(name, 0)
    if other is None:
        return Effects(str(name), size, loss.effect, in_region=place.region is not None)
    without, kept = (loss, other) if every is None else (other, loss)
    return Effects(str(name), size, loss.effect, without.effect, kept.effect, every is not None)


def _check_names(graph: Graph, chosen: Sequence[str], keys: Mapping[str, Sequence[str]]) -> None:
    for name in (*chosen, *keys):
        if name not in graph.operators:
            raise ConfigError(
                f"there is no operator {name!r}.", cure=f"There are: {', '.join(graph.operators)}."
            )


def _count(table: pa.Table | None) -> int:
    return 0 if table is None else int(table.num_rows)
