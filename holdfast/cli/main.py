"""`holdfast`: the command line. Each command is short; `run` and `explain` live in `running.py`, what
is printed in `status`."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli import checkpoints
from holdfast.cli.compact import compact
from holdfast.cli.impact.command import impact
from holdfast.cli.log import command as log_commands
from holdfast.cli.options import Json, JsonFile, StoreUrl
from holdfast.cli.ordeal.command import chaos
from holdfast.cli.plot import plot
from holdfast.cli.running import explain, run_topology
from holdfast.cli.savepoint import savepoint
from holdfast.cli.simulate import simulate
from holdfast.cli.terminal import console, labelled, say
from holdfast.errors import ConfigError, HoldfastError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(checkpoints.app, name="checkpoints")
app.add_typer(log_commands.app, name="logs")
app.command("run")(run_topology)
app.command()(explain)
app.command()(savepoint)
app.command()(compact)
app.command()(simulate)
app.command()(plot)
app.command()(impact)
app.command()(chaos)
errors = console(stderr=True)


def _tell_version(wanted: bool) -> None:
    if wanted:
        from holdfast import __version__

        print(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def holdfast(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_tell_version, help="Print the version.")
    ] = False,
) -> None:
    """Fault-tolerant stream graphs on Spark."""


@app.command()
def status(store: StoreUrl, as_json: Json = False) -> None:
    """Show what the run on a store does now, or did last."""
    from holdfast.cli.status.show import show_store
    from holdfast.cli.status.store_status import read_status

    found = read_status(store)
    print(json.dumps(found)) if as_json else show_store(found)


@app.command()
def top(
    store: StoreUrl,
    seconds: Annotated[float, typer.Option(help="Between two looks.", min=0.1)] = 1.0,
) -> None:
    """Watch the run on a store, in the terminal; Ctrl-C ends the watching, not the run."""
    from holdfast.cli.status.top import watch

    watch(store, seconds)


@app.command()
def ui(
    store: StoreUrl,
    port: Annotated[
        int | None, typer.Option(help="Where; without it 4050, or any that is free.", min=0, max=65535)
    ] = None,
    host: Annotated[
        str, typer.Option(help="0.0.0.0 for other machines too; then a token is needed.")
    ] = "127.0.0.1",
    allow_commands: Annotated[
        bool, typer.Option("--allow-commands", help="Let the page stop and resume the run.")
    ] = False,
) -> None:
    """Show the run on a store as a page in the browser: live, ended or dead. Ctrl-C ends the page, not the run."""
    from holdfast.dashboard.server import Page

    page = Page(store, host, port, allow_commands)
    print(page.url, flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        page.close()


@app.command()
def stop(store: StoreUrl) -> None:
    """Ask the run on a store to establish a final epoch and end."""
    _post(store, "stop")


@app.command()
def resume(store: StoreUrl) -> None:
    """Go on with parked regions of the run on a store."""
    _post(store, "resume")


@app.command()
def demo(
    kills: Annotated[int, typer.Option(help="How many processes to kill.", min=0)] = 5,
    seconds: Annotated[float, typer.Option(help="Roughly how long the killed run takes.")] = 45.0,
    seed: Annotated[int | None, typer.Option(help="Repeat a run with the same moments of death.")] = None,
    as_json: JsonFile = None,
) -> None:
    """Orders and payments under real kills: golden run against killed run, per guarantee."""
    from holdfast.demo.run import run_demo

    result = run_demo(kills=kills, seconds=seconds, seed=seed, quiet=as_json == "-")
    _write_json(result, as_json)
    if not result["golden_equal"]:
        raise typer.Exit(1)


@app.command()
def bench(
    name: Annotated[
        str | None, typer.Argument(help="Which benchmark; without a name they are listed.")
    ] = None,
    as_json: JsonFile = None,
    pairs: Annotated[
        int | None, typer.Option(help="Pairs of alternating stretches; 5, meteor 2.", min=1)
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Length of one stretch; 10 s, meteor 6 s.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Directory for pictures, if the benchmark has some.")
    ] = None,
    periods: Annotated[
        str | None, typer.Option(help="Seconds between epochs, as 2,4,8 (regions only).")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="What to measure, as vwap,chain-8x1 (regions), query,large (log), plain,warm.1m (bulk) or bcp,recovery (meteor)."
        ),
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option(help="How large its input is; 1: as documented (log, bulk, text).", min=0.00001),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A quick look (meteor only).")] = False,
) -> None:
    """Measure holdfast side by side with plain Spark in one warmed session."""
    from holdfast.bench.registry import BENCHES, numbers, run_bench

    if name is None:
        print("\n".join(BENCHES))
        return
    result = run_bench(
        name,
        pairs=pairs,
        seconds=seconds,
        quiet=as_json == "-",
        periods=numbers(periods),
        only=only.split(",") if only else None,
        scale=scale,
        quick=quick or None,
    )
    _write_json(result, as_json)
    if plot is not None:
        from holdfast.bench.pictures import draw

        for file in draw(result, plot):
            print(file, file=sys.stderr)


def _post(store: str, command: str) -> None:
    from holdfast.store.locks import signed
    from holdfast.store.urls import open_store

    place = open_store(store)
    owner = place.owner()
    if owner is None or not owner.get("alive"):
        raise ConfigError(f"no run is alive on {place.url}.", cure="Run again: it goes on from there.")
    place.post(command, {"by": signed()})
    say(f"{command}: asked run {owner.get('token')} (pid {owner.get('pid')}) on {place.url}")


def _write_json(result: Any, target: str | None) -> None:
    if target == "-":
        print(json.dumps(result))
    elif target is not None:
        Path(target).write_text(json.dumps(result, indent=1) + "\n")


def run_command(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit code. Errors of ours are one sentence and a next step on stderr."""
    try:
        code = app(arguments, standalone_mode=False)
    except HoldfastError as error:
        errors.print(labelled("error:", "bold red", error.message), soft_wrap=True)
        if error.cure:
            errors.print(labelled("next:", "bold", error.cure), soft_wrap=True)
        return error.exit_code
    except KeyboardInterrupt:
        errors.print("interrupted; the last published epoch stays the truth", highlight=False, soft_wrap=True)
        return 130
    except Exception as error:
        return _usage_error(error)
    return code if isinstance(code, int) else 0


def _usage_error(error: Exception) -> int:
    show = getattr(error, "show", None)  # typer's own usage errors know how to print themselves
    if show is None:
        raise error
    show()
    return int(getattr(error, "exit_code", 2))


def run() -> None:
    """Entry point of the `holdfast` script."""
    sys.exit(run_command())
