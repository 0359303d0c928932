"""A bound on restore time that leaves little room: deltas all the same, and never more than there is room for.

Pure: operators are as large as they say, restores as fast as `Speed` or the schedule says.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from sampling import examples

from holdfast.checkpoint.adaptive import Cost, Limits
from holdfast.checkpoint.costs.restore_time import Speed
from holdfast.ids import OperatorName
from holdfast.runtime.region.restore_budget import Chooser, RestoreBudget

MB = 1_000_000


def checkpoint(chooser: Chooser, base: int, delta: int, overhead: int = 0) -> str:
    """The next checkpoint, as a run takes it: d for a delta, b for a base, x for a base in place of a delta that was built."""
    refused = None
    if chooser.accepts_delta():
        if chooser.accepts_delta(delta):
            chooser.took("delta", Cost(delta, 0.1))
            return "d"
        refused = delta
    chooser.took("base", Cost(base, 0.1, overhead), refused)
    return "b" if refused is None else "x"


def alone(bound_s: float, limits: Limits | None = None) -> tuple[RestoreBudget, Chooser]:
    budget = RestoreBudget(bound_s)
    return budget, budget.chooser(OperatorName("it"), limits or Limits())


def epochs(count: int, mb: float, within: float, rate: Callable[[int], float]) -> str:
    """The forms of so many checkpoints of a state that changes by `rate(epoch)`, each within the bound."""
    budget, chooser = alone(within)
    forms = ""
    for epoch in range(count):
        forms += checkpoint(chooser, int(mb * MB), int(mb * MB * rate(epoch)))
        assert budget.predicted_s <= within
    return forms


# --- room for deltas is found ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mb", "within"), [(512, 5.0), (64, 1.0)])
def test_small_changes_are_stored_as_deltas_though_one_like_the_base_would_not_fit(
    mb: int, within: float
) -> None:
    speed = Speed()
    assert speed.base_seconds(mb * MB) + speed.delta_seconds(mb * MB) > within
    forms = epochs(60, mb, within, lambda _: 0.01)
    assert forms.count("d") >= 50
    assert "x" not in forms


def test_variables_of_12_mb_within_a_quarter_of_a_second_cost_80_mb_in_27_epochs() -> None:
    budget = RestoreBudget()
    chooser = budget.chooser(OperatorName("it"), Limits(seconds=0.25))
    written = 0
    for _ in range(27):
        is_delta = checkpoint(chooser, 12 * MB, 12 * MB // 100) == "d"
        written += 12 * MB // 100 if is_delta else 12 * MB
        assert chooser.predicted_s <= 0.25
    assert written <= 80 * MB


def test_a_base_with_old_rows_in_it_leaves_room_too() -> None:
    _, chooser = alone(5.0)
    forms = "".join(checkpoint(chooser, 512 * MB, 5 * MB, overhead=500 * MB) for _ in range(60))
    assert forms.count("d") >= 50


def test_a_small_ratio_does_not_turn_deltas_off_either() -> None:
    _, chooser = alone(60.0, Limits(ratio=0.5))
    forms = "".join(checkpoint(chooser, 512 * MB, 5 * MB) for _ in range(60))
    assert forms.count("d") >= 50


def test_deltas_come_back_when_a_state_that_changed_as_a_whole_calms_down() -> None:
    forms = epochs(120, 64, 0.6, lambda epoch: 0.9 if epoch < 40 else 0.01)
    assert "d" not in forms[:40]
    assert forms[52:].count("d") >= 50


def test_one_large_change_costs_one_base() -> None:
    forms = epochs(60, 64, 0.9, lambda epoch: 0.9 if epoch in (1, 30) else 0.01)
    assert forms.count("x") == 2
    assert forms.count("d") >= 50


def test_a_state_that_is_filled_after_its_first_epoch_gets_deltas_at_once() -> None:
    _, chooser = alone(5.0)
    assert checkpoint(chooser, 100, 0) == "b"
    assert checkpoint(chooser, 512 * MB, 512 * MB) == "x"
    assert checkpoint(chooser, 512 * MB, 5 * MB) == "d"


def test_deltas_that_never_fit_are_built_rarely() -> None:
    forms = epochs(100, 64, 0.28, lambda _: 0.03)
    assert "d" not in forms
    assert 3 <= forms.count("x") <= 12


def test_room_that_a_slow_restore_took_is_used_again_after_faster_ones() -> None:
    budget, chooser = alone(1.0)
    for _ in range(5):
        checkpoint(chooser, 64 * MB, MB)
    slow = 5 * budget.predicted_s
    budget.learn(slow)
    forms = "".join(checkpoint(chooser, 64 * MB, MB) for _ in range(5))
    assert "d" not in forms, "a base is all there is time for"
    for _ in range(10):
        budget.learn(slow / 20)
    forms = "".join(checkpoint(chooser, 64 * MB, MB) for _ in range(15))
    assert forms.count("d") >= 10


def test_operators_of_a_region_do_not_starve_each_other() -> None:
    budget = RestoreBudget(2.6)
    sizes = {"large": 512 * MB, "middle": 64 * MB, "small": 12 * MB}
    choosers = {name: budget.chooser(OperatorName(name), Limits()) for name in sizes}
    forms = dict.fromkeys(sizes, "")
    for _ in range(120):
        for name, size in sizes.items():
            forms[name] += checkpoint(choosers[name], size, size // 100)
        assert budget.predicted_s <= 2.6
    assert min(each.count("d") for each in forms.values()) >= 100


# --- and the bound is kept -------------------------------------------------------------------------------------------


def test_room_that_is_promised_is_not_promised_again() -> None:
    budget = RestoreBudget(0.6)
    one, other = (budget.chooser(OperatorName(name), Limits(first=9)) for name in ("one", "other"))
    for chooser in (one, other):
        chooser.took("base", Cost(64 * MB, 0.1))
    assert one.accepts_delta(4 * MB)
    assert not other.accepts_delta(4 * MB), "while the first is uploaded, the second asks"
    one.took("delta", Cost(4 * MB, 0.1))
    assert not other.accepts_delta(4 * MB)
    assert budget.predicted_s <= 0.6


def test_an_upload_that_came_to_nothing_holds_no_room() -> None:
    budget = RestoreBudget(0.6)
    one, other = (budget.chooser(OperatorName(name), Limits(first=9)) for name in ("one", "other"))
    for chooser in (one, other):
        chooser.took("base", Cost(64 * MB, 0.1))
    record = one.record("base")
    assert one.accepts_delta(4 * MB)
    one.resume(record)
    assert other.accepts_delta(4 * MB)


def test_deltas_of_one_operator_are_no_reason_to_call_the_base_of_another_too_large() -> None:
    budget = RestoreBudget(1.0)
    one, other = (budget.chooser(OperatorName(name), Limits()) for name in ("one", "other"))
    for chooser in (one, other):
        chooser.took("base", Cost(64 * MB, 0.1))
    assert one.accepts_delta(30 * MB)
    one.took("delta", Cost(30 * MB, 0.1))
    other.took("base", Cost(120 * MB, 0.1))
    assert budget.predicted_s > 1.0
    assert not budget.too_large
    assert checkpoint(one, 64 * MB, 1000) == "b", "the deltas make way"
    assert budget.predicted_s <= 1.0
    other.took("base", Cost(400 * MB, 0.1))
    assert budget.too_large == ["one", "other"]


SIZES = st.integers(1_000, 1000 * MB)
RATES = st.one_of(st.floats(0, 0.05), st.floats(0, 1.2))
EPOCH = st.tuples(st.floats(0.7, 1.4), RATES, st.floats(0, 1))
"""Growth of the state, the part of it that changed, old rows in a base."""
RESTORE = st.floats(0.1, 2.0)
"""Measured over predicted."""
ROOM = st.floats(1.0, 4.0)
"""The bound over what restoring the first bases takes."""


@given(ROOM, SIZES, st.lists(st.one_of(EPOCH, EPOCH, EPOCH, RESTORE), min_size=5))
@examples(300)
def test_every_epoch_keeps_the_bound_wherever_the_base_alone_does(
    room: float, size: int, schedule: list[tuple[float, float, float] | float]
) -> None:
    bound = room * Speed().base_seconds(size)
    budget, chooser = alone(bound)
    for what in schedule:
        if isinstance(what, float):
            budget.learn(what * budget.predicted_s)
            chooser.resume(chooser.record("base"))
            continue
        growth, rate, old = what
        size = max(1, int(size * growth))
        form = checkpoint(chooser, size, int(size * rate), int(size * old))
        event(form)
        fits = budget.speed.base_seconds(size + int(size * old)) <= bound
        assert budget.predicted_s <= bound or (form != "d" and not fits)
        assert bool(budget.too_large) == (chooser.base_s > bound)


@given(
    ROOM,
    st.lists(SIZES, min_size=2, max_size=4),
    st.lists(st.one_of(st.lists(EPOCH, min_size=4, max_size=4), RESTORE), min_size=5, max_size=40),
)
@examples(200)
def test_operators_keep_a_bound_together_wherever_their_bases_do(
    room: float, sizes: list[int], schedule: list[list[tuple[float, float, float]] | float]
) -> None:
    bound = room * sum(map(Speed().base_seconds, sizes))
    budget = RestoreBudget(bound)
    choosers = [budget.chooser(OperatorName(f"o{n}"), Limits(ratio=None)) for n in range(len(sizes))]
    for what in schedule:
        if isinstance(what, float):
            budget.learn(what * budget.predicted_s)
            continue
        has_grown = False
        for n, (chooser, (growth, rate, old)) in enumerate(zip(choosers, what, strict=False)):
            sizes[n] = max(1, int(sizes[n] * growth))
            before = chooser.predicted_s
            form = checkpoint(chooser, sizes[n], int(sizes[n] * rate), int(sizes[n] * old))
            has_grown |= form != "d" and chooser.predicted_s > before
            assert form != "d" or budget.predicted_s <= bound + 1e-9
        event(f"a base has grown: {has_grown}")
        bases_fit = sum(chooser.base_s for chooser in choosers) <= bound
        assert has_grown or not bases_fit or budget.predicted_s <= bound + 1e-9
