"""`holdfast run` and `holdfast explain`: a topology from a file. What is wrong with the program or the store is told before
Spark starts, which takes seconds."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from holdfast.cli.options import Conf, Json, Master
from holdfast.errors import ConfigError, HoldfastError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("holdfast.run")

File = Annotated[
    str, typer.Argument(help="FILE.py or FILE.py:NAME of a topology in it.", metavar="FILE[:TOPOLOGY]")
]


class Shipping(NamedTuple):
    """What the executors get besides the program's own code, as it was given."""

    py_files: Sequence[str]
    files: Sequence[str]


def run_topology(
    file: File,
    store: Annotated[
        str | None,
        typer.Option(help="Where epochs are kept: a path, file:PATH, sqlite:PATH, redis://…, s3://…"),
    ] = None,
    until: Annotated[str | None, typer.Option(help="'available': process what is there, then end.")] = None,
    close: Annotated[
        bool, typer.Option(help="At the end of the input close windows, and call what waits for event time.")
    ] = False,
    master: Master = "local[*]",
    conf: Conf = None,
    py_files: Annotated[
        list[str] | None,
        typer.Option(help="More .py, .zip or .egg files for the executors, separated by commas."),
    ] = None,
    data_files: Annotated[
        list[str] | None,
        typer.Option(
            "--files",
            help="Files for the executors, separated by commas; tasks find them with SparkFiles.get(NAME).",
        ),
    ] = None,
    take_over: Annotated[bool, typer.Option(help="Replace a live owner of the store.")] = False,
    log_level: Annotated[
        str | None,
        typer.Option(help="debug, info, warning or error. Beside a live table: warning, else info."),
    ] = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log one JSON object per line.")] = False,
    as_json: Json = False,
) -> None:
    """Run a topology until it is stopped (Ctrl-C), or until all that is there is processed."""
    from holdfast.cli import logs

    is_live = not as_json and not log_json and sys.stderr.isatty()
    with logs.to_stderr(log_level, log_json, is_live):
        try:
            shipping = Shipping(py_files or (), data_files or ())
            status = _run(file, store, until, close, master, conf or (), shipping, take_over, is_live)
        except Exception as error:
            if not log_json:
                raise
            said = error.message if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
            logger.error("%s", said, exc_info=error)
            raise typer.Exit(getattr(error, "exit_code", 1)) from error
    if as_json:
        print(json.dumps(status))
    else:
        from holdfast.cli.show import show_status

        show_status(status)


def _run(
    file: str,
    store: str | None,
    until: str | None,
    close: bool,
    master: str,
    conf: Sequence[str],
    shipping: Shipping,
    take_over: bool,
    is_live: bool,
) -> dict[str, Any]:
    from holdfast.cli.load import load_topology, program_of
    from holdfast.store.urls import open_store

    wanted, program = _until(until), program_of(file)[0]
    place = None if store is None else open_store(store)

    from holdfast.cli.show import follow
    from holdfast.runtime.api import check_early
    from holdfast.runtime.engines.spark.shipping import check_data, check_files, shipped

    files, data = check_files(shipping.py_files), check_data(shipping.files)
    session = LazySession("holdfast run", master, settings_of(conf))
    try:
        topology = load_topology(file, session.start)
        if place is not None:
            place.check(topology.name, take_over=take_over)
        check_early(topology)
        with (
            shipped(session.start(), program, files, data),
            follow(enabled=is_live) as on_start,
        ):
            status = topology.run(
                spark=session.start(),
                store=place,
                until=wanted,
                close=close,
                take_over=take_over,
                on_start=on_start,
            )
            return status.as_dict()
    finally:
        session.stop()


def explain(
    file: File, mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.")] = False
) -> None:
    """Print regions, elements, and what each sink guarantees and why."""
    from holdfast.cli.load import load_topology

    session = LazySession("holdfast explain", "local[1]")
    try:
        topology = load_topology(file, session.start)
        print(topology.explain("mermaid" if mermaid else "text", spark=session.start()))
    finally:
        session.stop()


class LazySession:
    """A Spark session that starts when it is needed. One that the program made itself while it was loaded is used."""

    def __init__(self, app: str, master: str, settings: Mapping[str, str] | None = None) -> None:
        from holdfast.runtime.engines.spark.session import is_active, prepare_environment

        self._app, self._master, self._settings = app, master, settings
        self._session: SparkSession | None = None
        self._was_there = is_active()
        """Whoever called the command has it: it stays."""
        prepare_environment(master)

    def start(self) -> SparkSession:
        from holdfast.runtime.engines.spark.session import active_or_new

        if self._session is None:
            self._session, _ = active_or_new(self._app, self._master, self._settings)
        return self._session

    def stop(self) -> None:
        if self._session is not None and not self._was_there:
            self._session.stop()


def settings_of(given: Sequence[str]) -> dict[str, str]:
    for text in given:
        if "=" not in text:
            raise ConfigError(f"--conf {text} is no setting.", cure="Write --conf spark.executor.memory=2g.")
    return dict(text.split("=", 1) for text in given)


def _until(value: str | None) -> Any:
    if value not in (None, "available"):
        raise ConfigError(f"--until {value} is not known.", cure="Use --until available, or leave it out.")
    return value
