"""How many deltas follow a base: the document's figures, and bounds that hold whatever a state does."""

from __future__ import annotations

import random

import pytest

from holdfast.checkpoint import own_records
from holdfast.checkpoint.adaptive import (
    Cost,
    Form,
    History,
    Limits,
    most_deltas,
    next_form,
    pays,
    restore_seconds,
    taken,
    tracking,
)
from holdfast.checkpoint.costs.restore_time import Speed
from holdfast.checkpoint.own_records import OwnCheckpoint, OwnRecord
from holdfast.checkpoint.parts import Chained, OperatorPart

BASE = Cost(400, 4.0)
DELTA = Cost(100, 1.0)


def grown(steps: int, limits: Limits, base: Cost = BASE, delta: Cost = DELTA) -> tuple[History, str]:
    """The history after so many checkpoints of unchanging cost, and their forms as letters."""
    history, forms = History(), ""
    for _ in range(steps):
        form = next_form(history, limits)
        history = taken(history, form, delta if form == "delta" else base, limits)
        forms += form[0]
    return history, forms


def test_deltas_of_100_bytes_behind_a_base_of_400_are_at_most_6_at_ratio_1_5() -> None:
    assert most_deltas(History(base=BASE, delta=DELTA), Limits(ratio=1.5)) == 6


def test_with_ratio_1_they_are_at_most_4() -> None:
    assert most_deltas(History(base=BASE, delta=DELTA), Limits(ratio=1.0)) == 4


def test_a_maximum_number_wins_where_it_is_smaller() -> None:
    assert most_deltas(History(base=BASE, delta=DELTA), Limits(ratio=1.5, count=5)) == 5


def test_a_hard_limit_on_seconds_counts_each_restore_as_1_2_checkpoints() -> None:
    # 1.2 * 4 s for the base, 1.2 s for each delta: ten seconds leave room for four.
    assert most_deltas(History(base=BASE, delta=DELTA), Limits(ratio=None, seconds=10.0)) == 4


def test_a_base_too_slow_for_the_limit_leaves_no_room() -> None:
    assert most_deltas(History(base=BASE, delta=DELTA), Limits(seconds=4.7)) == 0


def test_logging_costs_a_surcharge_that_rules_out_marginal_gains() -> None:
    assert pays(History(base=Cost(400, 0.0), delta=Cost(360, 0.0)), Limits())
    assert not pays(History(base=Cost(400, 0.0), delta=Cost(364, 0.0)), Limits())
    by_time = Limits(by="seconds")
    assert pays(History(base=Cost(1, 4.0), delta=Cost(9, 3.6)), by_time)


def test_the_number_begins_with_one_and_doubles_up_to_the_cap() -> None:
    assert grown(24, Limits())[1] == "bd" + "bdd" + "bdddd" + "bdddddd" + "bdddddd"


def test_deltas_that_do_not_pay_are_given_up_and_tried_again() -> None:
    limits = Limits(probe_after=3)
    history, forms = grown(16, limits, delta=Cost(390, 3.9))
    assert forms.startswith("bdbbbd")
    assert "dd" not in forms
    assert forms.count("d") >= 3
    assert tracking(history) == (history.deltas < history.number)


def test_without_deltas_ahead_nothing_is_logged() -> None:
    history = taken(History(number=1, deltas=1, base=BASE, delta=Cost(400, 4.0)), "base", BASE, Limits())
    assert history.number == 0
    assert not tracking(history)
    assert next_form(history, Limits()) == "base"


def test_a_state_that_calms_down_gets_deltas_again() -> None:
    limits = Limits(probe_after=2)
    history, _ = grown(9, limits, delta=Cost(399, 4.0))
    forms = ""
    for _ in range(30):
        form = next_form(history, limits)
        history = taken(history, form, DELTA if form == "delta" else BASE, limits)
        forms += form[0]
    assert "dddddd" in forms


def test_a_delta_known_to_be_too_large_becomes_a_base() -> None:
    history = History(number=6, deltas=2, base=BASE, delta=DELTA, chain=Cost(200, 2.0))
    assert next_form(history, Limits(), pending=400) == "delta"
    assert next_form(history, Limits(), pending=401) == "base"


def test_history_survives_being_stored() -> None:
    for history in (grown(7, Limits())[0], History()):
        part = OperatorPart(form=Chained("delta", history, 0.5))
        made = OwnRecord("op", OwnCheckpoint(1, part))
        assert own_records.decode(own_records.encode(made), "op", "it") == made


@pytest.mark.parametrize("seed", range(40))
def test_every_bound_holds_after_every_checkpoint(seed: int) -> None:
    rng = random.Random(seed)
    limits = Limits(
        ratio=rng.choice([None, 0.5, 1.5]), count=rng.choice([None, 3]), seconds=rng.choice([None, 0.8, 2.0])
    )
    speed = Speed()
    history = History()
    size = rng.randrange(1 << 20, 1 << 28)
    for _ in range(300):
        size = max(1000, int(size * rng.uniform(0.8, 1.25)))
        pending = rng.randrange(1, size)
        was_tracked = tracking(history)
        form: Form = next_form(history, limits, pending=pending, speed=speed)
        assert form == "base" or was_tracked
        history = taken(history, form, Cost(pending if form == "delta" else size, 0.1), limits, speed=speed)
        assert history.base is not None
        if limits.ratio is not None:
            assert history.chain.bytes <= limits.ratio * history.base.bytes
        if limits.count is not None:
            assert history.deltas <= limits.count
        if limits.seconds is not None and history.deltas:
            assert restore_seconds(history, speed) <= limits.seconds


@pytest.mark.parametrize("size", [1000, 1_000_000_000])
def test_a_restore_slower_than_predicted_is_believed_at_once_a_faster_one_slowly(size: int) -> None:
    speed = Speed()
    predicted = speed.base_seconds(size)
    slower = speed.learned(predicted, 2 * predicted)
    assert slower.base_seconds(size) >= 2 * predicted
    faster = speed.learned(predicted, predicted / 10)
    assert predicted / 2 < faster.base_seconds(size) < predicted
    assert Speed.from_data(slower.as_data()) == slower


def test_a_small_restore_says_nothing_about_large_ones() -> None:
    speed = Speed()
    slower = speed.learned(speed.base_seconds(1000), 3.0)
    assert slower.base_seconds(10**9) < speed.base_seconds(10**9) + 3 * 1.25
