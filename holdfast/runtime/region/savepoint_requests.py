"""Savepoints of a running region: an epoch is established now and gets a name.

A name belongs to the first epoch that begins after it was asked for. An epoch that is abandoned passes its names on to
the next one. Whoever asked hears of every end: named, or not and why.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.checkpoint.savepoints import Savepoints
from holdfast.errors import ConfigError, HoldfastError, StoreError
from holdfast.ids import Epoch, RegionName
from holdfast.runtime.failures import is_fatal, story_of
from holdfast.runtime.telling.events import SavepointDeleted, SavepointFailed, SavepointNamed
from holdfast.runtime.telling.feed import Announce

if TYPE_CHECKING:
    from holdfast.runtime.region.region import Region


@dataclass
class Request:
    """A name that was asked for. When `done` is set, `epoch` has it, or `reason` says why none has."""

    name: str
    id: str
    done: threading.Event = field(default_factory=threading.Event)
    epoch: Epoch | None = None
    reason: str = ""


class Naming:
    """Names asked for one region. `ask` and `remove` from any thread, the rest by the region's thread."""

    def __init__(self, region: RegionName, savepoints: Savepoints, announce: Announce) -> None:
        self._region = region
        self._savepoints = savepoints
        self._announce = announce
        self._lock = threading.Lock()
        self._asked: list[Request] = []
        self._under_way: list[Request] = []
        self._over = ""

    def refuse(self, name: str) -> None:
        """ConfigError if the name cannot be given."""
        self._savepoints.refuse_taken(name)
        with self._lock:
            if self._over:
                raise ConfigError(f"region {self._region!r} has ended: {self._over}.", cure="Run again.")
            if any(asked.name == name for asked in self._asked):
                raise ConfigError(
                    f"a savepoint {name!r} of region {self._region!r} is under way already.",
                    cure="Wait for it, or choose another name.",
                )

    def ask(self, name: str, id: str) -> Request:
        """Remember that the name is wanted."""
        request = Request(name, id)
        with self._lock:
            self._asked.append(request)
            over = self._over
        if over:
            self.give_up(over)
        return request

    def remove(self, name: str) -> None:
        point = self._savepoints.remove(name)
        self._announce(SavepointDeleted(self._region, name, point.epoch))

    @property
    def waiting(self) -> bool:
        with self._lock:
            return bool(self._asked)

    def begin(self, drained: bool) -> None:
        """An epoch begins. If nothing will be in flight at it, it gets the names asked for so far; another one of
        that kind follows otherwise, for it was asked for with the names."""
        with self._lock:
            self._under_way = list(self._asked) if drained else []

    def published(self, epoch: Epoch, wall: float) -> None:
        """The epoch exists: name it."""
        with self._lock:
            requests, self._under_way = self._under_way, []
            self._asked = [asked for asked in self._asked if asked not in requests]
        for request in requests:
            try:
                self._savepoints.add(request.name, epoch, wall)
            except Exception as error:
                self._end(request, None, story_of(error))
                if is_fatal(error):
                    raise
            else:
                self._end(request, epoch, "")

    def give_up(self, reason: str) -> None:
        """No epoch will follow."""
        with self._lock:
            requests, self._asked, self._under_way, self._over = self._asked, [], [], reason
        for request in requests:
            self._end(request, None, reason)

    def _end(self, request: Request, epoch: Epoch | None, reason: str) -> None:
        if epoch is None:
            self._announce(SavepointFailed(request.name, request.id, reason, self._region))
        else:
            self._announce(SavepointNamed(self._region, request.name, epoch, request.id))
        request.epoch, request.reason = epoch, reason
        request.done.set()


# --- what a job does with it ----------------------------------------------------------------------------------------


def establish(
    regions: Mapping[RegionName, Region], name: str, region: str | None, timeout: float | None
) -> dict[str, int]:
    """Name an epoch of every region, or of one, and wait for it. Returns the epochs by region."""
    requests = _ask(_chosen(regions, region), name, secrets.token_hex(8))
    for where, request in requests.items():
        if not request.done.wait(timeout):
            raise StoreError(
                f"savepoint {name!r} of region {where!r} is not there after {timeout} s; it may still come.",
                cure="Look with `holdfast savepoint STORE --list`.",
            )
        if request.epoch is None:
            raise StoreError(
                f"savepoint {name!r} of region {where!r} was not made: {request.reason}.", cure="Try again."
            )
    return {str(where): int(request.epoch or 0) for where, request in requests.items()}


def answer(
    regions: Mapping[RegionName, Region], command: str, data: Mapping[str, Any], announce: Announce
) -> None:
    """Do what a mail asks: `savepoint` or `savepoint.delete` with name, region (None: all) and id."""
    name, id = str(data.get("name")), str(data.get("id"))
    try:
        chosen = _chosen(regions, data.get("region"))
        if command == "savepoint":
            _ask(chosen, name, id)
        else:
            for region in chosen:
                region.naming.remove(name)
    except HoldfastError as error:
        if is_fatal(error):
            raise
        announce(SavepointFailed(name, id, str(error)))


def _ask(regions: Sequence[Region], name: str, id: str) -> dict[RegionName, Request]:
    """Ask all of them, or none if one refuses."""
    for region in regions:
        region.naming.refuse(name)
        if region.parked:
            raise ConfigError(
                f"region {region.plan.name!r} is parked and establishes no epoch.",
                cure="Resume it first, or end the run and name its newest epoch.",
            )
    return {region.plan.name: region.savepoint(name, id) for region in regions}


def _chosen(regions: Mapping[RegionName, Region], region: Any) -> list[Region]:
    if region is None and regions:
        return list(regions.values())
    if not isinstance(region, str) or region not in regions:
        raise ConfigError(
            "this run has no region." if region is None else f"this run has no region {region!r}.",
            cure=f"Regions are {', '.join(regions) or 'none'}.",
        )
    return [regions[RegionName(region)]]
