"""The search for rows that end processes, over thousands of inputs: what is left out, in how many attempts, and false alarms."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from holdfast.protocol.bounds.poison import MAX_ALARMS, MAX_FOUND, Search, SearchPhase

MANY = 1000


def searched(search: Search, dies: Callable[[list[int]], bool], late: bool = False) -> tuple[Search, int]:
    """Carry a search out; with how many attempts."""
    attempts = 0
    while not search.is_over:
        attempts += 1
        assert attempts < 10_000, search
        tried = [n for n in search.attempt if n not in search.found]
        search = search.died(late) if dies(tried) else search.lived()
    return search, attempts


def test_rows_that_kill_are_found_and_no_others() -> None:
    chance = random.Random(1)
    for _ in range(MANY):
        rows, after = chance.randrange(1, 200), chance.randrange(1, 4)
        poison = set(chance.sample(range(rows), min(rows, chance.choice((0, 1, 1, 2, 5)))))
        end, attempts = searched(Search(rows, after), lambda tried, p=poison: bool(p & set(tried)))  # type: ignore[misc]
        assert end.phase is SearchPhase.DONE
        assert set(end.found) == poison
        assert attempts <= 1 + len(poison) * (after + math.ceil(math.log2(rows + 1)) + 3)


def test_a_row_that_kills_only_behind_others_is_found() -> None:
    """What a row does may depend on the state that those before it made."""
    chance = random.Random(2)
    for _ in range(MANY):
        rows = chance.randrange(2, 120)
        first, second = sorted(chance.sample(range(rows), 2))
        end, _ = searched(Search(rows, 2), lambda tried, a=first, b=second: a in tried and b in tried)  # type: ignore[misc]
        assert (end.phase, end.found) == (SearchPhase.DONE, (second,))


def test_a_process_that_dies_once_for_another_reason_costs_no_row() -> None:
    chance = random.Random(3)
    for _ in range(MANY):
        rows, died = chance.randrange(1, 100), 0
        at = chance.randrange(1, 6)

        def dies(tried: list[int], at: int = at) -> bool:
            nonlocal died
            died += 1
            return died == at

        end, _ = searched(Search(rows, 2), dies)
        assert (end.phase, end.found) == (SearchPhase.DONE, ())


def test_deaths_at_random_are_given_up_or_survived_and_rows_are_left_out_only_after_two_deaths() -> None:
    chance = random.Random(4)
    ends = set()
    for _ in range(MANY):
        rows = chance.randrange(1, 60)
        log: list[tuple[int, bool]] = []

        def dies(tried: list[int], log: list[tuple[int, bool]] = log) -> bool:
            log.append((len(tried), chance.random() < 0.5))
            return log[-1][1]

        end, _ = searched(Search(rows, 2), dies)
        ends.add(end.phase)
        assert end.alarms <= MAX_ALARMS
        assert len(end.found) <= MAX_FOUND + 1
        assert sum(death for _, death in log) >= 2 * len(end.found)
    assert ends == {SearchPhase.DONE, SearchPhase.GIVEN_UP}


def test_rows_that_together_take_too_long_are_not_to_blame() -> None:
    """Each takes a while; no more of them than `most` end in time."""
    chance = random.Random(5)
    for _ in range(MANY):
        rows = chance.randrange(2, 100)
        most = chance.randrange(0, rows)
        end, _ = searched(Search(rows, 2), lambda tried, m=most: len(tried) > m, late=True)  # type: ignore[misc]
        if most:
            assert (end.phase, end.found) == (SearchPhase.GIVEN_UP, ())


def test_a_row_that_hangs_is_found_where_others_end_in_time() -> None:
    chance = random.Random(6)
    for _ in range(MANY):
        rows = chance.randrange(1, 100)
        bad = chance.randrange(rows)
        end, _ = searched(Search(rows, 2), lambda tried, b=bad: b in tried, late=True)  # type: ignore[misc]
        assert (end.phase, end.found) == (SearchPhase.DONE, (bad,))


def test_where_nothing_lives_no_row_is_to_blame() -> None:
    for late in (False, True):
        for rows in range(30):
            end, _ = searched(Search(rows, 2), lambda _: True, late)
            assert (end.phase, end.found) == (SearchPhase.GIVEN_UP, ())


def test_where_every_row_kills_the_search_is_given_up() -> None:
    end, attempts = searched(Search(1000, 2), lambda tried: bool(tried))
    assert end.phase is SearchPhase.GIVEN_UP
    assert attempts < 20 * MAX_FOUND


@pytest.mark.parametrize("after", [1, 2, 5])
def test_it_is_looked_for_after_so_many_deaths(after: int) -> None:
    search = Search(8, after)
    for _ in range(after):
        assert search.phase is SearchPhase.WHOLE
        search = search.died()
    assert search.phase is SearchPhase.BISECT
