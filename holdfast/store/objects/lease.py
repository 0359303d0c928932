"""Ownership of a store of objects. There is no lock and no common clock, so an owner's signs of life are watched.

    alive/<token>    a number the owner replaces by another one, several times per lease, and how many seconds that is; gone when it lets go

An owner without this object, or whose process on this very machine is gone, is dead. One that runs here is alive. Of
any other, whoever wants the store waits until the number changes (alive) or a whole lease, as the owner said, has passed (dead). While
nothing happens in its run an owner takes longer leases, for every sign costs money.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast.ids import OwnerToken
from holdfast.store import liveness, refusals
from holdfast.store.liveness import Heart
from holdfast.store.objects.bucket import Bucket
from holdfast.store.objects.contents_log import Log, State

IDLE_LEASES = 3
"""While nothing happens a lease is so many times as long."""
LEASE_MAX_S = 86_400.0


def sign(token: int) -> str:
    return f"alive/{token:010d}"


def seems_alive(bucket: Bucket, record: Mapping[str, Any]) -> bool:
    """What shows at once: True also if only waiting could show it."""
    return not liveness.has_ended(record) and bucket.exists(sign(record["token"]))


def is_alive(bucket: Bucket, record: Mapping[str, Any]) -> bool:
    """Whether the owner lives. May take a lease."""
    if not seems_alive(bucket, record):
        return False
    if liveness.runs_here(record):
        return True
    first = bucket.read(sign(record["token"]))
    lease_s = _said(first) or bucket.place.lease_s
    end = time.monotonic() + lease_s
    while time.monotonic() < end:
        time.sleep(min(0.5, lease_s / 20))
        found = bucket.read(sign(record["token"]))
        if found != first:
            return found is not None
    return False


def claim(log: Log, *, take_over: bool) -> OwnerToken:
    """Become the owner: the next state names this process, with the next token."""
    bucket, nonce = log.bucket, secrets.token_hex(8)
    judged = signed = -1

    def step(state: State) -> State | None:
        nonlocal judged, signed
        if state.owner.get("nonce") == nonce:
            return None
        if state.owner and state.token != judged and not take_over:
            if is_alive(bucket, state.owner):
                raise refusals.owned(bucket.url, state.owner)
            judged = state.token
        token = state.token + 1
        if token != signed:
            # Before the claim: an owner without a sign of life would be taken for dead by whoever comes next.
            bucket.replace(sign(token), nonce.encode())
            signed = token
        return replace(state, token=token, owner={"token": token, **liveness.this_process(), "nonce": nonce})

    log.forget()
    return OwnerToken(log.change(None, step).token)


def clear_up(log: Log, token: int) -> None:
    """Delete what earlier owners left behind without a reference."""
    bucket, state = log.bucket, log.seen()
    needed = state.refs()
    blobs = [
        f"blobs/{name}" for name in bucket.names("blobs") if name[:10].isdigit() and int(name[:10]) < token
    ]
    bucket.delete(name for name in blobs if name not in needed)
    for entry in set(bucket.names("segments")) - set(state.entries):
        bucket.delete(f"segments/{entry}/{key}" for key in bucket.names(f"segments/{entry}"))
    signs = [name for name in bucket.names("alive") if name.isdigit() and int(name) < token]
    bucket.delete(f"alive/{name}" for name in signs)


def start_heart(bucket: Bucket, token: int) -> Heart:
    def beat(lease_s: float) -> None:
        bucket.replace(sign(token), f"{secrets.token_hex(8)} {lease_s:g}".encode())

    beat(bucket.place.lease_s)
    return Heart(bucket.place.lease_s, beat, lambda: bucket.delete([sign(token)]))


def _said(found: bytes | None) -> float | None:
    """How long a lease is, by its owner's word. None: it did not say, or nothing that can be meant."""
    try:
        lease_s = float((found or b"").decode().split()[1])
    except (ValueError, IndexError):
        return None
    return lease_s if 0 < lease_s <= LEASE_MAX_S else None
