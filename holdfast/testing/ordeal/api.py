"""`hf.testing.chaos`: a topology of a test under real faults."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.language.graph import Graph
from holdfast.language.topology import Topology
from holdfast.operators.kinds import only_spark_knows
from holdfast.testing.fed import Feed, fed_graph
from holdfast.testing.ordeal.process import Forked
from holdfast.testing.ordeal.schedule import FAULTS, NEEDS_SPARK, Fault, kinds_of
from holdfast.testing.ordeal.trial import Result, Trial, Wanted

LOCAL: tuple[Fault, ...] = tuple(each for each in FAULTS if each not in NEEDS_SPARK)


class PromiseBroken(AssertionError):
    """A sink has not what `explain` promises, or nothing was shown. `result` has it all."""

    def __init__(self, result: Result) -> None:
        self.result = result
        super().__init__("\n".join(told(result)))


def chaos(
    topology: Topology,
    feed: Feed | None = None,
    *,
    kills: int = 4,
    faults: str | Sequence[Fault] = LOCAL,
    seed: int | None = None,
    minutes: float = 5.0,
    patience: float = 20.0,
    close: bool = False,
) -> Result:
    """Run a topology over its input undisturbed and under faults, and judge each sink by what `explain` promises for it.

    Example::

        def test_the_shop_survives():
            hf.testing.chaos(shop, feed={"orders": rows}, kills=6)

    Each life is a process of its own, without Spark: topologies with Spark expressions are tried by `holdfast chaos FILE`. Sinks are redirected,
    or their rows recorded. PromiseBroken, an AssertionError with the table, if a promise is broken or no fault fired; else the result. `seed` repeats a schedule."""
    graph = topology.graph()
    if spark := [name for name, op in graph.operators.items() if only_spark_knows(op)]:
        raise ConfigError(
            f"{spark[0]!r} is made of Spark expressions, which need a Spark of their own for each life.",
            cure="Put the topology into a file and try it with `holdfast chaos FILE`.",
        )
    kinds = kinds_of(faults) if isinstance(faults, str) else tuple(faults)
    if (bad := [each for each in kinds if each in NEEDS_SPARK]) or not kinds:
        raise ConfigError(
            f"there is no {bad[0]} to kill without Spark." if bad else "no fault is asked for.",
            cure=f"Give some of: {', '.join(LOCAL)}.",
        )
    fed: Callable[[], Graph] = (lambda: graph) if not feed else (lambda: fed_graph(graph, feed))
    drawn = secrets.randbelow(1 << 31) if seed is None else seed
    wanted = Wanted(
        kills,
        kinds,
        drawn,
        minutes,
        patience_s=patience,
        close=close,
        pace_s=0.01,
        period_s=0.1,
        beat_s=0.05,
        slices=max(60, 20 * kills),
    )
    with tempfile.TemporaryDirectory(prefix="holdfast-chaos-") as root:
        result = Trial(Path(root), lambda life, tag, log, env: Forked(life, fed, tag, log, env), wanted).run()
    if result.verdict != "kept":
        raise PromiseBroken(result)
    return result


def told(result: Result) -> list[str]:
    """For the message of a failing test."""
    lines = [
        f"{result.topology}: {result.verdict} (seed {result.seed})",
        *([result.failure] if result.failure else []),
    ]
    for each in result.sinks:
        lines.append(
            f"  sink {each.sink} ({each.guarantee}, by {each.compared}): {each.verdict}; {each.missing} missing, "
            f"{each.doubled} doubled, {each.wrong} wrong of {each.rows}, {each.counted} counted"
        )
        lines += [f"    {each.first}"] if each.first else []
    for fault in result.faults:
        state = "" if fault.in_middle else " (not in the middle)"
        lines.append(
            f"  {fault.fault}: {fault.how} at {fault.place}, epoch {fault.epoch}, {fault.share:.0%}{state}: {fault.effect}"
        )
    return [*lines, *(f"  {note}" for note in result.notes)]
