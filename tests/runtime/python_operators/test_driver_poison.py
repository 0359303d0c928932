"""Rows at which an operator in the driver raises, or hangs, several times in the same way: told once, or parked; all others as without them."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import driver_poison_program as program
import pytest
from killed import killed_and_finished, written

import holdfast as hf
from holdfast.errors import RegionParkedError, TopologyError
from holdfast.runtime.runs.hosted import known_states
from holdfast.testing import MemorySink, run_local

PROGRAM = Path(program.__file__)


def run(shelf: str, operator: Any, where: str | None, rows: int = 40, **given: Any) -> list[dict[str, Any]]:
    """The letters."""
    made = hf.Topology("poison")
    source = made.source(hf.Rows([(n,) for n in range(rows)], "n long", rows_per_step=10), name="rows")
    if where is not None:
        source = source.consistent("r", period=0.02)
    stream = source.apply(operator, "n long, total long", name="op", **given)
    stream.sink(MemorySink(shelf), name="out")
    poison = given.get("poison")
    if given.get("on_error") == "stream" or getattr(poison, "then", poison) == "quarantine":
        stream.errors.sink(MemorySink(f"{shelf}-bad"), name="bad")
    run_local(made, where)
    found = MemorySink.rows(f"{shelf}-bad")
    MemorySink.clear(f"{shelf}-bad")
    return found


def bad(letters: list[dict[str, Any]]) -> list[int]:
    return sorted(json.loads(letter["row"])["n"] for letter in letters)


def sums(without: set[int], rows: int = 40) -> list[tuple[int, int]]:
    found, total = [], 0
    for n in range(rows):
        if n not in without:
            total += n
            found.append((n, total))
    return found


def made(shelf: str) -> list[tuple[int, int]]:
    return [(row["n"], row["total"]) for row in MemorySink.rows(shelf)]


class Sums(hf.Operator):
    """Changes its state before anything goes wrong."""

    total = hf.Value(int, default=0)

    def process(self, row: Any, port: int) -> Any:
        self.total += row.n
        self.odd(row)
        return {"n": row.n, "total": self.total}

    def odd(self, row: Any) -> None: ...


def store(tmp_path: Path) -> str:
    return f"file:{tmp_path}/store"


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.fault("I03")
def test_a_row_that_raises_as_often_as_allowed_is_told_once(inside: bool, shelf: str, tmp_path: Path) -> None:
    tries: list[int] = []

    class Odd(Sums):
        def odd(self, row: Any) -> None:
            if row.n in (13, 27):
                tries.append(row.n)
                raise ValueError(f"not {row.n}")

    letters = run(shelf, Odd, store(tmp_path) if inside else None, poison=hf.Poison(after=3))
    assert bad(letters) == [13, 27]
    assert {letter["error"] for letter in letters} == {"ValueError: not 13", "ValueError: not 27"}
    assert made(shelf) == sums({13, 27})
    assert (tries.count(13), tries.count(27)) == (3, 3)


def test_what_passes_by_itself_is_no_matter_of_the_row(shelf: str, tmp_path: Path) -> None:
    left = {13: 2, 20: 1}

    class Odd(Sums):
        def odd(self, row: Any) -> None:
            if left.get(row.n, 0):
                left[row.n] -= 1
                raise ValueError("for a while")

    assert run(shelf, Odd, store(tmp_path), poison=hf.Poison(after=3)) == []
    assert made(shelf) == sums(set())


def test_a_row_that_fails_in_another_way_each_time_parks(shelf: str, tmp_path: Path) -> None:
    class Odd(Sums):
        def odd(self, row: Any) -> None:
            if row.n == 13:
                raise ValueError(f"at {time.perf_counter_ns()}")

    with pytest.raises(RegionParkedError, match="ValueError: at "):
        run(shelf, Odd, store(tmp_path), poison="quarantine")
    assert set(made(shelf)) <= set(sums(set())[:13])


def test_it_parks_with_the_row_named_if_the_user_wants_that(shelf: str, tmp_path: Path) -> None:
    class Odd(Sums):
        def odd(self, row: Any) -> None:
            if row.n == 13:
                raise ValueError("not this one")

    with pytest.raises(RegionParkedError, match="not this one"):
        run(shelf, Odd, store(tmp_path), poison="park")


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.fault("P05")
def test_a_row_that_hangs_is_told_once_and_what_it_does_later_reaches_nobody(
    inside: bool, shelf: str, tmp_path: Path
) -> None:
    go_on, tries = threading.Event(), []

    class Odd(Sums):
        def odd(self, row: Any) -> None:
            if row.n in (13, 14):
                tries.append(row.n)
                go_on.wait(60)
            if row.n == 30:
                go_on.set()  # the threads that hung come back, and would go on with their batches
                time.sleep(0.2)

    letters = run(shelf, Odd, store(tmp_path) if inside else None, poison=hf.Poison(after=2, timeout=0.3))
    assert bad(letters) == [13, 14]
    assert {letter["error"] for letter in letters} == {"it had not ended after 0.3 s"}
    assert made(shelf) == sums({13, 14})
    assert tries == [13, 13, 14, 14]


def test_a_state_that_is_too_large_to_be_remembered_costs_a_reset_and_nothing_else(
    shelf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_states, "REMEMBERED_BYTES", 0)
    go_on = threading.Event()

    class Odd(Sums):
        def odd(self, row: Any) -> None:
            if row.n == 13:
                go_on.wait(60)
            if row.n == 21:
                raise ValueError("not this one")

    letters = run(shelf, Odd, store(tmp_path), poison=hf.Poison(after=2, timeout=0.3))
    go_on.set()
    assert bad(letters) == [13, 21]
    assert made(shelf) == sums({13, 21})


def test_errors_are_told_at_once_and_hanging_rows_after_a_while(shelf: str, tmp_path: Path) -> None:
    tries: list[int] = []
    go_on = threading.Event()

    class Odd(Sums):
        def odd(self, row: Any) -> None:
            if row.n == 4:
                tries.append(row.n)
                raise ValueError("not this one")
            if row.n == 7:
                go_on.wait(60)

    given = {"poison": hf.Poison(timeout=0.3), "on_error": "stream"}
    assert bad(run(shelf, Odd, store(tmp_path), **given)) == [4, 7]
    go_on.set()
    assert made(shelf) == sums({4, 7})
    assert tries == [4]


# --- kills ------------------------------------------------------------------------------------------------------------


def check(here: Path) -> None:
    found = sorted((row["n"], row["total"]) for row in written(here, "out"))
    assert found == sums({program.RAISES, program.HANGS}, program.ROWS)
    letters = {json.loads(row["row"])["n"]: row["error"] for row in written(here, "bad")}
    assert letters == {program.RAISES: "ValueError: never", program.HANGS: "it had not ended after 0.2 s"}
    assert len(written(here, "bad")) == 2, "each once"


@pytest.mark.parametrize(
    "kills",
    [
        ["step.begin=kill@12", "ckpt.epoch.published=kill@2"],
        ["sink.commit.begin=kill@2", "drain.all_acked=kill@1"],
    ],
)
@pytest.mark.fault("I03", "P09")
def test_it_is_told_once_whenever_the_driver_is_killed(kills: list[str], tmp_path: Path) -> None:
    killed_and_finished(PROGRAM, tmp_path, kills)
    check(tmp_path)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_tables_and_threads_cannot_have_it() -> None:
    class Tables:
        def process_batch(self, table: Any, port: int) -> Any: ...

    class Threads(hf.Operator):
        def process(self, row: Any, port: int) -> Any: ...

        def run(self, context: Any) -> None: ...

    rows = hf.Topology("t").source(hf.Rows([(1,)], "n long"), name="rows")
    for operator, word in ((Tables, "process_batch"), (Threads, "threads")):
        with pytest.raises(TopologyError, match=rf"{word}.*poison="):
            rows.apply(operator, "n long", poison="quarantine")
    with pytest.raises(TopologyError, match="poison='drop' is not known"):
        rows.apply(Sums, "n long, total long", poison="drop")
