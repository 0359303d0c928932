"""`holdfast checkpoints`: look into epochs. What is read is decided in `holdfast/checkpoint`, what is printed in
`checkpoint_tables.py`; commands that change a store are in `checkpoint_changes.py`. Nothing here writes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.checkpoint_changes import changes
from holdfast.cli.options import Json, Operator, Region, StoreUrl, print_json
from holdfast.cli.terminal import say

if TYPE_CHECKING:
    from holdfast.checkpoint.look.verify import Progress
    from holdfast.checkpoint.manifest import Manifest
    from holdfast.ids import Epoch, RegionName
    from holdfast.store.base import Store

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Look into the epochs of a store, and manage them.",
)

SomeEpoch = Annotated[
    str | None, typer.Argument(help="Number or savepoint; without it the newest.", metavar="EPOCH")
]


@app.command("list")
def list_epochs(store: StoreUrl, region: Region = None, as_json: Json = False) -> None:
    """List the epochs of each region: age, form, bytes, segments, savepoints."""
    from holdfast.checkpoint.look.epochs import choose_region, open_reader, regions, summaries
    from holdfast.cli.checkpoint_tables import show_list

    place = open_reader(store)
    chosen = regions(place) if region is None else [choose_region(place, region)]
    found = [each for name in chosen for each in summaries(place, name)]
    print_json([asdict(each) for each in found]) if as_json else show_list(place.url, found)


@app.command()
def show(
    store: Annotated[
        str,
        typer.Argument(help="Store, or a file of one: a manifest, segment, pack, …", metavar="STORE|FILE"),
    ],
    epoch: SomeEpoch = None,
    region: Region = None,
    operator: Operator = None,
    rows: Annotated[
        int | None, typer.Option(help="With --operator, or a file: how many rows to print.", min=0)
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print the manifest as it is stored.")] = False,
    as_json: Json = False,
) -> None:
    """Show an epoch: job, positions of sources, and the state of each operator; or any file of a store."""
    from holdfast.checkpoint.look.describe import describe_epoch, first_rows
    from holdfast.cli.checkpoint_tables import show_epoch, show_rows

    url = _store_or_file(store)
    if url is None:
        _show_file(Path(store), rows, raw, as_json)
        return
    place, manifest = _opened(url, epoch, region, operator)
    if raw:
        say(place.manifest(manifest.region, manifest.epoch).partition(b"\n")[2].decode())
        return
    found = describe_epoch(place, manifest, operator)
    shown = first_rows(place, manifest, operator, rows) if operator is not None and rows else {}
    if as_json:
        print_json({**found, "rows": {name: table.to_pylist() for name, table in shown.items()}})
        return
    show_epoch(found, in_detail=operator is not None)
    show_rows(shown)


@app.command()
def verify(
    store: StoreUrl,
    epoch: SomeEpoch = None,
    every: Annotated[
        bool, typer.Option("--all", help="All epochs, not only the newest of each region.")
    ] = False,
    region: Region = None,
    as_json: Json = False,
) -> None:
    """Read all that epochs need and compare sizes and checksums. Exit code 1 if anything is damaged or missing."""
    from holdfast.checkpoint.look.epochs import open_reader
    from holdfast.checkpoint.look.verify import verify as look
    from holdfast.cli.checkpoint_tables import show_verified

    place = open_reader(store)
    chosen = _chosen(place, epoch, every, region)
    with _progress(enabled=not as_json and sys.stderr.isatty()) as progress:
        found = look(place, chosen, progress)
    print_json(asdict(found)) if as_json else show_verified(place.url, found)
    if found.problems:
        raise typer.Exit(1)


@app.command()
def diff(
    store: StoreUrl,
    before: Annotated[str, typer.Argument(help="Epoch or savepoint.", metavar="A")],
    after: Annotated[str, typer.Argument(help="Epoch or savepoint.", metavar="B")],
    region: Region = None,
    operator: Operator = None,
    rows: Annotated[int, typer.Option(help="How many changed rows of each operator to print.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Show what changed between two epochs: rows of each operator's state, positions of sources, bytes."""
    from holdfast.checkpoint.look.epoch_difference import compare
    from holdfast.checkpoint.look.epochs import choose_epoch, find_operator, read_manifest
    from holdfast.cli.checkpoint_tables import diff_data, show_diff

    place, old = _opened(store, before, region, operator)
    new = read_manifest(place, old.region, choose_epoch(place, old.region, after))
    if operator is not None:
        find_operator(new, operator)
    found = compare(place, old, new, None if operator is None else [operator], rows)
    if as_json:
        print_json(diff_data(old, new, found))
    else:
        show_diff(old, new, found)


app.add_typer(changes)


# --- what is meant ----------------------------------------------------------------------------------------------------


def _opened(
    store: str, epoch: str | None, region: str | None, operator: str | None
) -> tuple[Store, Manifest]:
    from holdfast.checkpoint.look.epochs import (
        choose_epoch,
        choose_region,
        find_operator,
        open_reader,
        read_manifest,
    )

    place = open_reader(store)
    name = choose_region(place, region, operator)
    manifest = read_manifest(place, name, choose_epoch(place, name, epoch))
    if operator is not None:
        find_operator(manifest, operator)
    return place, manifest


def _chosen(
    place: Store, epoch: str | None, every: bool, region: str | None
) -> list[tuple[RegionName, Epoch]]:
    from holdfast.checkpoint.look.epochs import choose_epoch, choose_region, chosen_regions
    from holdfast.errors import ConfigError

    if epoch is not None and every:
        raise ConfigError("an epoch and --all exclude each other.", cure="Leave one of them out.")
    names = chosen_regions(place, region) if epoch is None else [choose_region(place, region)]
    if every:
        return [(name, each) for name in names for each in place.epochs(name)]
    return [(name, choose_epoch(place, name, epoch)) for name in names]


def _store_or_file(store: str) -> str | None:
    """The store that is meant, None if it is a file in one. A SQLite file is a store whether or not its URL says so."""
    from holdfast.checkpoint.look.file_printer import SQLITE

    path = Path(store)
    if not path.is_file():
        return store
    with path.open("rb") as file:
        return f"sqlite:{store}" if file.read(len(SQLITE)) == SQLITE else None


# --- printing ---------------------------------------------------------------------------------------------------------


def _show_file(path: Path, rows: int | None, raw: bool, as_json: bool) -> None:
    from holdfast.checkpoint.look.describe import describe_epoch
    from holdfast.checkpoint.look.file_printer import print_file
    from holdfast.cli.checkpoint_tables import show_epoch, show_printed

    found = print_file(path, 10 if rows is None else rows)
    if raw:
        sys.stdout.buffer.write(found.raw)
        sys.stdout.flush()
        return
    described = None if found.manifest is None else describe_epoch(None, found.manifest)
    if as_json:
        facts = {"file": found.file, "format": found.format, "facts": found.facts}
        named = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
        print_json({**facts, **({"rows": named} if found.columns else {}), **(described or {})})
        return
    show_printed(found)
    if described is not None:
        show_epoch(described, in_detail=True)


@contextmanager
def _progress(enabled: bool) -> Iterator[Progress | None]:
    """A bar on a terminal that grows with the bytes read."""
    if not enabled:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("verifying"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("verifying", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
