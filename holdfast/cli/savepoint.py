"""`holdfast savepoint`: name an epoch, so that it stays. A live run establishes one for it; else the newest is named."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import Json, OnlyRegion, StoreUrl, print_json
from holdfast.cli.terminal import say
from holdfast.store import locks

if TYPE_CHECKING:
    from holdfast.checkpoint.savepoints import Savepoint
    from holdfast.ids import RegionName
    from holdfast.store.base import Store

POLL_S = 0.1


def savepoint(
    store: StoreUrl,
    name: Annotated[str | None, typer.Argument(help="Name of the new savepoint.")] = None,
    region: OnlyRegion = None,
    listed: Annotated[bool, typer.Option("--list", help="List savepoints.")] = False,
    delete: Annotated[str | None, typer.Option(help="Delete the savepoint of this name.")] = None,
    wait: Annotated[bool, typer.Option(help="Wait until a live run has done it.")] = True,
    timeout: Annotated[float, typer.Option(help="Seconds to wait at most.", min=0)] = 300.0,
    as_json: Json = False,
) -> None:
    """Name an epoch: it stays until its name is deleted. A live run establishes a new epoch for it."""
    from holdfast.checkpoint.change import offline
    from holdfast.checkpoint.look.epochs import open_reader
    from holdfast.errors import ConfigError

    if sum((name is not None, listed, delete is not None)) != 1:
        raise ConfigError(
            "one of NAME, --list and --delete NAME is needed.", cure="See `holdfast savepoint --help`."
        )
    place = open_reader(store)
    wait_s, live = timeout if wait else None, _is_live(place)
    if delete is not None:
        gone = (
            _delete_live(place, delete, region, wait_s)
            if live
            else offline.delete_name(place, delete, region)
        )
        _tell(place, "deleted", f"the deletion of savepoint {delete!r}", gone, as_json)
    elif name is None:
        _show_list(place, region, as_json)
    elif live:
        _tell(place, "named", f"savepoint {name!r}", _name_live(place, name, region, wait_s), as_json)
    else:
        _tell(place, "named", "", offline.name_newest(place, name, region, time.time()), as_json)


# --- on a live run: what it did, or None if nobody waits for it (`wait_s` is None) --------------------------------------


def _name_live(place: Store, name: str, region: str | None, wait_s: float | None) -> list[Savepoint] | None:
    from holdfast.checkpoint import savepoints

    savepoints.check_name(name)
    where = _regions_of_run(place, region)
    for each in where:
        savepoints.Savepoints(place, each).refuse_taken(name)
    id = _post(place, "savepoint", name, region)
    if wait_s is None:
        return None
    what = f"savepoint {name!r}"
    _await(place, [id], wait_s, what, lambda: all(name in savepoints.read(place, each) for each in where))
    return [savepoints.read(place, each)[name] for each in where]


def _delete_live(place: Store, name: str, region: str | None, wait_s: float | None) -> list[Savepoint] | None:
    from holdfast.checkpoint import savepoints
    from holdfast.checkpoint.look.epochs import choose_savepoint

    gone = list(choose_savepoint(place, name, region).values())
    ids = [_post(place, "savepoint.delete", name, point.region) for point in gone]
    if wait_s is None:
        return None
    what = f"the deletion of savepoint {name!r}"
    _await(place, ids, wait_s, what, lambda: all(name not in savepoints.read(place, p.region) for p in gone))
    return gone


def _is_live(place: Store) -> bool:
    owner = place.owner()
    return owner is not None and bool(owner.get("alive"))


def _regions_of_run(place: Store, region: str | None) -> list[RegionName]:
    """The regions a live run has, also those without an epoch yet."""
    from holdfast.checkpoint.look.epochs import regions
    from holdfast.errors import ConfigError
    from holdfast.ids import RegionName

    events = place.events()
    begun = max((n for n, event in enumerate(events) if event.kind == "run.started"), default=0)
    summaries = [event.data for event in events[begun:] if event.kind == "summary"]
    named = [RegionName(str(name)) for data in summaries[-1:] for name in data.get("regions", {})]
    found = sorted(named or regions(place))  # a run names its regions a moment after its start
    if not found or (region is not None and region not in found):
        what = "no region yet" if region is None else f"no region {region!r}"
        raise ConfigError(
            f"the run on {place.url} has {what}.",
            cure=f"Regions are {', '.join(found)}." if found else "Try again in a moment.",
        )
    return found if region is None else [RegionName(region)]


def _post(place: Store, command: str, name: str, region: str | None) -> str:
    id = secrets.token_hex(8)
    place.post(command, {"name": name, "region": region, "id": id, "by": locks.signed()})
    return id


def _await(
    place: Store, ids: Sequence[str], timeout_s: float, what: str, is_done: Callable[[], bool]
) -> None:
    """Until it is done. StoreError saying that it was not, and why, if the run ended or refused it."""
    from holdfast.errors import StoreError

    deadline = time.monotonic() + timeout_s
    while True:
        live = _is_live(place)  # looked at first: what the run did before its end counts
        answers = [event.data for event in place.events() if event.data.get("id") in ids]
        if is_done():
            return
        if failed := [answer["reason"] for answer in answers if "reason" in answer]:
            raise StoreError(f"{what} was not made: {failed[0]}", cure="Mend that and ask again.")
        if not live:
            raise StoreError(f"the run on {place.url} ended before {what} was done.", cure="Ask again.")
        if time.monotonic() > deadline:
            raise StoreError(
                f"{what} was not done within {timeout_s:g} s; it may still come.",
                cure=f"Look with `holdfast savepoint {place.url} --list`.",
            )
        time.sleep(POLL_S)


# --- printing ---------------------------------------------------------------------------------------------------------


def _tell(place: Store, verb: str, what: str, points: list[Savepoint] | None, as_json: bool) -> None:
    """What became of savepoints; None: the run was asked for it, and nobody waited."""
    if as_json:
        done = {"asked": True} if points is None else {verb: [asdict(point) for point in points]}
        print_json({"store": place.url, **done})
    elif points is None:
        say(f"{what}: asked the run on {place.url}")
    for point in points or () if not as_json else ():
        say(f"savepoint {point.name}: named epoch {point.epoch} of region {point.region} in {place.url}"
              if verb == "named" else f"savepoint {point.name} of region {point.region}: deleted; "
              f"epoch {point.epoch} goes with the next collection unless something else keeps it")  # fmt: skip


def _show_list(place: Store, region: str | None, as_json: bool) -> None:
    from rich.table import Table

    from holdfast.checkpoint import savepoints
    from holdfast.checkpoint.look.epochs import choose_region, regions
    from holdfast.cli.terminal import console

    where = regions(place) if region is None else [choose_region(place, region)]
    points = [point for each in where for point in savepoints.read(place, each).values()]
    if as_json:
        print_json([asdict(point) for point in points])
        return
    table = Table("savepoint", "region", "epoch", "named at", title=place.url, title_justify="left")
    for point in points:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(point.wall))
        table.add_row(point.name, point.region, str(point.epoch), when)
    console().print(table)
