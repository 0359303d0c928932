"""What every back end refuses in the same words. Each function makes an error; the caller raises it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.errors import FencedError, OwnedError, StoreError
from holdfast.ids import Epoch, RegionName


def key_of(place: str, entry: str, key: str) -> str:
    return f"{place} ({entry}/{key})"


# --- ownership ---
def no_store(place: str) -> StoreError:
    return StoreError(
        f"there is no store at {place}.", cure="Check the place; a run creates its store when it starts."
    )


def not_owned(place: str) -> StoreError:
    return StoreError(f"{place} is not owned by this run.", cure="Acquire the store before writing.")


def owned(place: str, info: Mapping[str, Any] | None) -> OwnedError:
    who = "another run"
    if info:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(info.get("since", 0)))
        who = f"process {info.get('pid')} on {info.get('host')} (since {since}, token {info.get('token')})"
    return OwnedError(
        f"{place} is owned by {who}.",
        cure="Stop that run, or take over with --take-over: the other run is then refused every further write.",
    )


def fenced(place: object, token: int | None) -> FencedError:
    return FencedError(
        f"{place} has a newer owner than this run (token {token}).",
        cure="This run stops here; the newer one goes on from the last published epoch.",
    )


# --- entries, pairs, segments ---
def no_entry(place: object, entry: str) -> StoreError:
    return StoreError(f"{place} has no entry {entry!r}.", cure="Create the entry first.")


def is_segment(where: object) -> StoreError:
    return StoreError(f"{where} is a segment; a pair cannot replace it.")


def is_pair(where: object) -> StoreError:
    return StoreError(f"{where} holds a pair; a segment cannot replace it.")


def other_bytes(where: object) -> StoreError:
    return StoreError(f"{where} exists with other bytes; a segment is never overwritten.")


def no_local_file(local: object) -> StoreError:
    return StoreError(f"{local} is to be stored as a segment, but does not exist.")


def wrong_checksum(local: object) -> StoreError:
    return StoreError(f"{local} does not have the checksum its writer gave.")


# --- epochs ---
def refuse_stale(place: str, region: RegionName, epoch: Epoch, published: Iterable[int]) -> None:
    """StoreError unless the epoch is newer than all that are published."""
    newest = max(published, default=-1)
    if epoch <= newest:
        raise StoreError(
            f"epoch {epoch} of region {region!r} is not newer than {newest}, the newest one in {place}.",
            cure="An epoch is published once; start the run again to go on after the newest one.",
        )
