"""Windows of rows after some were missed, against lists through which the missed ones went as rows of nobody."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from driven import Driven
from test_joins import LEFT, RIGHT, SECOND, Row, found, ports, table_of
from test_window_joins import shape_of

from holdfast.language.operators.values import Latest
from holdfast.operators.aggregates.running import CountedAggregate
from holdfast.operators.joins.ordered_join import OrderedJoin
from holdfast.operators.joins.window_join import WindowJoin
from holdfast.operators.shared.logic import Place
from holdfast.state.columns.arrays import list_of
from holdfast.state.keyed.merge_plan import Bounds
from holdfast.state.windows.count_windows import CountWindows
from holdfast.state.windows.missed_rows import Missed, go_on, rows_had
from holdfast.state.windows.row_windows import ROWS

ASKS = Latest(0, None)


def rows_of(keys: list[str], first: int) -> list[Row]:
    return [(key, first + n, first + n) for n, key in enumerate(keys)]


def arrived(driven: Driven, side: int, rows: list[Row], chance: random.Random, first: int) -> None:
    """The rows of one stream, in steps."""
    done = 0
    while done < len(rows):
        piece = rows[done : done + chance.randint(1, 25)]
        table = table_of(piece, first + done, side, "vw"[side], one_hash=False)
        driven.step({side: table}, chance.randint(0, 3))
        done += len(piece)


def restored(driven: Driven, missed: tuple[int, ...]) -> int:
    """What a restore does; how many rows it removed."""
    places = [Place(driven.directory, f"fresh-p{number}") for number in range(len(driven.segments))]
    fresh, gone = driven.logic.without_stale(driven.segments, driven.meta, missed, places)
    driven.segments = list(fresh)
    driven.meta = driven.logic.after_missed(driven.meta, missed)
    return gone


def by_arrival(window: Latest) -> WindowJoin:
    return WindowJoin((("k",), ("k",)), (LEFT, RIGHT), (window, ASKS), shape_of(window, ASKS, None))


@pytest.mark.parametrize("seed", range(20))
def test_a_window_of_a_stream_holds_what_the_missed_rows_leave_then_and_later(
    seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    size = chance.choice([1, 10, 40, 300])
    driven = Driven(by_arrival(Latest(size, None)), chance.randint(1, 3), tmp_path)
    before = rows_of(chance.choices("ab", k=chance.randint(1, 120)), 0)
    arrived(driven, 0, before, chance, 0)
    missed = chance.choice([0, 1, 7, 30, 500])
    in_window = before[-size:]
    after = (before + [("-", None, -1)] * missed)[-size:]
    assert restored(driven, (missed, 0)) == len(in_window) - len([row for row in after if row[0] != "-"])
    later = rows_of(chance.choices("ab", k=chance.randint(0, 30)), 500)
    arrived(driven, 0, later, chance, 500)
    arrived(driven, 1, rows_of(["a", "b"], 900), chance, 0)
    left = (before + [("-", None, -1)] * missed + later)[-size:]
    assert {row["v"] for row in driven.emitted} == {value for key, _, value in left if key != "-"}


@pytest.mark.parametrize("seed", range(20))
def test_of_windows_per_key_each_loses_the_share_of_its_key(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    size = chance.choice([1, 5, 20, 100])
    driven = Driven(by_arrival(Latest(size, None, True)), chance.randint(1, 3), tmp_path)
    before = rows_of(chance.choices("aaab", k=chance.randint(4, 200)), 0)
    arrived(driven, 0, before, chance, 0)
    missed = chance.choice([0, 4, 40, 4000])
    restored(driven, (missed, 0))
    arrived(driven, 1, rows_of(["a", "b"], 900), chance, 0)
    wanted: set[int] = set()
    for key in "ab":
        own = [value for k, _, value in before if k == key]
        share = missed * len(own) // len(before)
        wanted |= set(([*own] + [-1] * share)[-size:]) - {-1}
    assert {row["v"] for row in driven.emitted} == wanted


@pytest.mark.parametrize("per_key", [False, True])
def test_with_event_time_too_and_rows_that_wait_stay(per_key: bool, tmp_path: Path) -> None:
    chance = random.Random(1)
    window = Latest(20, None, per_key)
    logic = OrderedJoin(ports(0), (LEFT, RIGHT), shape_of(window, ASKS, "at"), False, (window, ASKS))
    driven = Driven(logic, 2, tmp_path)
    arrived(driven, 0, rows_of(["a"] * 60, 0), chance, 0)
    arrived(driven, 1, rows_of(["b"], 50), chance, 0)  # rows up to second 50 enter the window
    assert logic.had(driven.meta, driven.counts) == (60, 1)
    gone = restored(driven, (12, 0))
    assert gone == (10 if per_key else 12)  # the key had 50 of the 60 rows; the others wait
    arrived(driven, 1, rows_of(["a", "b"], 50), chance, 1)
    arrived(driven, 0, rows_of(["b"], 90), chance, 60)
    arrived(driven, 1, rows_of(["b"], 90), chance, 3)
    assert found(driven, "v", "w") == Counter({(n, 50): 1 for n in range(30 + gone, 51)})


def test_windows_by_event_time_need_no_estimate(tmp_path: Path) -> None:
    window = Latest(None, 5 * SECOND)
    logic = OrderedJoin(ports(0), (LEFT, RIGHT), shape_of(window, ASKS, "at"), False, (window, ASKS))
    driven = Driven(logic, 1, tmp_path)
    arrived(driven, 0, rows_of(["a"] * 10, 0), random.Random(0), 0)
    assert logic.had(driven.meta, driven.counts) is None
    assert "rows" not in driven.meta


@pytest.mark.parametrize("per_key", [False, True])
def test_if_nothing_was_missed_segments_stay_as_they_are(per_key: bool, tmp_path: Path) -> None:
    driven = Driven(by_arrival(Latest(30, None, per_key)), 2, tmp_path)
    arrived(driven, 0, rows_of(["a", "b"] * 20, 0), random.Random(0), 0)
    before, meta = [*driven.segments], driven.meta
    assert restored(driven, (0, 0)) == 0
    assert (driven.segments, driven.meta) == (before, meta)


# --- aggregates over windows of rows ---

AGGREGATES = (("n", "count", None), ("total", "sum", "v"), ("low", "min", "v"), ("newest", "last", "v"))
"""What windows of rows tell of their values, and below from which values `model` makes them."""
MORE = (
    ("all", "collect", "v"),
    ("mean", "avg", "v"),
    ("spread", "variance", "v"),
    ("some", "count_distinct", "v"),
)


def counted(size: int, every: int, by: tuple[str, ...]) -> CountedAggregate:
    windows = CountWindows.plan(size, every, by, (*AGGREGATES, *MORE), LEFT)
    results = [(ROWS, pa.int64()), *((name, pa.int64()) for name, _, _ in AGGREGATES)]
    results += [
        ("all", list_of(pa.int64())),
        ("mean", pa.float64()),
        ("spread", pa.float64()),
        ("some", pa.int64()),
    ]
    output = pa.schema([*((name, pa.string()) for name in by), *results])
    return CountedAggregate.over(windows, output, False, by)


class Model:
    """Lists of each key's rows, None for those that were missed, which complete no window."""

    def __init__(self, size: int, every: int, keyed: bool) -> None:
        self.size, self.every, self.keyed = size, every, keyed
        self.rows: dict[str, list[int | None]] = {}

    def came(self, rows: list[Row]) -> list[dict[str, Any]]:
        told = []
        for key, _, value in rows:
            own = self.rows.setdefault(key if self.keyed else "", [])
            own.append(value)
            if len(own) % self.every == 0:
                inside = [v for v in own[-self.size :] if v is not None]
                told.append({**({"k": key} if self.keyed else {}), ROWS: len(own), **told_of(inside)})
        return told

    def missed(self, rows: int) -> int:
        """How many rows that pushes out, if none were missed before."""
        had = sum(map(len, self.rows.values()))
        gone = 0
        for own in self.rows.values():
            share = rows * len(own) // had
            gone += min(share, self.size, len(own))
            own += [None] * share
        return gone


def told_of(values: list[int]) -> dict[str, Any]:
    told = {"n": len(values), "total": sum(values), "low": min(values), "newest": values[-1]}
    spread = statistics.variance(values) if len(values) > 1 else None
    return {
        **told,
        "all": values,
        "mean": sum(values) / len(values),
        "spread": spread,
        "some": len(set(values)),
    }


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row.get("k", ""), row[ROWS]))


@pytest.mark.parametrize("seed", range(30))
def test_windows_of_rows_go_on_behind_the_rows_that_were_missed(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    size, every = chance.choice([(1, 1), (5, 5), (6, 4), (8, 2), (13, 1), (40, 1)])
    by = chance.choice([("k",), ()])
    driven, model = (
        Driven(counted(size, every, by), chance.randint(1, 3), tmp_path),
        Model(size, every, bool(by)),
    )
    wanted, came = [], 0
    for life in range(3):
        rows = rows_of(chance.choices("aaabc", k=chance.randint(1, 80)), came)
        arrived(driven, 0, rows, chance, came)
        wanted += model.came(rows)
        came += len(rows)
        missed = chance.choice([0, 1, 3, 20, 400])
        gone, expected = restored(driven, (missed,)), model.missed(missed)
        assert life or gone == expected
    rows = rows_of(chance.choices("aaabc", k=60), came)
    driven.rescale(chance.randint(1, 3))
    arrived(driven, 0, rows, chance, came)
    wanted += model.came(rows)
    found = in_order(driven.emitted)
    for row in found:
        row["spread"] = None if row["spread"] is None else pytest.approx(row["spread"])
    assert found == in_order(wanted)
    assert driven.logic.had(None, driven.counts) == (came + 60,)


def test_many_keys_go_on_in_bounded_pieces(tmp_path: Path) -> None:
    logic = counted(6, 2, ("k",))
    driven, model = Driven(logic, 1, tmp_path), Model(6, 2, True)
    rows = rows_of([f"key {n % 700}" for n in range(3000)], 0)
    driven.step({0: table_of(rows, 0, 0, "v", one_hash=False)}, 1)
    wanted = model.came(rows)
    model.missed(9000)
    segments = driven.segments[0]
    had = Missed(rows_had(logic.windows, segments), 9000)
    after, gone = go_on(logic.windows, segments, had, Place(tmp_path, "fresh"), Bounds(piece_rows=64))
    assert len(after) > len(segments) + 4, "several pieces"
    assert gone == 3000
    driven.segments[0] = after
    rows = rows_of([f"key {n % 700}" for n in range(2100)], 3000)
    driven.step({0: table_of(rows, 3000, 0, "v", one_hash=False)}, 1)
    assert [row[ROWS] for row in in_order(driven.emitted)] == [
        row[ROWS] for row in in_order(wanted + model.came(rows))
    ]
