"""`holdfast logs replay`: a stored stretch of a log through a topology, into files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.log.places import opened, place_of
from holdfast.cli.options import Conf, Json, Master, print_json
from holdfast.cli.running import File, LazySession, settings_of

if TYPE_CHECKING:
    from holdfast.runtime.replay.replay import Replayed, ReplayProgress

PLACE = "a position, or a time such as 2024-05-01T12:00 (UTC)"


def replay(
    log: Annotated[Path, typer.Argument(help="Directory of a log.", metavar="LOG")],
    program: File,
    into: Annotated[
        Path, typer.Option(help="Directory for the rows of each sink; the real sinks get nothing.")
    ],
    source: Annotated[
        str | None, typer.Option(help="The source whose place the log takes; needed if there are several.")
    ] = None,
    from_: Annotated[str | None, typer.Option("--from", help=f"beginning, {PLACE}.")] = None,
    to: Annotated[str | None, typer.Option(help=f"Where it ends: {PLACE}. Default: all there is.")] = None,
    partition: Annotated[int | None, typer.Option(help="Of the log, if it has several.", min=0)] = None,
    speed: Annotated[
        float | None,
        typer.Option(help="1: as the rows came, 10: ten times that. Default: as fast as it goes."),
    ] = None,
    format: Annotated[str, typer.Option(help="Of the files: json, csv or parquet.")] = "json",
    close: Annotated[bool, typer.Option(help="Event time ends with the rows: windows close.")] = False,
    master: Master = "local[*]",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Feed rows of a log through a topology in place of its source. If it is killed, the same command goes on."""
    from holdfast.cli.load import load_topology
    from holdfast.cli.program import program_of
    from holdfast.runtime.engines.spark.shipping import shipped
    from holdfast.runtime.replay.replay import replay as feed

    asked, file = opened(log), program_of(program)[0]
    start, end = (None if text is None else place_of(text) for text in (from_, to))
    session = LazySession("holdfast logs replay", master, settings_of(conf or ()))
    try:
        topology = load_topology(program, session.start)
        with (
            shipped(session.start(), file, []),
            _progress(not as_json and sys.stderr.isatty()) as on_progress,
        ):
            done = feed(
                topology,
                asked,
                into=into,
                source=source,
                start=start,
                end=end,
                partition=partition,
                speed=speed,
                format=format,
                close=close,
                spark=session.start(),
                on_progress=on_progress,
            )
    finally:
        session.stop()
    print_json(asdict(done)) if as_json else _show(done)


def _show(done: Replayed) -> None:
    if not done.seconds:
        print("it had come to its end before; nothing was done")
    else:
        print(f"positions {done.start:,} to {done.at:,} in {done.seconds:.1f} s")
    if not done.is_whole:
        print(f"stopped before its end at {done.end:,}; the same command goes on")
    for name, path in done.sinks.items():
        print(f"{name}: {path}")


@contextmanager
def _progress(is_wanted: bool) -> Iterator[Callable[[ReplayProgress], None] | None]:
    if not is_wanted:
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True)) as bar:
        task = bar.add_task("replaying", total=None)

        def show(now: ReplayProgress) -> None:
            waits = f", next rows in {now.due_in_s:.0f} s" if now.due_in_s >= 1 else ""
            bar.update(
                task, total=now.end - now.start, completed=now.at - now.start, description=f"replaying{waits}"
            )

        yield show
