"""What following changes costs, from steps of both kinds, and what that does to the choice between base and delta."""

from __future__ import annotations

import random

import pytest

from holdfast.checkpoint import own_records
from holdfast.checkpoint.adaptive import Cost, History, Limits, next_form, pays, surcharge, taken, tracking
from holdfast.checkpoint.costs.tracking_cost import (
    NOTICEABLE_S,
    STEP_ROWS_MIN,
    STEPS_KEPT,
    STEPS_MIN,
    Paces,
    logging_seconds,
)
from holdfast.checkpoint.own_records import OwnCheckpoint, OwnRecord
from holdfast.checkpoint.parts import Chained, OperatorPart

BASE = Cost(400, 4.0)


def paces(followed: float, plain: float, steps: int = STEPS_MIN) -> Paces:
    """Steps of 1000 rows that took so many seconds."""
    made = Paces()
    for _ in range(steps):
        made = made.after(1000, followed, is_followed=True).after(1000, plain, is_followed=False)
    return made


def test_a_delta_of_360_bytes_with_the_documents_tenth_pays_behind_a_base_of_400() -> None:
    delta = Cost(360, 3.6, logging_s=0.36)
    assert surcharge(delta, Limits()) == pytest.approx(0.1)
    assert pays(History(base=BASE, delta=delta), Limits())
    assert pays(History(base=BASE, delta=delta), Limits(by="seconds"))


@pytest.mark.parametrize("by", ["bytes", "seconds"])
def test_base_against_delta_and_logging_is_the_documents_inequality(by: str) -> None:
    limits = Limits(by="seconds" if by == "seconds" else "bytes")
    # 4 s for the base, 1 s for a delta: logging may take anything below 3 s.
    assert pays(History(base=BASE, delta=Cost(100, 1.0, logging_s=2.99)), limits)
    assert not pays(History(base=BASE, delta=Cost(100, 1.0, logging_s=3.0)), limits)


def test_measured_logging_takes_the_place_of_the_assumed_share_in_both_directions() -> None:
    assert not pays(History(base=BASE, delta=Cost(364, 3.64)), Limits())
    assert pays(History(base=BASE, delta=Cost(364, 3.64, logging_s=0.1)), Limits())
    assert pays(History(base=BASE, delta=Cost(360, 3.6)), Limits())
    assert not pays(History(base=BASE, delta=Cost(360, 3.6, logging_s=0.5)), Limits())


def test_a_delta_that_took_no_time_at_all_leaves_the_assumed_share() -> None:
    assert surcharge(Cost(100, 0.0, logging_s=1.0), Limits()) == Limits().surcharge


def test_following_is_the_difference_of_the_fastest_steps_of_each_kind() -> None:
    made = paces(0.003, 0.002).after(1000, 0.9, is_followed=True).after(1000, 0.7, is_followed=False)
    assert made.per_row_s == pytest.approx(1e-6)
    assert logging_seconds({0: made}, {0: 5000}) == pytest.approx(0.005)


def test_following_never_costs_less_than_nothing() -> None:
    assert paces(0.002, 0.003).per_row_s == 0.0


def test_too_few_or_too_small_steps_tell_nothing() -> None:
    assert paces(0.003, 0.002, STEPS_MIN - 1).per_row_s is None
    only_followed = Paces()
    for _ in range(50):
        only_followed = only_followed.after(1000, 0.1, is_followed=True)
    assert only_followed.per_row_s is None
    assert len(only_followed.followed) == STEPS_KEPT
    assert Paces().after(STEP_ROWS_MIN - 1, 1.0, is_followed=True) == Paces()


def test_old_steps_are_forgotten() -> None:
    made = paces(0.003, 0.002)
    for _ in range(STEPS_KEPT):
        made = made.after(1000, 0.012, is_followed=True).after(1000, 0.010, is_followed=False)
    assert made.per_row_s == pytest.approx(2e-6)


def test_what_cannot_be_told_from_noise_is_not_told() -> None:
    made = {0: paces(0.003, 0.002)}
    assert logging_seconds(made, {0: round(NOTICEABLE_S / 1e-6) - 1}) is None
    assert logging_seconds(made, {0: round(NOTICEABLE_S / 1e-6) + 1}) is not None


def test_ports_count_each_by_its_own_rows_and_one_unknown_port_makes_all_unknown() -> None:
    made = {0: paces(0.003, 0.002), 1: paces(0.012, 0.002)}
    assert logging_seconds(made, {0: 1000, 1: 1000}) == pytest.approx(0.011)
    assert logging_seconds(made, {0: 1000, 2: 1}) is None
    assert logging_seconds(made, {0: 1000, 1: 1000, 2: 0}) == pytest.approx(0.011)
    assert logging_seconds({}, {}) is None


def forms_of(history: History, steps: int, logging_s: float) -> tuple[History, str]:
    limits, forms = Limits(probe_after=3), ""
    for _ in range(steps):
        form = next_form(history, limits)
        cost = BASE if form == "base" else Cost(100, 1.0, logging_s=logging_s)
        history = taken(history, form, cost, limits)
        forms += form[0]
    return history, forms


def test_dear_logging_ends_deltas_and_is_probed_again_until_it_is_cheap() -> None:
    history, forms = forms_of(History(), 12, logging_s=9.0)
    assert forms == "bdbbbdbbbdbb"
    assert tracking(history) == (history.deltas < history.number)
    _, forms = forms_of(history, 40, logging_s=0.2)
    assert "dddddd" in forms


def test_the_average_of_logging_leaves_out_deltas_of_which_it_is_not_known() -> None:
    history = History(number=9, base=BASE)
    for logging_s in (None, 2.0, None, 4.0):
        history = taken(history, "delta", Cost(10, 1.0, logging_s=logging_s), Limits())
    assert history.delta is not None
    assert history.delta.logging_s == pytest.approx(3.0)


def test_what_was_measured_survives_being_stored() -> None:
    made = History(base=BASE, delta=Cost(100, 1.0, logging_s=0.25), deltas=1)
    record = OwnRecord("op", OwnCheckpoint(1, OperatorPart(form=Chained("delta", made, 0.5))))
    assert own_records.decode(own_records.encode(record), "op", "it") == record


@pytest.mark.parametrize("seed", range(10))
def test_bounds_hold_whatever_logging_costs(seed: int) -> None:
    rng, history = random.Random(seed), History()
    limits = Limits(ratio=1.5, count=5)
    for _ in range(300):
        pending = rng.randrange(1, 500)
        form = next_form(history, limits, pending=pending)
        logging_s = rng.choice([None, 0.0, rng.uniform(0, 10)])
        cost = BASE if form == "base" else Cost(pending, rng.choice([0.0, 1.0]), logging_s=logging_s)
        history = taken(history, form, cost, limits)
        assert history.chain.bytes <= 600
        assert history.deltas <= 5
