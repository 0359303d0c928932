"""Windows of operators without replay, restored after a failure: what has become too old meanwhile is removed, and told.

Ten rows of the left stream come in each second of a clock that the source moves; the window has the last 100. So at each
moment it is known what a run without failures would hold.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from killed import lived, written

import holdfast as hf
from holdfast.checkpoint import own_records
from holdfast.checkpoint.typed_json import plain
from holdfast.compiler.analyse import ArrowAnalyser
from holdfast.compiler.compile import compile_graph
from holdfast.ids import OperatorName
from holdfast.language.connectors import Slice
from holdfast.language.topology import Topology
from holdfast.runtime.element.aging import feeds
from holdfast.state.values import codec
from holdfast.store.urls import open_store
from holdfast.testing import ManualClock, MemorySink, Rows, run_local

EVERY, WINDOW = 20, 100
KEY = (0, 0, 0, 1)
"""Of rows one behind the other."""


class Crash(BaseException):
    """The driver dies: nothing is saved any more."""


class Ticking(Rows):
    """Ten rows a second; at a given row the driver dies."""

    def __init__(self, rows: list[Any], schema: str, clock: ManualClock, dies_at: int | None = None) -> None:
        super().__init__(rows, schema, rows_per_step=10)
        self._clock = clock
        self._dies_at = dies_at

    def next_slice(self) -> Slice | None:
        if self._dies_at is not None and self._next >= self._dies_at:
            raise Crash
        piece = super().next_slice()
        if piece is not None:
            self._clock.advance(1.0)
        return piece


class Live(Ticking):
    """What comes while nobody listens is gone."""

    replayable = False


@dataclass
class Life:
    """Runs on one store, one after the other."""

    where: str
    shelf: str
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_000_000.0))
    window: Any = field(default_factory=lambda: hf.latest(rows=WINDOW))
    by: str = "n"
    kind: type[Ticking] = Ticking
    in_region: bool = False
    apart: bool = False
    asked: int = 0
    """Rows of the right stream so far: a source goes on behind those it gave."""

    def run(self, rows: int, ask: bool = False, dies: bool = False) -> dict[str, Any]:
        """Up to so many rows of the left stream; `ask`: then the right stream asks for each of them."""
        made = Topology("windows")
        kept = [(n, KEY[n % 4]) for n in range(rows)]
        one = made.source(self.kind(kept, "n long, k long", self.clock, rows if dies else None), name="one")
        wanted = range(rows) if self.by == "n" else (0, 1)
        asking = [(-1,)] * self.asked + [(n,) for n in wanted if ask]
        self.asked = len(asking)
        two = made.source(Rows(asking, "m long", rows_per_step=10_000), name="two")
        if self.in_region:
            one, two = (stream.consistent(name="books", period=EVERY) for stream in (one, two))
        if self.apart:
            one, two = one.isolate(), two.isolate()
        nobody = hf.latest(rows=0)
        pairs = one.join(two, {self.by: "m"}, keep=self.window, other_keep=nobody, name="pairs")
        if not self.in_region:
            pairs = pairs.checkpoint(every=EVERY)
        return self.lived(made, pairs, dies)

    def lived(self, made: Topology, results: hf.Stream, dies: bool) -> dict[str, Any]:
        """Run a topology whose results go to the shelf."""
        results.sink(MemorySink(self.shelf), name="out")
        if not dies:
            return run_local(made, self.where, clock=self.clock)
        with pytest.raises(Crash):
            run_local(made, self.where, clock=self.clock)
        return {}

    def met(self) -> set[int]:
        return {row["n"] for row in MemorySink.rows(self.shelf)}

    def told(self) -> list[Any]:
        return [event.data for event in open_store(self.where).events() if event.kind == "rows.stale"]


@pytest.fixture
def life(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Life]:
    yield Life(f"file:{tmp_path}/store", request.node.name)
    MemorySink.clear(request.node.name)


def counted(status: dict[str, Any]) -> int:
    return sum(
        counts.get("stale", 0)
        for element in status["elements"].values()
        for counts in element["counts"].values()
    )


def test_rows_that_those_taken_after_the_checkpoint_would_have_pushed_out_are_gone(life: Life) -> None:
    life.run(250, dies=True)  # stored after 200; the window holds 100 to 199
    status = life.run(250, ask=True)
    assert life.met() == set(range(150, 200)), "a run without failures would hold 150 to 249"
    assert counted(status) == 50
    (told,) = life.told()
    assert (told["operator"], told["rows"], told["missed"]) == ("pairs", 50, [50, 0])


@pytest.mark.fault("T03")
def test_hours_in_which_nobody_ran_remove_nothing_since_sources_go_on_where_they_were(life: Life) -> None:
    life.run(250, dies=True)
    life.clock.advance(7200)
    life.run(250, ask=True)
    assert life.met() == set(range(150, 200))


def test_what_came_meanwhile_counts_where_the_source_cannot_give_it_again(life: Life) -> None:
    life.kind = Live
    life.run(230, dies=True)
    life.clock.advance(4)  # 3 s of steps after the checkpoint, and 4 s of nobody
    life.run(230, ask=True)
    assert life.met() == set(range(170, 200))


def test_a_run_that_was_stopped_well_loses_nothing_however_late_it_goes_on(life: Life) -> None:
    life.run(250)
    life.clock.advance(7200)
    status = life.run(250, ask=True)
    assert life.met() == set(range(150, 250))
    assert counted(status) == 0
    assert life.told() == []


def test_what_is_left_goes_in_its_turn(life: Life) -> None:
    life.run(250, dies=True)
    life.run(280)
    life.run(280, ask=True)
    assert life.met() == {*range(180, 200), *range(250, 280)}


def test_a_second_failure_does_not_remove_the_same_again(life: Life) -> None:
    life.run(250, dies=True)
    life.clock.advance(500)
    life.run(250, dies=True)
    life.clock.advance(500)
    status = life.run(250, ask=True)
    assert life.met() == set(range(150, 200))
    assert counted(status) == 50
    assert len(life.told()) == 1


def test_of_windows_per_key_each_loses_its_share(life: Life) -> None:
    life.window, life.by = hf.latest(rows=40, per_key=True), "k"
    life.run(250, dies=True)  # stored after 200 rows: 150 of key 0 and 50 of key 1
    status = life.run(250, ask=True)
    often, seldom = ([n for n in range(200) if KEY[n % 4] == key][-40:] for key in (0, 1))
    assert life.met() == {*often[37:], *seldom[12:]}, "of 50 missed rows 37 were of key 0, and 12 of key 1"
    assert counted(status) == 49


def test_a_stream_that_has_fallen_silent_loses_nothing(life: Life) -> None:
    life.run(200)
    life.clock.advance(1)
    slow_life(life, seconds=3600)
    status = life.run(200, ask=True)
    assert life.met() == set(range(100, 200))
    assert counted(status) == 0


def slow_life(life: Life, seconds: float) -> None:
    """A run in which only the right stream has rows, an hour between two of them, until the driver dies."""

    class Slow(Rows):
        def next_slice(self) -> Slice | None:
            if self._next >= 6:
                raise Crash
            life.clock.advance(seconds)
            return super().next_slice()

    made = Topology("windows")
    kept = [(n, KEY[n % 4]) for n in range(200)]
    one = made.source(Ticking(kept, "n long, k long", life.clock), name="one")
    two = made.source(Slow([(-1,)] * 6, "m long", rows_per_step=1), name="two")
    pairs = one.join(two, {"n": "m"}, keep=life.window, other_keep=hf.latest(rows=0), name="pairs")
    pairs.checkpoint(every=2 * seconds).sink(MemorySink(life.shelf), name="out")
    life.asked = 6
    with pytest.raises(Crash):
        run_local(made, life.where, clock=life.clock)


def test_a_checkpoint_of_before_the_rate_was_stored_is_restored_whole(life: Life) -> None:
    life.run(250, dies=True)
    store = open_store(life.where)
    store.open("windows")
    store.acquire()
    found = own_records.load(store, "pairs")
    assert found is not None
    assert found.pace is not None
    assert found.pace.had == (200, 0)
    of_then = {"number": found.number, **plain(found.part)}  # neither a header nor a pace
    store.save_record("state.pairs", json.dumps(of_then).encode())
    store.release()
    life.run(250, ask=True)
    assert life.met() == set(range(100, 200))
    assert life.told() == []


def test_in_a_region_nothing_is_removed_since_rows_come_again(life: Life) -> None:
    life.in_region = True
    life.run(250, dies=True)
    life.clock.advance(7200)
    life.run(250)
    status = life.run(250, ask=True)
    assert life.met() == set(range(150, 250))
    assert counted(status) == 0
    assert life.told() == []


def test_a_step_that_fails_costs_its_own_rows_and_no_state(life: Life) -> None:
    failed: list[bool] = []

    def fails_once(pairs: pa.Table) -> pa.Array:
        if not failed and pairs.num_rows:
            failed.append(True)
            raise ValueError("once")
        return pa.array([True] * pairs.num_rows)

    made = Topology("windows")
    one = made.source(Ticking([(n,) for n in range(250)], "n long", life.clock), name="one")
    two = made.source(Asking(), name="two")
    pairs = one.join(
        two, {"n": "m"}, keep=life.window, other_keep=hf.latest(rows=0), where=fails_once, name="pairs"
    )
    pairs.checkpoint(every=EVERY).sink(MemorySink(life.shelf), name="out")
    status = run_local(made, life.where, clock=life.clock)
    assert failed
    assert life.met() == set(range(140, 240))
    assert counted(status) == 0, "nothing went back"
    assert status["elements"]["one"]["lost_rows"] == 11, "the rows of the step, of both inputs"


class Asking(Rows):
    """24 steps ask for nothing, one for a row that is there, the next for all."""

    def __init__(self) -> None:
        super().__init__([(-1,)] * 24 + [(195,)] + [(n,) for n in range(250)], "m long", rows_per_step=1)

    def next_slice(self) -> Slice | None:
        self._step = 1 if self._next < 25 else 1000
        return super().next_slice()


def test_an_element_without_sources_remembers_when_it_took_its_last_rows(life: Life) -> None:
    life.apart = True
    life.run(250, dies=True)
    status = life.run(250, ask=True)
    assert counted(status) == sum(told["rows"] for told in life.told())
    record = codec.decode(open_store(life.where).load_record("books") or b"")
    assert 1_000_000 < record["taken_s"]["pairs"] <= life.clock.wall()


def test_where_rows_are_that_came_while_nobody_ran() -> None:
    made = Topology("mixed")
    exact = made.source(Rows([(1,)], "n long"), name="exact").consistent("books")
    loose = made.source(Rows([(1,)], "n long"), name="loose")
    live = made.source(Live([(1,)], "n long", ManualClock()), name="live")
    windows = {"keep": hf.latest(rows=5), "other_keep": hf.latest(rows=0)}
    loose.join(exact.autonomous(), "n", **windows, name="first").sink(MemorySink("feeds-1"), name="out_1")
    live.join(loose, "n", **windows, name="second").sink(MemorySink("feeds-2"), name="out_2")
    plan = compile_graph(made.graph(), ArrowAnalyser())
    assert feeds(plan, OperatorName("first")) == ("waits", "again")
    assert feeds(plan, OperatorName("second")) == ("gone", "waits")


# --- aggregates over windows of rows ---


def aggregated(life: Life, rows: int, dies: bool = False) -> dict[str, Any]:
    """The last forty rows of each key after every tenth of them; up to so many rows in all."""
    made = Topology("windows")
    kept = [(n, KEY[n % 4]) for n in range(rows)]
    one = made.source(life.kind(kept, "n long, k long", life.clock, rows if dies else None), name="one")
    if life.in_region:
        one = one.consistent(name="books", period=EVERY)
    own = hf.udaf(lambda values: values.to_pylist(), "n", type="array<long>")
    told = one.aggregate(
        "k",
        window=hf.sliding(rows=40, every=10),
        all=hf.collect("n"),
        own=own,
        last=hf.last("n"),
        name="told",
    )
    if not life.in_region:
        told = told.checkpoint(every=EVERY)
    return life.lived(made, told, dies)


def test_windows_of_rows_hold_none_that_the_missed_ones_would_have_pushed_out(life: Life) -> None:
    aggregated(life, 250, dies=True)  # stored after 200 rows: 150 of key 0 and 50 of key 1
    MemorySink.clear(life.shelf)
    status = aggregated(life, 300)
    # Of the 50 missed rows 37 were of key 0, and 12 of key 1: they go on with their rows 188 and 63.
    of = {key: [n for n in range(300) if KEY[n % 4] == key] for key in (0, 1)}
    stood = {key: [*(n for n in of[key] if n < 200), *gap, *(n for n in of[key] if n >= 250)]
             for key, gap in ((0, [None] * 37), (1, [None] * 12))}  # fmt: skip
    wanted = {
        (key, end): [n for n in rows[end - 40 : end] if n is not None]
        for key, rows in stood.items()
        for end in range(10, len(rows) + 1, 10)
        if rows[end - 1] is not None and rows[end - 1] >= 250
    }
    found = {(row["k"], row["window_rows"]): row for row in MemorySink.rows(life.shelf)}
    assert {key: row["all"] for key, row in found.items()} == wanted
    assert {key: row["own"] for key, row in found.items()} == wanted
    assert {key: row["last"] for key, row in found.items()} == {key: rows[-1] for key, rows in wanted.items()}
    assert counted(status) == 37 + 12
    (event,) = life.told()
    assert (event["operator"], event["rows"], event["missed"]) == ("told", 49, [50])


def test_a_second_failure_leaves_no_second_gap(life: Life) -> None:
    aggregated(life, 250, dies=True)
    aggregated(life, 250, dies=True)
    assert [event["rows"] for event in life.told()] == [49]
    MemorySink.clear(life.shelf)
    aggregated(life, 260)
    assert {(row["k"], row["window_rows"]) for row in MemorySink.rows(life.shelf)} == {(0, 190)}


def test_in_a_region_windows_of_rows_have_no_gaps(life: Life) -> None:
    life.in_region = True
    aggregated(life, 250, dies=True)
    life.clock.advance(7200)
    status = aggregated(life, 300)
    whole = [row for row in MemorySink.rows(life.shelf) if row["window_rows"] >= 40]
    assert {len(row["all"]) for row in whole} == {40}
    assert counted(status) == 0


PROGRAM = Path(__file__).with_name("aging_program.py")


AGAIN = [(), ("ckpt.op.put=kill@1",), ("ckpt.op.put_done=kill@1", "ckpt.op.put=kill@1")]
"""Where later lives die, at the checkpoint that follows the restore. One of these is drawn; `make chaos` has all."""


@pytest.mark.sampled
@pytest.mark.parametrize("again", AGAIN)
def test_a_driver_that_was_killed_and_some_that_die_while_they_remove_what_is_stale(
    again: tuple[str, ...], tmp_path: Path
) -> None:
    assert (
        lived(PROGRAM, tmp_path, "step.end=kill@25", "250", "0") == -signal.SIGKILL
    )  # stored after 200 rows
    for failpoint in again:
        assert lived(PROGRAM, tmp_path, failpoint, "250", "250") == -signal.SIGKILL, f"no {failpoint}"
    assert lived(PROGRAM, tmp_path, "", "250", "250") == 0
    found = {row["n"] for row in written(tmp_path, "out")}
    assert found == set(range(200 - len(found), 200)), "the window's oldest rows went, and no others"
    assert 40 <= len(found) <= 60, "a run without failures would hold 150 to 249"


@pytest.mark.sampled
@pytest.mark.parametrize("again", AGAIN[1:])
def test_windows_of_rows_of_a_driver_that_was_killed_and_dies_again_at_its_restore(
    again: tuple[str, ...], tmp_path: Path
) -> None:
    assert lived(PROGRAM, tmp_path, "step.end=kill@25", "250", "all") == -signal.SIGKILL
    for failpoint in again:
        assert lived(PROGRAM, tmp_path, failpoint, "300", "all") == -signal.SIGKILL, f"no {failpoint}"
    assert lived(PROGRAM, tmp_path, "", "300", "all") == 0
    later = [row["all"] for row in written(tmp_path, "out") if row["all"][-1] >= 250]
    assert len(later) == 5
    assert any(rows[0] < 200 for rows in later), "what is not stale is still there"
    assert all(rows[-1] - rows[0] < WINDOW + 10 for rows in later), "none is older than the window"
    assert not {n for rows in later for n in rows} & set(range(200, 250))
