"""What the tasks of `read_state` give, run one by one without Spark, against plain dicts made of the input rows."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import looked_at
import pyarrow as pa
import pytest
from looked_at import BEGIN, Row, portion, put
from pyspark import cloudpickle

from holdfast.errors import DamagedError
from holdfast.runtime.engines.spark.state_reader import read_state
from holdfast.store.urls import open_store

SEED = 11
FIRST = portion(SEED, 90, users=12)
SECOND = portion(SEED + 1, 60, users=18, first=90)


class OneByOne:
    """As much of a session as `read_state` needs: each task travels as bytes and gets one row."""

    def range(self, start: int, end: int, step: int, partitions: int) -> OneByOne:
        self.numbers = range(start, end, step)
        assert partitions == len(self.numbers)
        return self

    def mapInArrow(self, task: Any, schema: Any) -> list[Row]:
        shipped = cloudpickle.dumps(task)
        found: list[Row] = []
        for number in self.numbers:
            rows = pa.RecordBatch.from_pydict({"id": [number]})
            for batch in cloudpickle.loads(shipped)(iter([rows])):
                assert batch.schema.names == schema.names
                found += batch.to_pylist()
        return found


def state(store: str, operator: str, **options: Any) -> Any:
    return read_state(OneByOne(), store, operator, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=[("file", 2), ("file", 3), ("sqlite", 2)], ids=str)
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, int]:
    """(a store, the epoch after the first portion of rows); the second portion may come to other partitions."""
    kind, partitions = request.param
    root = tmp_path_factory.mktemp("read")
    url = f"{kind}:{root / 'store'}"
    put(root / "in", 0, FIRST)
    before = looked_at.run(url, root / "in", partitions=2)
    put(root / "in", 1, SECOND)
    looked_at.run(url, root / "in", partitions=partitions)
    return url, before


# --- models -----------------------------------------------------------------------------------------------------------


def totals(rows: list[Row]) -> dict[Any, Row]:
    found: dict[Any, Row] = {}
    for user in {row["user"] for row in rows}:
        own = [row for row in rows if row["user"] == user]
        numbers = [row["n"] for row in own]
        found[user] = {
            "user": user,
            "n": len(own),
            "total": sum(numbers),
            "least": min(row["price"] for row in own),
            "last": numbers[-1],
            "kinds": len(set(numbers)),
            "all": numbers,
        }
    return found


def baskets(rows: list[Row]) -> dict[Any, Row]:
    items: dict[Any, int] = {}
    seen: dict[Any, dict[str, int]] = {}
    for row in rows:
        if row["n"] % 4 == 0:
            items.pop(row["user"], None)
            seen.pop(row["user"], None)
        else:
            items[row["user"]] = items.get(row["user"], 0) + 1
            seen.setdefault(row["user"], {})[str(row["n"] % 3)] = row["n"]
    return {user: {"user": user, "items": count, "seen": seen[user]} for user, count in items.items()}


def windows(rows: list[Row]) -> dict[Any, Row]:
    mark = max(row["at"] for row in rows) - dt.timedelta(seconds=5)
    found: dict[Any, Row] = {}
    for row in rows:
        for start in (BEGIN + dt.timedelta(seconds=20 * number) for number in range(-3, 20)):
            end = start + dt.timedelta(seconds=60)
            if start <= row["at"] < end and end > mark:
                window = found.setdefault(
                    (start, row["user"]),
                    {"window_start": start, "window_end": end, "user": row["user"], "sold": 0},
                )
                window["sold"] += row["n"]
    return found


def best(rows: list[Row]) -> list[Row]:
    found = []
    for user in {row["user"] for row in rows}:
        own = sorted((row for row in rows if row["user"] == user), key=lambda row: (-row["n"], row["at"]))
        found += [{**row, "rank": rank} for rank, row in enumerate(own[:2], 1)]
    return found


def plain(rows: list[Row]) -> list[str]:
    """Rows to compare, in some order; averages are compared elsewhere."""
    kept = [{name: row[name] for name in sorted(row) if name not in ("mean", "timers")} for row in rows]
    for row in kept:
        if isinstance(row.get("seen"), str):
            row["seen"] = json.loads(row["seen"])
        row.update({name: at.isoformat() for name, at in row.items() if isinstance(at, dt.datetime)})
    return sorted(map(repr, kept))


def changes(before: dict[Any, Row], after: dict[Any, Row]) -> list[Row]:
    now = [
        {"change": "changed" if key in before else "added", **row}
        for key, row in after.items()
        if before.get(key) != row
    ]
    return now + [{"change": "removed", **row} for key, row in before.items() if key not in after]


# --- tests ------------------------------------------------------------------------------------------------------------


def test_state_is_what_the_input_makes_of_it(shop: tuple[str, int]) -> None:
    store, before = shop
    print("seed", SEED)
    both = FIRST + SECOND
    for epoch, rows in ((None, both), (before, FIRST)):
        assert plain(state(store, "totals", epoch=epoch)) == plain(list(totals(rows).values()))
        assert plain(state(store, "baskets", epoch=epoch)) == plain(list(baskets(rows).values()))
        assert plain(state(store, "sales", epoch=epoch)) == plain(list(windows(rows).values()))
        assert plain(state(store, "best", epoch=epoch)) == plain(best(rows))
        assert {row["n"] for row in state(store, "first", epoch=epoch)} == {row["n"] for row in rows}


@pytest.mark.parametrize(
    ("operator", "model"),
    [("totals", totals), ("baskets", baskets), ("sales", windows)],
    ids=["totals", "baskets", "sales"],
)
def test_changes_are_those_between_the_two_epochs(shop: tuple[str, int], operator: str, model: Any) -> None:
    store, before = shop
    print("seed", SEED)
    old, new = model(FIRST), model(FIRST + SECOND)
    assert plain(state(store, operator, changed_since=before)) == plain(changes(old, new))
    newest = open_store(store).epochs(looked_at.REGION)[-1]
    assert plain(state(store, operator, epoch=before, changed_since=newest)) == plain(changes(new, old))
    assert state(store, operator, changed_since=newest) == []


def test_rows_that_wait_come_and_go(shop: tuple[str, int]) -> None:
    store, before = shop
    waiting = {
        len(rows): [row for row in rows if row["at"] > rows[-1]["at"] - dt.timedelta(seconds=30)]
        for rows in (FIRST, FIRST + SECOND)
    }
    old, new = waiting.values()
    assert plain(state(store, "sorted")) == plain(new)
    found = state(store, "sorted", changed_since=before)
    assert plain(found) == plain(
        [{"change": "added", **row} for row in new] + [{"change": "removed", **row} for row in old]
    )


def test_a_segment_that_is_damaged_is_told_by_the_task_that_reads_it(tmp_path: Path) -> None:
    put(tmp_path / "in", 0, FIRST)
    looked_at.run(f"file:{tmp_path / 'store'}", tmp_path / "in")
    victim = next((tmp_path / "store" / "entries").glob("totals@*/*.seg"))
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    with pytest.raises(DamagedError, match=victim.name):
        state(str(tmp_path / "store"), "totals")
