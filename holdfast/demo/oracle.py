"""What must come out, computed from the input files by plain Python: no Spark, and nothing of holdfast's operators."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.demo.generate import SHOP_KEY


class Account(NamedTuple):
    """What a customer ordered and paid."""

    events: int = 0
    orders: int = 0
    ordered_cents: int = 0
    paid_cents: int = 0
    largest_cents: int = 0


class Payment(NamedTuple):
    """An accepted payment; its order is its identity."""

    customer: str
    cents: int
    method: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Expected:
    """The right answer."""

    accounts: dict[str, Account]
    payments: dict[int, Payment]
    clicks: frozenset[int]

    @property
    def notifications(self) -> frozenset[int]:
        """Every accepted payment is acknowledged to its customer."""
        return frozenset(self.payments)


def expected(pool: Path) -> Expected:
    """The answer for all files below `pool`."""
    accounts: dict[str, Account] = {}
    payments: dict[int, Payment] = {}
    for row in _rows(pool / "orders"):
        if row["quantity"] > 0 and _is_signed(row):
            cents = row["quantity"] * row["price_cents"]
            old = accounts.get(_name(row), Account())
            accounts[_name(row)] = Account(
                old.events + 1,
                old.orders + 1,
                old.ordered_cents + cents,
                old.paid_cents,
                max(old.largest_cents, cents),
            )
    for row in _rows(pool / "payments"):
        if row["status"] == "accepted" and row["cents"] > 0:
            old = accounts.get(_name(row), Account())
            accounts[_name(row)] = old._replace(
                events=old.events + 1, paid_cents=old.paid_cents + row["cents"]
            )
            assert row["order"] not in payments, "the generator makes one accepted payment per order"
            moment = datetime.fromisoformat(row["at"])
            payments[row["order"]] = Payment(_name(row), row["cents"], row["method"].lower(), moment)
    return Expected(accounts, payments, frozenset(row["id"] for row in _rows(pool / "clicks")))


def _rows(directory: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(directory.iterdir()):
        with path.open() as file:
            yield from map(json.loads, file)


def _name(row: dict[str, Any]) -> str:
    return str(row["customer"]).strip().lower()


def _is_signed(row: dict[str, Any]) -> bool:
    text = "|".join(str(row[key]) for key in ("id", "customer", "item", "quantity", "price_cents"))
    right = hmac.new(SHOP_KEY, text.encode(), hashlib.sha256).hexdigest()
    return hmac.compare_digest(row["signature"], right[:16])
