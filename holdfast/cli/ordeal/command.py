"""`holdfast chaos PROGRAM`: run it undisturbed and under real faults, and judge each sink by its promise."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.options import Conf, JsonFile
from holdfast.cli.places import place_beneath
from holdfast.cli.program import program_of
from holdfast.cli.running import File, check_master, settings_of
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.testing.ordeal.schedule import Fault
    from holdfast.testing.ordeal.trial import Wanted


def chaos(
    file: File,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="For the program, behind --; it finds them in sys.argv.", metavar="[-- ARGUMENT...]"
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="A directory for stores, outputs and logs of all runs, or one beside it if it holds something. Without it they are deleted."
        ),
    ] = None,
    kills: Annotated[int, typer.Option(help="How many faults.", min=1, max=1000)] = 5,
    faults: Annotated[
        str | None,
        typer.Option(
            help="Of these kinds: worker,driver,jvm,executor,store,disk,slow. Default: all that there can be."
        ),
    ] = None,
    minutes: Annotated[
        float,
        typer.Option(help="So long faults are made, at most; and the undisturbed run may take.", min=0.1),
    ] = 10.0,
    seed: Annotated[int | None, typer.Option(help="Repeat a schedule.", min=0)] = None,
    record: Annotated[float, typer.Option(help="Seconds of a live input that are recorded.", min=1.0)] = 20.0,
    patience: Annotated[
        float | None, typer.Option(help="Seconds without any move after which a run hangs.", min=1.0)
    ] = None,
    close: Annotated[bool, typer.Option(help="At the end of the input close windows.")] = False,
    local: Annotated[
        bool,
        typer.Option(
            "--local", help="Without Spark, for programs without its expressions: quicker, fewer victims."
        ),
    ] = False,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[*]",
    conf: Conf = None,
    as_json: JsonFile = None,
) -> None:
    """Run a program over its input undisturbed and under real faults, and judge every sink by what explain promises for it.

    Nothing is written to the program's own outputs or store: sinks are redirected. Exit code 0: every promise was kept; 1: one was broken;
    20: nothing was shown, since no fault fired or no sink could be judged."""
    program_of(file)
    check_master(master)
    kinds = _kinds(faults, local, master)

    from holdfast.cli.ordeal.child import Setting
    from holdfast.cli.ordeal.table import show
    from holdfast.testing.ordeal.process import Spawned
    from holdfast.testing.ordeal.trial import Trial

    setting = Setting(file, arguments or (), os.getcwd(), local, master, settings_of(conf or ()))
    wanted = _wanted(kinds, kills, minutes, seed, record, patience, close, local)
    with place_beneath(store, "chaos") as place, _ended_in_order():
        root = place.resolve()

        def begin(life: Any, tag: str, log: Path, environment: Any) -> Spawned:
            command = [sys.executable, "-m", "holdfast.cli.ordeal.child", setting.with_life(life)]
            return Spawned(command, tag, log, environment, root)

        result = Trial(root, begin, wanted, lambda line: print(line, file=sys.stderr)).run()
        told = {**result.as_dict(), "store": None if store is None else str(place)}
        if as_json is not None and as_json != "-":
            Path(as_json).write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told)) if as_json == "-" else show(told)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _kinds(faults: str | None, local: bool, master: str) -> tuple[Fault, ...]:
    """ConfigError if there can be no such victim."""
    from holdfast.testing.ordeal.schedule import FAULTS, NEEDS_SPARK, kinds_of

    has_executors = not local and not master.startswith("local[") and master != "local"
    there = tuple(
        each
        for each in FAULTS
        if not (local and each in NEEDS_SPARK) and (each != "executor" or has_executors)
    )
    if faults is None:
        return there
    chosen = kinds_of(faults)
    missing = [each for each in chosen if each not in there]
    if missing or not chosen:
        what = f"there is no {missing[0]} to kill" if missing else "--faults names no fault"
        raise ConfigError(
            f"{what}{' without Spark' if local and missing else f' with --master {master}' if missing else ''}.",
            cure=f"Give some of: {', '.join(there)}; executors there are with --master local-cluster[2,1,1024].",
        )
    return chosen


def _wanted(
    kinds: tuple[Fault, ...],
    kills: int,
    minutes: float,
    seed: int | None,
    record: float,
    patience: float | None,
    close: bool,
    local: bool,
) -> Wanted:
    from holdfast.testing.ordeal.trial import Wanted

    drawn = secrets.randbelow(1 << 31) if seed is None else seed
    quick = (
        {"pace_s": 0.01, "period_s": 0.1, "beat_s": 0.05, "patience_s": 20.0}
        if local
        else {"pace_s": 0.05, "patience_s": 90.0}
    )
    if patience is not None:
        quick["patience_s"] = patience
    slices = max(60, 20 * kills) if local else max(30, 7 * kills)  # a step of Spark's takes longer
    return Wanted(kills, kinds, drawn, minutes, slices, close=close, record_s=record, **quick)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """SIGTERM ends the command as Ctrl-C does: with all that it started."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
