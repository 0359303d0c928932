"""Orders, payments and clicks as JSON lines: seeded, so that the same seed always gives the same bytes.

The stream comes in *ticks*; each tick is one file of each kind. A few rows are as untidy as in real life: customers
with blanks and capitals, forged signatures, orders of nothing, declined payments.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

KINDS = ("orders", "payments", "clicks")
SHOP_KEY = b"the shop's signing key"
OPENING = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
TICK = timedelta(seconds=20)
"""How much of the shop's day one tick covers."""

CATALOGUE: Mapping[str, int] = {
    "anchor": 12_900, "bollard": 48_000, "buoy": 5_450, "cleat": 1_995, "fender": 3_250, "hawser": 21_700,
    "lantern": 4_480, "oilskin": 8_900, "pennant": 1_250, "sextant": 39_900, "shackle": 890, "windlass": 129_000,
}  # fmt: skip
METHODS = ("card", "card", "card", "invoice", "wallet")
PAGES = ("/", "/search", "/basket", *(f"/item/{item}" for item in CATALOGUE))

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Volume:
    """How much is generated."""

    ticks: int = 80
    orders_per_tick: int = 1_000
    clicks_per_tick: int = 1_500
    customers: int = 2_000


def tick_file(root: Path, kind: str, tick: int) -> Path:
    """Where the rows of a tick lie. Names sort in the order in which the files arrive."""
    return root / kind / f"tick-{tick:05d}.json"


def write_input(root: Path, seed: int, volume: Volume) -> dict[str, int]:
    """Write every file of every tick below `root`; returns the number of rows per kind."""
    rows = dict.fromkeys(KINDS, 0)
    for kind in KINDS:
        (root / kind).mkdir(parents=True)
    for tick in range(volume.ticks):
        made = tick_rows(seed, tick, volume)
        for kind in KINDS:
            rows[kind] += len(made[kind])
            tick_file(root, kind, tick).write_text(_lines(made[kind]))
    return rows


def tick_rows(seed: int, tick: int, volume: Volume) -> dict[str, list[Row]]:
    """The rows of one tick, by kind. Depends on the arguments only."""
    rng = Random(f"holdfast demo {seed} {tick}")
    first = tick * volume.orders_per_tick
    orders = [_order(rng, first + n, tick, volume) for n in range(volume.orders_per_tick)]
    payments = [row for order in orders for row in _payments(rng, order)]
    clicks = [
        _click(rng, tick * volume.clicks_per_tick + n, tick, volume) for n in range(volume.clicks_per_tick)
    ]
    return {"orders": orders, "payments": payments, "clicks": clicks}


def signature(id: int, customer: str, item: str, quantity: int, price_cents: int) -> str:
    """What the shop's till signs an order with."""
    text = f"{id}|{customer}|{item}|{quantity}|{price_cents}"
    return hmac.digest(SHOP_KEY, text.encode(), hashlib.sha256).hex()[:16]


def _order(rng: Random, id: int, tick: int, volume: Volume) -> Row:
    item = rng.choice(tuple(CATALOGUE))
    quantity = rng.choice((1, 1, 1, 2, 2, 3, 5)) if rng.random() > 0.005 else 0
    customer = _customer(rng, volume)
    signed = signature(id, customer, item, quantity, CATALOGUE[item])
    return {
        "id": id,
        "customer": customer,
        "item": item,
        "quantity": quantity,
        "price_cents": CATALOGUE[item],
        "at": _moment(rng, tick),
        "signature": signed if rng.random() > 0.01 else signed[::-1],
    }


def _payments(rng: Random, order: Row) -> Iterable[Row]:
    """At most one accepted payment per order, sometimes after declined ones."""
    cents = order["quantity"] * order["price_cents"]
    while (chance := rng.random()) < 0.97:
        status = "declined" if chance < 0.06 else "pending" if chance < 0.1 else "accepted"
        yield {
            "order": order["id"],
            "customer": order["customer"],
            "cents": cents,
            "method": rng.choice(METHODS) if rng.random() > 0.02 else "CARD",
            "status": status,
            "at": order["at"],
        }
        if status != "declined":
            return


def _click(rng: Random, id: int, tick: int, volume: Volume) -> Row:
    return {
        "id": id,
        "customer": _customer(rng, volume),
        "page": rng.choice(PAGES),
        "at": _moment(rng, tick),
    }


def _customer(rng: Random, volume: Volume) -> str:
    """Few customers buy much, many buy little; some type their name in their own way."""
    name = f"c{int(volume.customers * rng.random() ** 2):05d}"
    return name if rng.random() > 0.02 else f" {name.upper()} "


def _moment(rng: Random, tick: int) -> str:
    at = OPENING + tick * TICK + timedelta(milliseconds=rng.randrange(int(TICK.total_seconds() * 1000)))
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def _lines(rows: Iterable[Row]) -> str:
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
