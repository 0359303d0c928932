"""`holdfast logs query`: SQL over the rows of a log. What is wrong with the log or the bounds is told before Spark starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.log.places import opened, time_of
from holdfast.cli.options import Conf, Json, Master, print_json
from holdfast.cli.running import LazySession, settings_of
from holdfast.errors import ConfigError

TIME = "such as 2024-05-01T12:00 (UTC)"


def query(
    log: Annotated[Path, typer.Argument(help="Directory of a log.", metavar="LOG")],
    sql: Annotated[str, typer.Argument(help="'select … from log where …'", metavar="SQL")],
    from_: Annotated[
        str | None, typer.Option("--from", help=f"Only rows from this time on, {TIME}. Prunes segments.")
    ] = None,
    to: Annotated[str | None, typer.Option(help=f"Only rows before this time, {TIME}.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many rows of the answer.", min=1)] = 100,
    master: Master = "local[*]",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Ask a log with SQL: its rows that count now are the view `log`. With --json a list of objects."""
    from holdfast.cli.log.tables import show_answer
    from holdfast.log.query.wanted import between
    from holdfast.sources.logs.retrospective import query as ask

    if not sql.strip():
        raise ConfigError("there is no query.", cure="Write 'select … from log where …'.")
    since, until = (None if text is None else time_of(text) for text in (from_, to))
    wanted = between(since, until)
    asked = opened(log)
    session = LazySession("holdfast logs query", master, settings_of(conf or ()))
    try:
        found, is_cut = ask(asked, sql, wanted, session.start(), limit)
    finally:
        session.stop()
    print_json(found.to_pylist()) if as_json else show_answer(found, is_cut)
