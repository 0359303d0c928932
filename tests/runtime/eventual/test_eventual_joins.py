"""Window joins with eventual checkpoints against a naive model: random windows, steps and kills, loss of the last frames."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from sampling import Extent
from simulated import SimulatedLog
from simulated_join import Row, SimulatedJoin, Streams, join_of, naive, run_with_kills, told

from holdfast.errors import DamagedError, MismatchError, StateError
from holdfast.state.eventual import joins, records
from holdfast.state.eventual.books import Pace
from holdfast.state.eventual.joins import JoinWindowPlaces, Place
from holdfast.state.eventual.records import Kind
from holdfast.state.values import codec

PACES = (Pace(None, 0, 1), Pace(2_000, 0, 3), Pace(10_000, 5_000, 10), Pace(100_000, 0, 1))
SIZES = ((1, 1), (5, 5), (0, 8), (12, 0), (3, 1000), (1000, 1000), (40, 7))
NEVER = Pace(None)


def streams_of(seed: int) -> Streams:
    """Fast keys, slow ones, or both; some rows have none."""
    chance = random.Random(seed)
    keys: list[str | None] = [*map(str, range(chance.choice((1, 3, 40)))), None]

    def rows(count: int) -> list[Row]:
        return [(chance.choice(keys), number) for number in range(count)]

    return rows(chance.randint(0, 200)), rows(chance.randint(0, 120))


@pytest.mark.parametrize("pace", PACES, ids=str)
def test_window_joins_survive_any_kill(extent: Extent, pace: Pace) -> None:
    cases = [(seed, sizes) for seed in range(60) for sizes in SIZES]
    found = 0
    for seed, sizes in extent.of(cases, 6):
        streams = streams_of(seed)
        log, cuts, restores = run_with_kills(join_of(*sizes), streams, pace, seed)
        found += restores
        assert told(log) == naive(streams, cuts, sizes), f"seed {seed}, {sizes=}"
    assert found


def test_few_places_are_remembered_of_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joins, "PLACES_MAX", 4)
    for seed in range(10):
        streams = streams_of(seed)
        log, cuts, _ = run_with_kills(join_of(60, 30), streams, PACES[1], seed)
        assert told(log) == naive(streams, cuts, (60, 30)), f"seed {seed}"


def life(
    log: SimulatedLog, streams: Streams, pace: Pace, steps: int, sizes: tuple[int, int] = (20, 10)
) -> SimulatedJoin:
    join = SimulatedJoin(join_of(*sizes), streams, log, pace)
    for number in range(steps):
        join.step((2, 1), number * 1_000)
    return join


KEYED: Streams = ([("a", n) for n in range(400)], [("a", n) for n in range(400)])
STRANGE: Streams = ([("a", n) for n in range(400)], [("b", n) for n in range(400)])


def test_a_restore_reads_back_to_a_record_of_each_window_and_replays_no_more_than_they_hold() -> None:
    log = SimulatedLog()
    life(log, KEYED, Pace(10_000, 0, 1), 150).die()
    join = SimulatedJoin(join_of(20, 10), KEYED, log, NEVER)
    found = join.restore(1000)
    join.die()
    assert found is not None
    assert (found.newest.n_open, sorted(found.windows)) == (2, [0, 1])
    assert len(found.notes) <= 12  # of 150
    assert [window.kind for window, _, _ in found.windows.values()] == [Kind.CHECKED] * 2
    for side, (window, number, _) in found.windows.items():
        since = 150 - number  # steps behind the record
        assert found.newest.after.source[side] - window.rows <= (20, 10)[side] + since * (2, 1)[side] + 2


def test_without_checks_rows_are_replayed_from_the_first_on() -> None:
    log = SimulatedLog()
    life(log, KEYED, NEVER, 50).die()
    join = SimulatedJoin(join_of(20, 10), KEYED, log, NEVER)
    found = join.restore(1000)
    join.die()
    assert found is not None
    assert [window.rows for window, _, _ in found.windows.values()] == [0, 0]
    assert len(found.notes) == 50


def test_a_step_that_opens_checks_and_gives_nothing_writes_nothing() -> None:
    log = SimulatedLog()
    life(log, STRANGE, NEVER, 50).die()
    assert len(log.frames) == 1


def test_what_is_needed_of_the_input_moves_on_with_the_records() -> None:
    log = SimulatedLog()
    join = life(log, KEYED, Pace(5_000, 0, 1), 100, (20, 0))
    held = join.recorder.held
    join.die()
    assert 200 - 20 - 5 * 2 - 2 <= held[0] <= 180  # the window's rows, and those of the steps since its check
    assert held[1] == 100  # nothing is kept of it


def test_a_window_whose_record_is_gone_is_damage() -> None:
    log = SimulatedLog()
    life(log, KEYED, NEVER, 9).die()
    join = SimulatedJoin(join_of(20, 10), KEYED, SimulatedLog(log.frames[3:]), NEVER)
    with pytest.raises(DamagedError, match="2 open windows, and 0 are found"):
        join.restore(10)
    join.die()


def test_another_join_does_not_go_on_from_the_records() -> None:
    log = SimulatedLog()
    life(log, KEYED, NEVER, 3).die()
    join = SimulatedJoin(join_of(20, 10), KEYED, log, NEVER)
    join.recorder.made = "another"
    with pytest.raises(MismatchError, match="has records of test"):
        join.restore(10)
    join.die()


def test_a_record_that_cannot_be_true_is_not_written() -> None:
    window = JoinWindowPlaces(5)
    window.passed(Place(0, "a"), 3)
    assert window.tell(0, 3).rows == 0
    window.passed(Place(3, "b"), 20)
    with pytest.raises(StateError, match="would be missing"):
        window.tell(0, 7)
    window.passed(Place(20, "c"), 30)
    window.told = Place(25, "d")
    with pytest.raises(StateError, match="the window began at row 25"):
        window.tell(0, 30)


def test_records_of_a_join_come_back_as_they_were_and_are_shown() -> None:
    log = SimulatedLog()
    life(log, KEYED, NEVER, 1).die()
    part = records.decode(log.frames[0][1])
    assert part is not None
    assert part.note is not None
    assert records.encode(part.note) == [log.frames[0][1]]
    shown = list(records.described(part))
    assert shown[0].startswith("note 1: 2 records, 2 windows open")
    assert shown[1:] == [
        "  opened  the left window: rows from 0 on",
        "  opened  the right window: rows from 0 on",
    ]
    page = (Path(__file__).parents[3] / "docs/formats/eventual.md").read_text("utf-8")
    assert all(f"`{name}`" in page for name in codec.decode(log.frames[0][1][5:])["note"])
