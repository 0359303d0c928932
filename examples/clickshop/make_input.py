"""Clicks and orders of a made-up day: `python make_input.py DIRECTORY [CLICKS]`. The same for the same numbers.

Rows are written as they come: up to 30 s earlier or later than they happened, and one in fifty twice.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import sys
from pathlib import Path
from typing import Any

BEGIN = dt.datetime(2026, 3, 2, 8, tzinfo=dt.UTC)
DISORDER_S = 30
FILES = 8

Row = dict[str, Any]


def make(clicks: int = 20_000, users: int = 200, seed: int = 1) -> tuple[list[Row], list[Row]]:
    """(clicks, orders) in the order in which they come."""
    chance = random.Random(seed)
    made: tuple[list[Row], list[Row]] = ([], [])
    second = 0.0
    for number in range(clicks):
        second += chance.expovariate(2)
        user = f"u{chance.randrange(users)}"
        made[0].append(
            {"id": f"c{number}", "user": user, "page": f"p{chance.randrange(30)}", "second": second}
        )
        if chance.random() < 0.1:
            paid = {"id": f"o{number}", "user": user, "cents": chance.randrange(100, 9000)}
            made[1].append({**paid, "second": second + chance.uniform(0, 120)})
    return _as_they_come(made[0], chance), _as_they_come(made[1], chance)


def _as_they_come(rows: list[Row], chance: random.Random) -> list[Row]:
    come: list[tuple[float, Row]] = []
    for row in rows:
        at = BEGIN + dt.timedelta(seconds=round(row.pop("second"), 3))
        row["at"] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        for _ in range(2 if chance.random() < 0.02 else 1):
            come.append((at.timestamp() + chance.uniform(-DISORDER_S, DISORDER_S), row))
    return [row for _, row in sorted(come, key=lambda pair: pair[0])]


def write(directory: Path, name: str, rows: list[Row]) -> None:
    (directory / name).mkdir(parents=True, exist_ok=True)
    size = -(-len(rows) // FILES) or 1
    for number in range(FILES):
        lines = [json.dumps(row) + "\n" for row in rows[number * size : (number + 1) * size]]
        (directory / name / f"{number:02}.json").write_text("".join(lines))


if __name__ == "__main__":
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
    for found, chosen in zip(make(count), ("clicks", "orders"), strict=True):
        write(Path(sys.argv[1]), chosen, found)
