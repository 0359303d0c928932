"""`holdfast savepoint`: name an epoch, so that it stays. A live run establishes one for it; else the newest is named."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from holdfast.checkpoint.savepoints import Savepoint
    from holdfast.ids import RegionName
    from holdfast.store.base import Store

POLL_S = 0.1


def register(app: typer.Typer) -> None:
    """Add the command to `holdfast`."""
    app.command("savepoint")(savepoint)


def savepoint(
    store: Annotated[str, typer.Argument(help="Store: a path, file:PATH or sqlite:PATH.", metavar="STORE")],
    name: Annotated[str | None, typer.Argument(help="Name of the new savepoint.")] = None,
    region: Annotated[str | None, typer.Option(help="Only this region; without it all.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List savepoints.")] = False,
    delete: Annotated[str | None, typer.Option(help="Delete the savepoint of this name.")] = None,
    wait: Annotated[bool, typer.Option(help="Wait until a live run has done it.")] = True,
    timeout: Annotated[float, typer.Option(help="Seconds to wait at most.", min=0)] = 300.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Name an epoch: it stays until its name is deleted. A live run establishes a new epoch for it."""
    from holdfast.checkpoint.look.epochs import open_reader
    from holdfast.errors import ConfigError

    if sum((name is not None, listed, delete is not None)) != 1:
        raise ConfigError(
            "one of NAME, --list and --delete NAME is needed.", cure="See `holdfast savepoint --help`."
        )
    place = open_reader(store)
    if listed:
        _show_list(place, region, as_json)
        return
    owner = place.owner()
    if owner is None or not owner.get("alive"):
        done = _offline(place, name, delete, region)
        _tell(place, "deleted" if delete is not None else "named", done, as_json)
    elif delete is not None:
        _delete_live(place, delete, region, wait, timeout, as_json)
    else:
        assert name is not None
        _name_live(place, name, region, wait, timeout, as_json)


def _offline(place: Store, name: str | None, delete: str | None, region: str | None) -> list[Savepoint]:
    from holdfast.checkpoint.change.offline import delete_name, name_newest

    if delete is not None:
        return delete_name(place, delete, region)
    assert name is not None
    return name_newest(place, name, region, time.time())


# --- on a live run ----------------------------------------------------------------------------------------------------


def _name_live(
    place: Store, name: str, region: str | None, wait: bool, timeout: float, as_json: bool
) -> None:
    from holdfast.checkpoint import savepoints

    savepoints.check_name(name)
    where = _regions_of_run(place, region)
    for each in where:
        savepoints.Savepoints(place, each).refuse_taken(name)
    id = _post(place, "savepoint", name, region)
    if not wait:
        _tell_asked(place, f"savepoint {name!r}", as_json)
        return
    _await(
        place,
        id,
        timeout,
        f"savepoint {name!r}",
        lambda: all(name in savepoints.read(place, r) for r in where),
    )
    _tell(place, "named", [savepoints.read(place, each)[name] for each in where], as_json)


def _delete_live(
    place: Store, name: str, region: str | None, wait: bool, timeout: float, as_json: bool
) -> None:
    from holdfast.checkpoint import savepoints
    from holdfast.checkpoint.change.offline import having

    where = having(place, name, region)
    gone = [savepoints.read(place, each)[name] for each in where]
    ids = [_post(place, "savepoint.delete", name, str(each)) for each in where]
    if not wait:
        _tell_asked(place, f"the deletion of savepoint {name!r}", as_json)
        return
    for each, id in zip(where, ids, strict=True):
        _await(
            place, id, timeout, f"the deletion of savepoint {name!r}",
            lambda each=each: name not in savepoints.read(place, each),
        )  # fmt: skip
    _tell(place, "deleted", gone, as_json)


def _regions_of_run(place: Store, region: str | None) -> list[RegionName]:
    """The regions a live run has, also those without an epoch yet."""
    from holdfast.checkpoint.look.epochs import regions
    from holdfast.errors import ConfigError
    from holdfast.ids import RegionName

    events = place.events()
    begun = max((n for n, event in enumerate(events) if event.kind == "run.started"), default=0)
    summaries = [event.data for event in events[begun:] if event.kind == "summary"]
    told = [RegionName(str(name)) for data in summaries[-1:] for name in data.get("regions", {})]
    found = sorted(told or regions(place))  # at first a run has not told yet
    if not found or (region is not None and region not in found):
        what = "no region yet" if region is None else f"no region {region!r}"
        raise ConfigError(
            f"the run on {place.url} has {what}.",
            cure=f"Regions are {', '.join(found)}." if found else "Try again in a moment.",
        )
    return found if region is None else [RegionName(region)]


def _post(place: Store, command: str, name: str, region: str | None) -> str:
    import secrets

    id = secrets.token_hex(8)
    place.post(command, {"name": name, "region": region, "id": id})
    return id


def _await(place: Store, id: str, timeout: float, what: str, is_done: Any) -> None:
    """Until it is done. StoreError saying that it was not, and why, if the run ended or refused it."""
    from holdfast.errors import StoreError

    deadline = time.monotonic() + timeout
    while True:
        owner = place.owner()  # looked at first: what the run did before its end counts
        failed = [
            event.data for event in place.events() if event.data.get("id") == id and "reason" in event.data
        ]
        if is_done():
            return
        if failed:
            raise StoreError(f"{what} was not made: {failed[0]['reason']}", cure="Mend that and ask again.")
        if owner is None or not owner.get("alive"):
            raise StoreError(f"the run on {place.url} ended before {what} was done.", cure="Ask again.")
        if time.monotonic() > deadline:
            raise StoreError(
                f"{what} was not done within {timeout:g} s; it may still come.",
                cure=f"Look with `holdfast savepoint {place.url} --list`.",
            )
        time.sleep(POLL_S)


# --- printing ---------------------------------------------------------------------------------------------------------


def _tell(place: Store, what: str, points: list[Savepoint], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"store": place.url, what: [_as_dict(point) for point in points]}))
        return
    for point in points:
        print(f"savepoint {point.name}: {what} epoch {point.epoch} of region {point.region} in {place.url}"
              if what == "named" else f"savepoint {point.name} of region {point.region}: deleted; "
              f"epoch {point.epoch} goes with the next collection unless something else keeps it")  # fmt: skip


def _tell_asked(place: Store, what: str, as_json: bool) -> None:
    print(
        json.dumps({"store": place.url, "asked": True})
        if as_json
        else f"{what}: asked the run on {place.url}"
    )


def _show_list(place: Store, region: str | None, as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from holdfast.checkpoint import savepoints
    from holdfast.checkpoint.look.epochs import choose_region, regions

    where = regions(place) if region is None else [choose_region(place, region)]
    points = [point for each in where for point in savepoints.read(place, each).values()]
    if as_json:
        print(json.dumps([_as_dict(point) for point in points]))
        return
    table = Table("savepoint", "region", "epoch", "named at", title=place.url, title_justify="left")
    for point in points:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(point.wall))
        table.add_row(point.name, point.region, str(point.epoch), when)
    Console().print(table)


def _as_dict(point: Savepoint) -> dict[str, Any]:
    return {"name": point.name, "region": point.region, "epoch": point.epoch, "wall": point.wall}
