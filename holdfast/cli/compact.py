"""`holdfast compact`: merge small files of an output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.options import Json
from holdfast.errors import ConfigError

Directory = Annotated[Path, typer.Argument(help="What was given to FileSink.", metavar="DIR")]


def compact(
    directory: Directory,
    to: Annotated[str, typer.Option(help="How large files should become.")] = "128 MB",
    as_json: Json = False,
) -> None:
    """Merge small files that a FileSink has shown, also while a run writes. Readers: see docs/sinks.md."""
    from holdfast.sinks.output.compaction import compact as compact_files
    from holdfast.sinks.output.rolling import bytes_of

    size = bytes_of(to)
    if not size:
        raise ConfigError(f"--to {to!r} is no size.", cure="Write --to '128 MB'.")
    done = compact_files(directory.absolute(), size)
    if as_json:
        print(json.dumps({"before": done.before, "after": done.after, "bytes": done.bytes}))
    elif done.before:
        print(f"{done.before} files became {done.after}, {done.bytes:,} bytes")
    else:
        print("no files are small enough to be merged")
