"""What the sinks of golden_manifest_2 must show in the end, from the input alone: lists and loops, without holdfast."""

from __future__ import annotations

import datetime as dt
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golden_files import Row, rows_of

CLICKS, CLICKS_LATER = 63, 74
"""Before the kill, and after it."""
SECOND = 1000
DELAY, GAP = 2 * SECOND, 30 * SECOND
"""Times are milliseconds since 1970."""


def computed(root: Path) -> dict[str, list[Row]]:
    """The rows of every sink; of change logs the last row of each key."""
    orders, payments = (rows_of(root / "input" / name, "*.json") for name in ("orders", "payments"))
    return {
        "ledger": list(_ledger(orders)),
        "totals": list(_totals(orders)),
        "sessions": list(_sessions(orders)),
        "sales": list(_sales(orders)),
        "matched": list(_matched(orders, payments)),
        "paid": [_pair(o, p, "order") for o in orders for p in payments if o["id"] == p["order"]],
        "near": list(_near(orders, payments)),
        "tally": list(_tally()),
        "visits": list(_visits()),
        "lately": list(_lately()),
    }


def page_of(click: int) -> str:
    return f"page {click if click < 9 else click * 7 % 3}"


def time_of(row: Row) -> int:
    return round(dt.datetime.fromisoformat(row["at"]).timestamp() * SECOND)


def stamp(moment: int) -> str:
    """As sinks write it, and the input has it."""
    told = dt.datetime.fromtimestamp(moment / SECOND, dt.UTC).isoformat(timespec="milliseconds")
    return told.replace("+00:00", "Z")


def watermark(rows: list[Row]) -> int:
    return max(map(time_of, rows)) - DELAY


def crc(value: Any) -> int:
    return zlib.crc32(repr(value).encode())


# --- in the region ----------------------------------------------------------------------------------------------------


def _ledger(orders: list[Row]) -> Iterator[Row]:
    totals: dict[str, int] = {}
    baskets: dict[int, list[int]] = {}
    line: list[int] = []
    title = ""
    for number, row in enumerate(orders):
        totals[row["user"]] = totals.get(row["user"], 0) + row["amount"]
        baskets.setdefault(row["amount"] % 3, []).append(row["id"])
        line.insert(len(line) // 2, row["id"])
        line = line[1:] if row["id"] % 3 == 0 else line
        if row["id"] % 40 == 0:
            title = f"since {row['id']}"
            totals.pop(f"u{row['id'] // 40:03}", None)
        so_far = orders[: number + 1]
        amounts = [each["amount"] for each in so_far]
        last = tuple(each["id"] for each in so_far[-3:])
        names = len({each["user"] for each in so_far})
        whole = [totals, baskets, line, amounts[-60:], title, 2**80 + sum(amounts), last, names]
        yield {"id": row["id"], "seen": number + 1, "shown": crc(whole)}


def _totals(orders: list[Row]) -> Iterator[Row]:
    for user, rows in _by(orders, "user").items():
        amounts = [row["amount"] for row in rows]
        yield {
            "user": user,
            "n": len(amounts),
            "total": sum(amounts),
            "low": min(amounts),
            "top": max(amounts),
            "mean": sum(amounts) / len(amounts),
        }


def _sessions(orders: list[Row]) -> Iterator[Row]:
    """A session ends when the watermark, at the user's next order or in the end, has reached its last order and the gap."""
    reached: dict[int, int] = {}
    for row in orders:
        reached[row["id"]] = max([time_of(row), *reached.values()])
    for user, rows in _by(orders, "user").items():
        begin = 0
        for end in range(1, len(rows) + 1):
            mark = reached[rows[end]["id"]] - DELAY if end < len(rows) else watermark(orders)
            if mark >= time_of(rows[end - 1]) + GAP:
                yield _session(user, rows[:end], end - begin)
                begin = end


def _session(user: str, rows: list[Row], orders: int) -> Row:
    """What a user says when the last so many orders have become a session."""
    spent: dict[int, int] = {}
    for row in rows:
        spent[row["amount"] % 3] = spent.get(row["amount"] % 3, 0) + row["amount"]
    ended = dt.datetime.fromisoformat(rows[-1]["at"]) + dt.timedelta(milliseconds=GAP)
    said = f"{spent} {[row['id'] for row in rows[-3:]]}"
    return {"user": user, "ended": ended.isoformat(), "orders": orders, "said": said}


def _sales(orders: list[Row]) -> Iterator[Row]:
    """Windows of 20 s, every 10 s."""
    windows: dict[int, list[int]] = defaultdict(list)
    for row in orders:
        latest = time_of(row) // (10 * SECOND) * 10 * SECOND
        for begin in (latest - 10 * SECOND, latest):
            windows[begin].append(row["amount"])
    for begin, amounts in windows.items():
        end = begin + 20 * SECOND
        if end <= watermark(orders):
            told = {"n": len(amounts), "total": sum(amounts)}
            yield {"window_start": stamp(begin), "window_end": stamp(end), **told}


def _matched(orders: list[Row], payments: list[Row]) -> Iterator[Row]:
    """The payment from 30 s before to 20 s after; an order without one when none can come any more."""
    for order in orders:
        pairs = [
            payment
            for payment in payments
            if payment["order"] == order["id"]
            and -30 * SECOND <= time_of(payment) - time_of(order) <= 20 * SECOND
        ]
        yield from (_pair(order, payment, "order") for payment in pairs)
        if not pairs and time_of(order) + 20 * SECOND < watermark(payments):
            yield _pair(order, dict.fromkeys(payments[0]))


def _near(orders: list[Row], payments: list[Row]) -> Iterator[Row]:
    """In the order of event time: a payment meets those of the last 12 orders, an order those payments of the last 8 s
    that are of the same user."""
    until = min(watermark(orders), watermark(payments))
    both = [(time_of(row), side, row) for side, rows in enumerate((orders, payments)) for row in rows]
    seen: tuple[list[Row], list[Row]] = ([], [])
    for moment, side, row in sorted(both, key=lambda each: each[:2]):
        if moment >= until:
            break
        if side == 0:
            near = [each for each in seen[1] if time_of(each) > moment - 8 * SECOND]
            yield from (_pair(row, each) for each in near if each["user"] == row["user"])
        else:
            yield from (_pair(each, row) for each in seen[0][-12:] if each["user"] == row["user"])
        seen[side].append(row)


def _pair(order: Row, payment: Row, key: str = "user") -> Row:
    """`key`: the payment's column that the order tells already."""
    right = {name: value for name, value in payment.items() if name != key and value is not None}
    return order | {f"{name}_right" if name in order else name: value for name, value in right.items()}


def _by(rows: list[Row], name: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[name]].append(row)
    return found


# --- outside of it ----------------------------------------------------------------------------------------------------


def _tally() -> Iterator[Row]:
    pages = {f"page {number}": 0 for number in range(60)}
    for n in range(CLICKS_LATER):
        pages[page_of(n)] += 1
        yield {"n": n, "seen": n + 1, "shown": crc(pages)}


def _visits() -> Iterator[Row]:
    clicks = [{"n": n, "page": page_of(n)} for n in range(CLICKS_LATER)]
    for page, rows in _by(clicks, "page").items():
        yield {"page": page, "n": len(rows), "last": max(row["n"] for row in rows)}


def _lately() -> Iterator[Row]:
    """After every fourth click the last ten."""
    for rows in range(4, CLICKS_LATER + 1, 4):
        yield {"window_rows": rows, "total": sum(range(rows)[-10:])}
