"""`holdfast simulate`: the region protocol through thousands of random schedules of crashes, judged after every event."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.options import JsonFile
from holdfast.errors import ConfigError

MODES = "async, token, drain, independent, or outside (elements outside of regions)"


def simulate(
    mode: Annotated[str, typer.Option(help=f"Which protocol: {MODES}.")] = "async",
    seeds: Annotated[int, typer.Option(help="How many schedules.", min=1)] = 1000,
    first: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    tell: Annotated[bool, typer.Option("--tell", help="Tell one schedule, event by event.")] = False,
    tape: Annotated[
        Path | None, typer.Option(help="Tell the schedule of a tape that was written before.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Write the shortest failing schedule to this file, as a tape.")
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            help="Instead: how messages and time grow with regions of these sizes.", metavar="N,N,…"
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="With --sizes: draw it into this file.")] = None,
    as_json: JsonFile = None,
) -> None:
    """Run the protocol's state machines through random schedules with crashes; no Spark, no disk.

    A schedule that breaks an invariant is made shorter and told. Exit code 1 if there is one."""
    from holdfast.chaos import simulate as many

    if sizes is not None:
        return _grow(sizes, plot, as_json)
    if mode not in many.MODES:
        raise ConfigError(f"there is no mode {mode!r}.", cure=f"Use one of {MODES}.")
    if tape is not None or tell:
        raise typer.Exit(_tell(many.MODES[many.MODES.index(mode)], first, tape))
    progress = (lambda line: print(f"\r{line}", end="", file=sys.stderr)) if sys.stderr.isatty() else None
    found = many.simulate(many.MODES[many.MODES.index(mode)], range(first, first + seeds), tell=progress)
    if progress is not None:
        print(file=sys.stderr)
    result = found.as_dict()
    for failed in result["failed"][:1]:
        shortest = many.shortest(found.mode, failed["seed"])
        failed["shortest"] = {"reason": shortest.reason, "draws": len(shortest.tape)}
        if keep is not None:
            keep.write_text(json.dumps({"mode": mode, "seed": failed["seed"], "tape": shortest.tape}))
    if as_json == "-":
        print(json.dumps(result))
    else:
        if as_json is not None:
            Path(as_json).write_text(json.dumps(result, indent=1))
        print(_sentences(result))
    raise typer.Exit(1 if result["violations"] else 0)


def _grow(sizes: str, plot: Path | None, as_json: str | None) -> None:
    from holdfast.chaos.growth.scale import WIDTH, grown
    from holdfast.protocol.shape import TOGETHER

    if not all(size.strip().isdigit() and int(size) >= WIDTH for size in sizes.split(",")):
        raise ConfigError(
            f"{sizes!r} are no sizes.", cure=f"Give numbers of elements from {WIDTH} on: 10,100,1000"
        )
    found = [grown(int(size), mode) for mode in TOGETHER for size in sizes.split(",")]
    if plot is not None:
        from holdfast.chaos.growth.scale_plot import draw

        draw(found, plot)
    if as_json is not None:
        data = json.dumps([each.as_dict() for each in found])
        print(data) if as_json == "-" else Path(as_json).write_text(data)
    if as_json != "-":
        print(
            f"{'mode':6} {'elements':>9} {'epoch: messages':>16} {'time':>7} {'recovery: messages':>19} {'time':>7}"
        )
        for each in found:
            print(
                f"{each.mode:6} {each.elements:>9,} {each.epoch_messages:>16,} {each.epoch_time:>7,.0f}"
                f" {each.recovery_messages:>19,} {each.recovery_time:>7,.0f}"
            )


def _tell(mode: str, seed: int, tape: Path | None) -> int:
    from holdfast.chaos import simulate as many
    from holdfast.chaos.outcome import SimulationFailed
    from holdfast.chaos.tapes import Tape

    rng = None
    if tape is not None:
        kept = json.loads(tape.read_text())
        mode, seed, rng = kept["mode"], kept["seed"], Tape(kept["tape"])
    try:
        print(many.schedule(many.MODES[many.MODES.index(mode)], seed, rng, print).figures())
    except SimulationFailed as failed:
        print(f"FAILED {failed.reason}", file=sys.stderr)
        return 1
    return 0


def _sentences(result: dict[str, object]) -> str:
    moves = ", ".join(f"{name} {taken}" for name, taken in dict(result["coverage"]).items())  # type: ignore[call-overload]
    lines = [
        f"{result['schedules']:,} schedules in mode {result['mode']}, {result['events']:,} events,"
        f" {result['faults']:,} faults: {result['violations']} violations"
        + (f"; moves: {moves}" if moves else "")
    ]
    for failed in result["failed"]:  # type: ignore[attr-defined]
        lines.append(f"  seed {failed['seed']}: {failed['reason']}")
        if short := failed.get("shortest"):
            lines.append(f"    in {short['draws']} decisions: {short['reason']}")
    return "\n".join(lines)
