"""Windows of rows after some were missed, against lists through which the missed ones went as rows of nobody."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from driven import Driven
from test_joins import LEFT, RIGHT, SECOND, Row, found, ports, table_of
from test_window_joins import shape_of

from holdfast.language.graph import Latest
from holdfast.runtime.executor.counted import CountedAggregate
from holdfast.runtime.executor.logic import Place
from holdfast.runtime.executor.ordered_join import OrderedJoin
from holdfast.runtime.executor.window_join import WindowJoin
from holdfast.state.count_windows import CountWindows

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


def restored(driven: Driven, missed: tuple[int, int]) -> int:
    """What a restore does with each partition; how many rows it removed."""
    gone = 0
    for number, segments in enumerate(driven.segments):
        place = Place(driven.directory, f"fresh-p{number}")
        driven.segments[number], stale = driven.logic.without_stale(segments, driven.meta, missed, place)
        gone += stale
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
    assert logic.had(driven.meta) == (60, 1)
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
    assert logic.had(driven.meta) is None
    assert "rows" not in driven.meta


@pytest.mark.parametrize("per_key", [False, True])
def test_if_nothing_was_missed_segments_stay_as_they_are(per_key: bool, tmp_path: Path) -> None:
    driven = Driven(by_arrival(Latest(30, None, per_key)), 2, tmp_path)
    arrived(driven, 0, rows_of(["a", "b"] * 20, 0), random.Random(0), 0)
    before, meta = [*driven.segments], driven.meta
    assert restored(driven, (0, 0)) == 0
    assert (driven.segments, driven.meta) == (before, meta)


def test_count_windows_of_aggregates_keep_what_they_have(tmp_path: Path) -> None:
    windows = CountWindows.plan(10, 5, ("k",), (("n", "count", None),), LEFT)
    logic = CountedAggregate(windows, ("k",), pa.schema([("k", pa.string()), ("n", pa.int64())]))
    assert logic.had(None) is None
    assert logic.without_stale((), None, (5,), Place(tmp_path, "p")) == ((), 0)
