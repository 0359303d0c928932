"""Which own checkpoint comes first."""

from __future__ import annotations

from holdfast.checkpoint.due_checkpoints import Due, by_priority
from holdfast.ids import OperatorName

OFTEN, SELDOM, NEVER = OperatorName("often"), OperatorName("seldom"), OperatorName("never")


def test_nobody_comes_before_its_time() -> None:
    assert by_priority([Due(OFTEN, 1.0, 5.0)], 4.999) == []
    assert by_priority([Due(OFTEN, 1.0, 5.0)], 5.0) == [OFTEN]


def test_whoever_is_most_overdue_for_its_period_comes_first() -> None:
    # Half a second late: half of a period, or a hundredth of one.
    dues = [Due(SELDOM, 50.0, 9.5), Due(OFTEN, 1.0, 9.5)]
    assert by_priority(dues, 10.0) == [OFTEN, SELDOM]
    # In the end a long period gets its turn too.
    dues = [Due(SELDOM, 50.0, 9.5), Due(OFTEN, 1.0, 59.9)]
    assert by_priority(dues, 60.0) == [SELDOM, OFTEN]


def test_of_equals_the_shorter_period_comes_first_then_the_name() -> None:
    dues = [Due(SELDOM, 2.0, 1.0), Due(OFTEN, 1.0, 1.0), Due(NEVER, 2.0, 1.0)]
    assert by_priority(dues, 1.0) == [OFTEN, NEVER, SELDOM]


def test_the_order_does_not_depend_on_the_order_of_the_question() -> None:
    dues = [Due(OperatorName(f"op{n}"), 1.0 + n, 3.0 * n % 5) for n in range(8)]
    assert by_priority(dues, 9.0) == by_priority(list(reversed(dues)), 9.0)


def test_with_one_store_for_all_nobody_starves() -> None:
    """Storing takes a second, and more is due than can be stored: everybody gets its share, in proportion to its period."""
    at = {OFTEN: 0.0, SELDOM: 0.0, NEVER: 0.0}
    periods = {OFTEN: 1.0, SELDOM: 4.0, NEVER: 16.0}
    taken = dict.fromkeys(at, 0)
    for now in range(200):
        order = by_priority([Due(n, periods[n], at[n]) for n in at], float(now))
        if order:
            taken[order[0]] += 1
            at[order[0]] = now + periods[order[0]]
    assert taken[OFTEN] > taken[SELDOM] > taken[NEVER] >= 200 // 16 - 3
