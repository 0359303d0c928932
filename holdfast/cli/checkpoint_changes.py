"""`holdfast checkpoints`: the commands that change a store or make a new one. None of them works on a store that a run
owns, but for reading from it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import Json, OnlyRegion, Region, StoreUrl, print_json
from holdfast.cli.terminal import say

if TYPE_CHECKING:
    from holdfast.checkpoint.change.founding import Founded

NewStore = Annotated[str, typer.Argument(help="Place of the new store.", metavar="NEW_STORE")]
Wanted = Annotated[
    str, typer.Argument(help="Number of an epoch or name of a savepoint.", metavar="EPOCH|SAVEPOINT")
]
Drop = Annotated[
    list[str] | None, typer.Option(help="An operator whose state is left behind. Repeat for more.")
]

UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


changes = typer.Typer()


@changes.command()
def prune(
    store: StoreUrl,
    keep: Annotated[int, typer.Option(help="Newest epochs of each region that stay.", min=1)] = 3,
    older_than: Annotated[
        str | None, typer.Option(help="Only what is older: 90s, 15m, 2h, 7d.", metavar="TIME")
    ] = None,
    region: OnlyRegion = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would go.")] = False,
    as_json: Json = False,
) -> None:
    """Delete old epochs and what only they need. Savepoints and the newest epoch stay."""
    from holdfast.checkpoint.change import offline
    from holdfast.checkpoint.look.epochs import open_reader
    from holdfast.checkpoint.retention import Retention

    place = open_reader(store)
    retention = Retention(keep, None if older_than is None else seconds(older_than))
    done = offline.prune(place, retention, region, time.time(), dry_run=dry_run)
    if as_json:
        print_json(
            {"store": place.url, "dry_run": dry_run, "regions": {r: asdict(c) for r, c in done.items()}}
        )
        return
    verb = "would go" if dry_run else "went"
    for name, collected in done.items():
        epochs = ", ".join(map(str, collected.epochs)) or "none"
        say(f"region {name}: epochs that {verb}: {epochs}; stored pieces: {collected.pieces}")


@changes.command()
def fork(
    store: StoreUrl,
    wanted: Wanted,
    new_store: NewStore,
    region: Region = None,
    drop: Drop = None,
    as_json: Json = False,
) -> None:
    """Make a new store, a job of its own, that begins with an epoch of this one. The old store is only read."""
    from holdfast.checkpoint.change import fork as forks
    from holdfast.checkpoint.look.epochs import open_reader
    from holdfast.store.urls import open_store

    source, new = open_reader(store), open_store(new_store)
    made = forks.fork(source, wanted, new, region=region, drop=drop or ())
    _tell_founded(new.url, made, drop, as_json)


@changes.command()
def export(
    store: StoreUrl,
    wanted: Wanted,
    file: Annotated[Path, typer.Argument(help="New file, a tar archive.", metavar="FILE")],
    region: Region = None,
    as_json: Json = False,
) -> None:
    """Write an epoch with all it needs to one file."""
    from holdfast.checkpoint.change import transfer
    from holdfast.checkpoint.look.epochs import open_reader

    done = transfer.export(open_reader(store), wanted, file.absolute(), region=region)
    if as_json:
        print_json(asdict(done))
        return
    say(f"{done.file}: {_epochs(done.epochs)}, {done.pieces} stored pieces, {done.bytes:,} bytes")


@changes.command("import")
def import_file(
    file: Annotated[Path, typer.Argument(help="A file made by `export`.", metavar="FILE")],
    new_store: NewStore,
    drop: Drop = None,
    as_json: Json = False,
) -> None:
    """Make a new store, a job of its own, that begins with the epoch in a file."""
    from holdfast.checkpoint.change.transfer import import_into
    from holdfast.store.urls import open_store

    new = open_store(new_store)
    _tell_founded(new.url, import_into(file.absolute(), new, drop=drop or ()), drop, as_json)


@changes.command()
def reset_operator(
    store: StoreUrl,
    operator: Annotated[str, typer.Argument(help="The operator that begins anew.")],
    region: Region = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Make a new epoch from the newest one in which an operator has its initial state. One outside of regions forgets its
    own checkpoint."""
    from holdfast.checkpoint.change import reset_operator as resets
    from holdfast.checkpoint.look.epochs import open_reader

    place = open_reader(store)
    if not yes:
        plan = resets.plan_reset(place, operator, region)
        place_of = "outside of regions" if plan.region is None else f"in region {plan.region!r}"
        what = "its checkpoint" if plan.region is None else "epoch"
        _confirm(f"Forget the state of {operator!r} {place_of} as of {what} {plan.before}?")
    done = resets.reset_operator(place, operator, region)
    if as_json:
        print_json(asdict(done))
        return
    if done.region is None:
        say(f"{done.operator} begins with its initial state; checkpoint {done.before} is forgotten")
        return
    print(
        f"region {done.region}: epoch {done.epoch} is epoch {done.before} with {done.operator} in its initial state"
    )


# --- helpers ----------------------------------------------------------------------------------------------------------


def seconds(text: str) -> float:
    """`90`, `90s`, `15m`, `2h`, `7d`."""
    from holdfast.errors import ConfigError

    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if found is None:
        raise ConfigError(f"{text!r} is not a time.", cure="Write 90s, 15m, 2h or 7d.")
    return float(found[1]) * UNITS_S[found[2]]


def _confirm(question: str) -> None:
    from holdfast.errors import ConfigError

    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        raise ConfigError("nobody confirmed; nothing was changed.", cure="Answer y, or give --yes.")


def _tell_founded(url: str, made: Founded, drop: list[str] | None, as_json: bool) -> None:
    if as_json:
        print_json({"store": url, **asdict(made), "dropped": sorted(drop or ())})
        return
    say(f"{url}: begins with {_epochs(made.epochs)}; {made.pieces} stored pieces, {made.bytes:,} bytes")
    print("Its output needs places of its own: what the earlier job shows stays that job's.")


def _epochs(epochs: Mapping[str, int]) -> str:
    return ", ".join(f"epoch {epoch} of region {region}" for region, epoch in epochs.items())
