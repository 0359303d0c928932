"""Accounts as they are stored: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.protocol.accounts import Account, Pin


def as_data(account: Account) -> dict[str, Any]:
    return {
        "element": account.element,
        "run": account.run,
        "step": account.step,
        "taken": dict(account.taken),
        "sent": dict(account.sent),
        "in_flight": account.in_flight,
        "absorbed": dict(account.absorbed),
        "pinned": {name: [pin.step, pin.rows, pin.next_at] for name, pin in account.pinned.items()},
        "held": dict(account.held),
        "lost": dict(account.lost),
        "lost_rows": account.lost_rows,
        "reach": list(account.reach),
        "reach_of": {name: list(sinks) for name, sinks in account.reach_of.items()},
        "passed": dict(account.passed),
        "since": dict(account.since),
        "last": account.last,
        "set_back": dict(account.set_back),
    }


def from_data(data: Mapping[str, Any]) -> Account:
    return Account(
        **{
            **data,
            "pinned": {name: Pin(*pin) for name, pin in data.get("pinned", {}).items()},
            "reach": tuple(data["reach"]),
            "reach_of": {name: tuple(sinks) for name, sinks in data["reach_of"].items()},
        }
    )
