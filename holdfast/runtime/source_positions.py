"""Where each source goes on: positions belong to sources, whatever element or region they are in.

A source is found by its name. One that was moved, renamed or swapped is found where it was, or refused with both names:
to read it from its beginning would bring all its rows again. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import MismatchError
from holdfast.ids import Epoch, OperatorName, RegionName

SourceName = OperatorName


@dataclass(frozen=True, slots=True)
class KnownPosition:
    """Where a source outside of regions stands, and what it said it reads."""

    state: Any
    described: str | None = None


@dataclass(frozen=True, slots=True)
class SourceNow:
    """A source as the program has it."""

    region: RegionName | None
    described: str
    named: bool = True
    """False: its name follows from the order of lines, so what it reads tells which it is."""


@dataclass(frozen=True, slots=True)
class RegionThen:
    """The newest epoch of a region in the store, and the sources whose positions it holds."""

    epoch: Epoch
    sources: frozenset[SourceName]


def beginnings(
    now: Mapping[SourceName, SourceNow],
    alone: Mapping[SourceName, KnownPosition],
    regions: Mapping[RegionName, RegionThen],
) -> dict[SourceName, Any]:
    """Positions with which sources of regions that have no epoch yet begin. MismatchError if one cannot be found."""
    held = {name: region for region, then in regions.items() for name in then.sources}
    _refuse_swapped(now, alone)
    _refuse_renamed(now, alone, held)
    found: dict[SourceName, Any] = {}
    for name, source in now.items():
        before = held.get(name)
        if before is not None and before != source.region:
            raise _moved(name, source, before, regions)
        if source.region is not None and before is None and name in alone:
            if source.region in regions:
                raise _joined_late(name, source.region)
            found[name] = alone[name].state
    return found


def _refuse_swapped(now: Mapping[SourceName, SourceNow], alone: Mapping[SourceName, KnownPosition]) -> None:
    changed = {
        name: then.described
        for name, source in now.items()
        if (then := alone.get(name)) is not None and then.described not in (None, source.described)
    }
    for name, before in changed.items():
        source = now[name]
        for other, known in alone.items():
            # A name that the user gave decides, unless it was exchanged with another.
            is_moved = not source.named or other in changed
            if other != name and is_moved and known.described == source.described:
                raise MismatchError(
                    f"source {name!r} reads {source.described} now, which was source {other!r} when this store was "
                    f"written; {name!r} was {before}.",
                    cure='Give sources names, with name="…", and each the name it had.',
                )


def _refuse_renamed(
    now: Mapping[SourceName, SourceNow],
    alone: Mapping[SourceName, KnownPosition],
    held: Mapping[SourceName, RegionName],
) -> None:
    new = {name: s.described for name, s in now.items() if name not in alone and name not in held}
    for gone, known in alone.items():
        if gone in now:
            continue
        for name, described in new.items():
            if known.described in (None, described):
                raise MismatchError(
                    f"source {name!r} is new and source {gone!r} is gone: under its new name it would be read from the "
                    f"beginning again.",
                    cure=f"Name it {gone!r} again, or start with a new store.",
                )


def _moved(
    name: SourceName, source: SourceNow, before: RegionName, regions: Mapping[RegionName, RegionThen]
) -> MismatchError:
    place = f"in region {source.region!r}" if source.region is not None else "outside of regions"
    back = f".consistent(name={str(before)!r})"
    # In mode `independent` a region has one of its own for each element.
    if str(source.region).startswith(f"{before}."):
        back = "the mode that the region had before mode='independent'"
    elif str(before).startswith(f"{source.region}."):
        back = "mode='independent'"
    return MismatchError(
        f"source {name!r} is {place} now, but its position is in region {before!r} of this store "
        f"(epoch {regions[before].epoch}).",
        cure=f"Put it back, with {back}, or start with a new store.",
    )


def _joined_late(name: SourceName, region: RegionName) -> MismatchError:
    return MismatchError(
        f"source {name!r} was outside of regions and is in region {region!r} now, whose epochs do not know it.",
        cure="Leave it outside of the region, or fork the store: `holdfast checkpoints fork`.",
    )
