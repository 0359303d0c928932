"""`holdfast impact PROGRAM`: kill one operator after another, and tell what that does to the output."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.options import JsonFile
from holdfast.cli.places import place_beneath
from holdfast.cli.running import File, LazySession, settings_of
from holdfast.errors import ConfigError


def impact(
    file: File,
    store: Annotated[
        str | None,
        typer.Option(
            help="A directory: every run has its own store beneath it, or beside it if it holds something. Without it they are deleted."
        ),
    ] = None,
    as_json: JsonFile = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the effects into this file: PNG, SVG or PDF.")
    ] = None,
    operator: Annotated[
        list[str] | None, typer.Option(help="Kill only this operator. Repeat for more.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(help="Columns that tell a sink's rows apart. Repeat for more.", metavar="SINK=COLUMN,…"),
    ] = None,
    record: Annotated[
        list[str] | None,
        typer.Option(help="Record what would go to this sink, which cannot be redirected. Repeat for more."),
    ] = None,
    at: Annotated[
        float,
        typer.Option(help="How much of its input an operator has taken when it dies.", min=0.0, max=0.95),
    ] = 0.5,
    beat: Annotated[
        float,
        typer.Option(help="Seconds between two slices of a source: checkpoints and epochs come by them."),
    ] = 1.0,
    tolerance: Annotated[
        float, typer.Option(help="Numbers that are off by no more than this share agree again.", min=0.0)
    ] = 0.01,
    close: Annotated[bool, typer.Option(help="At the end of the input close windows.")] = False,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[*]",
    conf: Annotated[
        list[str] | None, typer.Option(help="A Spark setting. Repeat for more.", metavar="KEY=VALUE")
    ] = None,
) -> None:
    """Kill one operator after another, compare every sink with an undisturbed run, and say which operators deserve a checkpoint.

    Nothing is written to the program's own outputs or store: sinks are redirected."""
    from holdfast.cli import logs
    from holdfast.cli.impact.table import show

    if beat <= 0:
        raise ConfigError(f"--beat {beat:g} is no time.", cure="Give seconds above 0.")
    keys = _keys(key or ())
    if plot is not None:
        from holdfast.cli.impact.picture import check_target

        check_target(plot)
    with logs.to_stderr("error", False, False), place_beneath(store, "impact") as place, ExitStack() as stack:
        setting = _setting(stack, file, place, beat, close, master, conf or (), record or ())
        from holdfast.chaos.impact.study import study

        found = study(
            setting, chosen=operator or (), keys=keys, share=at, tolerance=tolerance,
            tell=lambda line: print(line, file=sys.stderr),
        )  # fmt: skip
    result = {**found.as_dict(), "stores": None if store is None else str(place)}
    if plot is not None:
        from holdfast.cli.impact.picture import draw

        draw(result, plot)
    if as_json == "-":
        print(json.dumps(result))
        return
    if as_json is not None:
        Path(as_json).write_text(json.dumps(result, indent=1) + "\n")
    show(result)


def _setting(
    stack: ExitStack,
    file: str,
    place: Path,
    beat_s: float,
    close: bool,
    master: str,
    conf: Sequence[str],
    record: Sequence[str],
) -> Any:
    """The program and the engine of all runs; what is wrong with the program is told before Spark starts, if it can be."""
    from holdfast.chaos.impact.one_run import Setting
    from holdfast.chaos.impact.recording import check_program
    from holdfast.cli.load import load_topology
    from holdfast.cli.program import program_of
    from holdfast.runtime.engines.spark.engine import SparkEngine
    from holdfast.runtime.engines.spark.shipping import shipped

    program = program_of(file)[0]
    session = LazySession("holdfast impact", master, settings_of(conf))
    stack.callback(session.stop)
    check_program(load_topology(file, session.start).graph(), record)
    stack.enter_context(shipped(session.start(), program, ()))
    return Setting(
        lambda: load_topology(file, session.start).graph(),
        lambda: SparkEngine(session.start(), owned=False),
        place,
        beat_s,
        close,
    )


def _keys(given: Sequence[str]) -> dict[str, list[str]]:
    for text in given:
        if "=" not in text or not text.partition("=")[2]:
            raise ConfigError(f"--key {text} is no key.", cure="Write --key SINK=COLUMN,COLUMN.")
    return {sink: columns.split(",") for sink, _, columns in (text.partition("=") for text in given)}
