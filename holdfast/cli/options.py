"""Arguments and options that several commands have, and JSON for machines."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

StoreUrl = Annotated[
    str, typer.Argument(help="Store: a path, file:PATH, sqlite:PATH, redis://… or s3://…", metavar="STORE")
]
Region = Annotated[str | None, typer.Option(help="Which region; needed if there are several.")]
OnlyRegion = Annotated[str | None, typer.Option(help="Only this region; without it all.")]
Operator = Annotated[str | None, typer.Option(help="Only this operator.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
JsonFile = Annotated[
    str | None, typer.Option("--json", help="Write the result as JSON to a file; - for stdout.")
]
Master = Annotated[str, typer.Option(help="Spark master.")]
Conf = Annotated[
    list[str] | None, typer.Option(help="A Spark setting. Repeat for more.", metavar="KEY=VALUE")
]


def print_json(data: Any) -> None:
    print(json.dumps(data, default=lambda value: value.hex() if isinstance(value, bytes) else str(value)))
