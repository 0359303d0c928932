"""`holdfast run` and `holdfast explain`: a topology from a file. What is wrong with the program or the store is told before
Spark starts, which takes seconds."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.options import Conf, Json, Master
from holdfast.cli.program import program_of
from holdfast.errors import ConfigError, HoldfastError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.runtime.engines.spark.class_archive import Archive

PACKAGES = "spark.jars.packages"
logger = logging.getLogger("holdfast.run")

File = Annotated[
    str, typer.Argument(help="FILE.py or FILE.py:NAME of a topology in it.", metavar="FILE[:TOPOLOGY]")
]


@dataclass(frozen=True)
class Wanted:
    """What the command line says, as it was given."""

    file: str
    store: str | None
    until: str | None
    close: bool
    master: str
    settings: Mapping[str, str]
    py_files: Sequence[str]
    files: Sequence[str]
    arguments: Sequence[str]
    metrics: str | None
    take_over: bool
    is_live: bool


def run_topology(
    file: File,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="For the program, behind --; it finds them in sys.argv.", metavar="[-- ARGUMENT...]"
        ),
    ] = None,
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
    packages: Annotated[
        list[str] | None,
        typer.Option(
            help="Jars from Maven with what they need, separated by commas.", metavar="GROUP:ARTIFACT:VERSION"
        ),
    ] = None,
    data_files: Annotated[
        list[str] | None,
        typer.Option(
            "--files",
            help="Files for the executors, separated by commas; tasks find them with SparkFiles.get(NAME).",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(help="Show metrics for Prometheus there, as 127.0.0.1:9464.", metavar="HOST:PORT"),
    ] = None,
    take_over: Annotated[bool, typer.Option(help="Replace a live owner of the store.")] = False,
    insecure_store: Annotated[
        bool, typer.Option(help="Take a store where others may write.", show_default=False)
    ] = False,
    log_level: Annotated[
        str | None,
        typer.Option(help="debug, info, warning or error. Beside a live table: warning, else info."),
    ] = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log one JSON object per line.")] = False,
    as_json: Json = False,
) -> None:
    """Run a topology until it is stopped (Ctrl-C), or until all that is there is processed."""
    from holdfast.cli import logs
    from holdfast.store import permissions

    if insecure_store:
        os.environ[permissions.ENV] = "yes"
    is_live = not as_json and not log_json and sys.stderr.isatty()
    with logs.to_stderr(log_level, log_json, is_live):
        try:
            settings = settings_of(conf or (), packages or ())
            shipped = (py_files or (), data_files or (), arguments or ())
            wanted = Wanted(
                file, store, until, close, master, settings, *shipped, metrics, take_over, is_live
            )
            status = _run(wanted)
        except Exception as error:
            if not log_json:
                raise
            said = error.message if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
            logger.error("%s", said, exc_info=error)
            raise typer.Exit(getattr(error, "exit_code", 1)) from error
    if as_json:
        print(json.dumps(status))
    else:
        from holdfast.cli.status.show import show_status

        show_status(status)


def _run(wanted: Wanted) -> dict[str, Any]:
    program, _ = program_of(wanted.file)
    check_master(wanted.master)
    until = _until(wanted.until)
    if wanted.metrics is not None:
        from holdfast.runtime.telling.metrics_page import check_address

        check_address(wanted.metrics)

    from holdfast.cli.load import load_topology
    from holdfast.store.urls import open_store

    place = None if wanted.store is None else open_store(wanted.store)

    from holdfast.runtime.engines.spark.shipping import check_data, check_files, shipped

    files, data = check_files(wanted.py_files), check_data(wanted.files)
    session = LazySession("holdfast run", wanted.master, wanted.settings)
    try:
        with called_with(program, wanted.arguments):
            topology = load_topology(wanted.file, session.start)
            if place is not None:
                place.check(topology.name, take_over=wanted.take_over)
            topology.graph().check_sources()

            # Here, not before: whoever is refused need not wait until all that a run needs is imported.
            from holdfast.cli.status.show import follow
            from holdfast.runtime.api import check_graph

            check_graph(topology)
            with (
                shipped(session.start(), program, files, data),
                follow(enabled=wanted.is_live) as on_start,
            ):
                status = topology.run(
                    spark=session.start(),
                    store=place,
                    until=until,
                    close=wanted.close,
                    take_over=wanted.take_over,
                    metrics=wanted.metrics,
                    on_start=on_start,
                )
                return status.as_dict()
    finally:
        session.stop(keep_classes=True)


def explain(
    file: File, mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.")] = False
) -> None:
    """Print regions, elements, and what each sink guarantees and why. Spark is started for programs with its expressions only."""
    from holdfast.cli.load import load_topology
    from holdfast.operators.kinds import needs_spark

    session = LazySession("holdfast explain", "local[1]")
    try:
        topology = load_topology(file, session.start)
        spark = session.start() if needs_spark(topology.graph()) else None
        print(topology.explain("mermaid" if mermaid else "text", spark=spark))
    finally:
        session.stop()


class LazySession:
    """A Spark session that starts when it is needed. One that the program made itself while it was loaded is used."""

    def __init__(self, app: str, master: str, settings: Mapping[str, str] | None = None) -> None:
        from holdfast.runtime.engines.spark.environment import prepare_environment

        self._app, self._master, self._settings = app, master, settings
        self._session: SparkSession | None = None
        self._archive: Archive | None = None
        """Which this session's Java writes when it ends."""
        self._was_there = _has_session()
        """Whoever called the command has it: it stays."""
        prepare_environment(master)

    def start(self) -> SparkSession:
        from holdfast.runtime.engines.spark.class_archive import archive_here
        from holdfast.runtime.engines.spark.session import active_or_new

        if self._session is None:
            archive = archive_here((self._settings or {}).get("spark.driver.extraJavaOptions", ""))
            writer = "" if archive is None else archive.options_of_writer()
            self._session, is_new = active_or_new(self._app, self._master, self._settings, writer or None)
            self._archive = archive if is_new and writer else None
        return self._session

    def stop(self, keep_classes: bool = False) -> None:
        """`keep_classes`: a session that loaded what runs load may leave an archive of it behind, for the next to start sooner."""
        if self._session is None or self._was_there:
            return
        from holdfast.runtime.engines.spark.session import java_of

        java = java_of(self._session)
        self._session.stop()
        if keep_classes and self._archive is not None and java is not None:
            logger.info("once, so that later runs start sooner: Java writes an archive of Spark's classes")
            self._archive.finish(java)


def _has_session() -> bool:
    """Whether there is one already, without importing Spark to see that there is none."""
    if "pyspark.sql" not in sys.modules:
        return False
    from holdfast.runtime.engines.spark.session import is_active

    return is_active()


def settings_of(given: Sequence[str], packages: Sequence[str] = ()) -> dict[str, str]:
    """Of `--conf` and `--packages`. ConfigError if one cannot be meant."""
    for text in given:
        name, equals, _ = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--conf {text} is no setting.", cure="Write --conf spark.executor.memory=2g.")
        if not name.startswith("spark."):
            raise ConfigError(
                f"--conf {text}: Spark reads only settings that begin with spark.",
                cure="Write --conf spark.executor.memory=2g.",
            )
    settings = dict(text.split("=", 1) for text in given)
    wanted = [name.strip() for text in packages for name in text.split(",") if name.strip()]
    for name in wanted:
        if not re.fullmatch(r"[^:\s/]+:[^:\s/]+:[^:\s/]+", name):
            raise ConfigError(
                f"--packages {name} is no package.", cure="Write --packages GROUP:ARTIFACT:VERSION."
            )
    if wanted:
        before = settings.get(PACKAGES)
        settings[PACKAGES] = ",".join([*([before] if before else []), *wanted])
    return settings


def check_master(master: str) -> None:
    """ConfigError if Spark would not know it; Spark itself says so only after seconds."""
    if not re.fullmatch(r"local(\[[^\]]+\])?|local-cluster\[[^\]]+\]|yarn|(spark|k8s)://.+", master):
        raise ConfigError(
            f"--master {master} is none that Spark knows.",
            cure="Use local[*], local[2], spark://HOST:PORT, yarn or k8s://….",
        )


def _until(value: str | None) -> Any:
    if value not in (None, "available"):
        raise ConfigError(f"--until {value} is not known.", cure="Use --until available, or leave it out.")
    return value


@contextlib.contextmanager
def called_with(program: Path, arguments: Sequence[str]) -> Iterator[None]:
    """Within it `sys.argv` is what it would be if Python itself had been called."""
    before = sys.argv
    sys.argv = [str(program), *arguments]
    try:
        yield
    finally:
        sys.argv = before
