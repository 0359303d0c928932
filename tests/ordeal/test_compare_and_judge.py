"""What can be compared, what is promised, and when it is broken: rows in, verdicts out."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.testing.ordeal.compare import Basis, basis_of
from holdfast.testing.ordeal.judge import Promise, SinkVerdict, judged, overall
from holdfast.testing.ordeal.schedule import FAULTS, FIRST, LAST, kinds_of, planned, resolved

ROWS = [{"id": n, "user": f"u{n % 3}", "cents": n * 10} for n in range(12)]
BY_ROWS = Basis("rows")
Row = dict[str, Any]


def judge(
    guarantee: str, found: list[Row], counted: int = 0, faults: int = 2, basis: Basis = BY_ROWS, **more: bool
) -> SinkVerdict:
    return judged(Promise("out", guarantee, **more), basis, ROWS, found, counted, faults)  # type: ignore[arg-type]


class TestWhatCanBeCompared:
    def test_rows_in_any_order(self) -> None:
        assert basis_of(ROWS, ROWS[::-1], []) == Basis("rows")

    def test_a_changelog_is_merged_by_the_nearest_key_that_the_sink_has(self) -> None:
        often = [{"user": "a", "n": 1}, {"user": "a", "n": 2}, {"user": "b", "n": 1}]
        seldom = [{"user": "a", "n": 2}, {"user": "b", "n": 1}]
        assert basis_of(often, seldom, [["gone"], ["user"]]) == Basis("merged", ("user",))

    def test_a_running_result_that_happens_to_agree_is_merged_all_the_same(self) -> None:
        assert basis_of(ROWS, ROWS, [["user"]], running=True) == Basis("merged", ("user",))

    def test_columns_that_differ_by_themselves_are_left_out(self) -> None:
        one, two = ([{**row, "at": shift + row["id"]} for row in ROWS] for shift in (0.0, 7.5))
        assert basis_of(one, two, []) == Basis("rows", without=("at",))
        assert basis_of(one, two, []).told == "rows, without at"

    def test_where_nothing_else_agrees_the_number_is_compared_and_then_nothing(self) -> None:
        assert basis_of([{"x": 1}, {"x": 2}], [{"x": 3}, {"x": 4}], []) == Basis("count")
        assert basis_of([{"x": 1}], [{"x": 3}, {"x": 4}], []) == Basis("nothing")

    def test_the_last_digits_of_fractions_do_not_count(self) -> None:
        assert Basis("rows").of([{"x": 0.1 + 0.2}]) == Basis("rows").of([{"x": 0.3}])
        assert Basis("rows").of([{"x": 0.3001}]) != Basis("rows").of([{"x": 0.3}])


class TestExactlyOnce:
    def test_the_same_rows_are_kept(self) -> None:
        assert judge("exactly-once", ROWS[::-1]).verdict == "kept"

    @pytest.mark.parametrize(
        ("found", "figures"),
        [
            (ROWS[1:], (1, 0, 0)),
            ([*ROWS, ROWS[3]], (0, 1, 0)),
            ([*ROWS[1:], {"id": 0, "user": "u0", "cents": 1}], (1, 0, 1)),
        ],
    )
    def test_any_difference_breaks_it(self, found: list[Row], figures: tuple[int, int, int]) -> None:
        told = judge("exactly-once", found, counted=5)
        assert (told.verdict, told.missing, told.doubled, told.wrong) == ("broken", *figures)
        assert "id=" in told.first

    def test_for_single_failures_it_counts_for_single_failures(self) -> None:
        assert judge("exactly-once for single failures", ROWS[1:], counted=1, faults=1).verdict == "broken"
        assert judge("exactly-once for single failures", ROWS[1:], counted=1, faults=2).verdict == "kept"
        assert judge("exactly-once for single failures", ROWS[1:], counted=0, faults=2).verdict == "broken"


class TestAtLeastOnce:
    def test_rows_may_come_again_but_none_may_be_missing_or_strange(self) -> None:
        assert judge("at-least-once", [*ROWS, *ROWS[:4]]).verdict == "kept"
        assert judge("at-least-once", ROWS[1:], counted=1).verdict == "broken"
        assert judge("at-least-once", [*ROWS, {"id": 99, "user": "u", "cents": 0}]).verdict == "broken"


class TestBestEffort:
    def test_what_is_missing_must_be_counted(self) -> None:
        assert judge("best effort", ROWS[2:], counted=2).verdict == "kept"
        assert judge("best effort", ROWS[2:], counted=1).verdict == "broken"

    def test_rows_come_again_only_behind_a_region(self) -> None:
        assert judge("best effort", [*ROWS, ROWS[0]], counted=1).verdict == "broken"
        assert judge("best effort", [*ROWS, ROWS[0]], counted=1, may_repeat=True).verdict == "kept"

    def test_values_may_be_off_behind_state_only_if_something_was_counted(self) -> None:
        off = [*ROWS[1:], {"id": 0, "user": "u0", "cents": 7}]
        assert judge("best effort", off, counted=1, has_state=True).verdict == "kept"
        assert judge("best effort", off, counted=0, has_state=True).verdict == "broken"
        assert judge("best effort", off, counted=1).verdict == "broken"


def test_what_cannot_be_compared_is_not_judged() -> None:
    assert judge("exactly-once", ROWS, basis=Basis("nothing")).verdict == "not judged"
    assert judge("exactly-once", ROWS[1:], basis=Basis("count")).verdict == "broken"


def test_the_whole_is_kept_only_if_a_fault_fired_in_the_middle() -> None:
    kept, broken = judge("exactly-once", ROWS), judge("exactly-once", ROWS[1:])
    assert overall([kept], [{"in_middle": True}], "") == "kept"
    assert overall([kept], [{"in_middle": False}], "") == "not judged"
    assert overall([kept, broken], [{"in_middle": False}], "") == "broken"
    assert overall([kept], [{"in_middle": True}], "it hung") == "broken"
    assert overall([], [{"in_middle": True}], "") == "not judged"


class TestSchedules:
    def test_a_seed_repeats_them_and_another_gives_another(self) -> None:
        assert planned(7, FAULTS, 20) == planned(7, FAULTS, 20)
        assert planned(7, FAULTS, 20) != planned(8, FAULTS, 20)

    @pytest.mark.parametrize("seed", range(20))
    def test_faults_come_one_after_another_in_the_middle_and_of_all_kinds(self, seed: int) -> None:
        found = planned(seed, FAULTS, 14)
        shares = [each.share for each in found]
        assert shares == sorted(shares)
        assert shares[0] > FIRST
        assert shares[-1] < LAST
        assert {each.fault for each in found} == set(FAULTS)

    def test_a_place_is_one_that_the_program_reaches(self) -> None:
        reached = ["step.begin", "sink.write", "ckpt.op.put", "sink.write"]
        for each in planned(3, ["driver", "store", "disk", "slow"], 40):
            place = resolved(each, reached)
            assert place in reached if each.place is not None else place is None
        assert all(resolved(each, []) is None for each in planned(3, ["store"], 4))

    def test_a_place_that_is_reached_now_and_then_moves_few_others(self) -> None:
        often = ["step.begin", "step.end", "sink.write", "ckpt.op.put", "sink.prepare"]
        for each in planned(3, ["driver"], 40):
            with_one_more = resolved(each, [*often, "log.write"])
            assert with_one_more in ("log.write", resolved(each, often))

    def test_kinds_are_named(self) -> None:
        assert kinds_of("driver, worker,driver") == ("driver", "worker")
        with pytest.raises(ConfigError, match="no fault 'drivers'"):
            kinds_of("drivers")
