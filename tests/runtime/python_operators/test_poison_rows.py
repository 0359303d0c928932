"""Rows that end the process which works at them: found, put aside once, and all others as if they had never been."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import poison_program as program
import pyarrow as pa
import pytest
from killed import killed_and_finished, undisturbed, written

import holdfast as hf
from holdfast.errors import RegionParkedError, TopologyError
from holdfast.protocol.bounds import poison
from holdfast.runtime.element.poison import poisoned_step
from holdfast.runtime.engines.apart import apart
from holdfast.testing import MemorySink, run_local

PROGRAM = Path(program.__file__)
BAD = {program.KILLS, program.EXITS}


@pytest.fixture
def here(fast_directory: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix="poison-", dir=fast_directory))


def sums() -> list[tuple[str, int, int]]:
    """What comes out if the bad rows never come in."""
    totals: dict[str, int] = {}
    found = []
    for n, k in program.ROWS:
        if n not in BAD:
            totals[k] = totals.get(k, 0) + n
            found.append((k, n, totals[k]))
    return sorted(found)


def check(here: Path) -> None:
    assert sorted((row["k"], row["n"], row["total"]) for row in written(here, "out")) == sums()
    letters = {json.loads(row["row"])["n"]: row for row in written(here, "bad")}
    assert sorted(json.loads(row["row"])["n"] for row in written(here, "bad")) == sorted(BAD), "each once"
    assert letters[program.KILLS]["error"] == "its process was ended by SIGKILL"
    assert letters[program.EXITS]["error"] == "its process ended with code 3"


@pytest.mark.fault("I04")
def test_a_row_that_ends_its_process_is_put_aside_and_all_others_are_as_without_it(here: Path) -> None:
    undisturbed(PROGRAM, here)
    check(here)


@pytest.mark.parametrize(
    "kills",
    [
        ["poison.try=kill@4", "poison.try=kill@2", "ckpt.epoch.published=kill@1"],
        ["sink.commit.begin=kill@1", "poison.try=kill@6"],
    ],
)
def test_it_is_put_aside_once_whenever_the_driver_is_killed(here: Path, kills: list[str]) -> None:
    killed_and_finished(PROGRAM, here, kills)
    check(here)


# --- in this process --------------------------------------------------------------------------------------------------


def run(shelf: str, operator: Any, where: str | None, rows: int = 30, **given: Any) -> list[dict[str, Any]]:
    made = hf.Topology("poison")
    data = [(n, n % 2) for n in range(rows)]
    source = made.source(hf.Rows(data, "n long, k long", rows_per_step=given.pop("step", 10)), name="rows")
    if where is not None:
        source = source.consistent("r")
    stream = source.keyed("k", operator, "n long", name="op", **given)
    stream.sink(MemorySink(shelf), name="out")
    if given["poison"] not in ("park",):
        stream.errors.sink(MemorySink(f"{shelf}-bad"), name="bad")
    run_local(made, where)
    found = MemorySink.rows(f"{shelf}-bad")
    MemorySink.clear(f"{shelf}-bad")
    return found


def bad(letters: list[dict[str, Any]]) -> list[int]:
    return sorted(json.loads(letter["row"])["n"] for letter in letters)


def numbers(shelf: str) -> list[int]:
    return sorted(row["n"] for row in MemorySink.rows(shelf))


class Dies(hf.KeyedOperator):
    """At row 13, and at row 28 because of row 22."""

    armed = hf.Value(bool, default=False)

    def process(self, row: Any, key: Any) -> Any:
        self.armed = self.armed or row.n == 22
        if row.n == 13 or (self.armed and row.n == 28):
            os._exit(9)
        return {"n": row.n}


def test_a_row_that_only_dies_because_of_one_before_it_is_found(shelf: str, tmp_path: Path) -> None:
    assert bad(run(shelf, Dies, f"file:{tmp_path}/store", poison="quarantine")) == [13, 28]
    assert numbers(shelf) == [n for n in range(30) if n not in (13, 28)]


def test_outside_of_regions_no_row_is_lost_either(shelf: str) -> None:
    class Odd(hf.KeyedOperator):
        def process(self, row: Any, key: Any) -> Any:
            return os._exit(1) if row.n == 7 else {"n": row.n}

    assert bad(run(shelf, Odd, None, poison="quarantine")) == [7]
    assert numbers(shelf) == [n for n in range(30) if n != 7]


def test_errors_and_deaths_are_told_in_one_stream(shelf: str, tmp_path: Path) -> None:
    class Both(hf.KeyedOperator):
        def process(self, row: Any, key: Any) -> Any:
            if row.n == 4:
                raise ValueError("not this one")
            return os._exit(1) if row.n == 7 else {"n": row.n}

    letters = run(shelf, Both, f"file:{tmp_path}/store", poison="quarantine", on_error="stream")
    assert bad(letters) == [4, 7]
    assert {letter["error"] for letter in letters} == {
        "ValueError: not this one",
        "its process ended with code 1",
    }
    assert numbers(shelf) == [n for n in range(30) if n not in (4, 7)]


@pytest.mark.fault("P05")
def test_a_row_that_does_not_come_to_an_end_is_found_by_its_time(shelf: str, tmp_path: Path) -> None:
    class Hangs(hf.KeyedOperator):
        def process(self, row: Any, key: Any) -> Any:
            if row.n == 3:
                time.sleep(1000)
            return {"n": row.n}

    limit = hf.Poison("quarantine", after=1, timeout=3)
    assert bad(run(shelf, Hangs, f"file:{tmp_path}/store", rows=6, step=1, poison=limit)) == [3]
    assert numbers(shelf) == [0, 1, 2, 4, 5]


def test_an_exception_is_no_death(shelf: str, tmp_path: Path) -> None:
    class Raises(hf.KeyedOperator):
        def process(self, row: Any, key: Any) -> Any:
            raise ValueError("at every row")

    with pytest.raises(RegionParkedError, match="ValueError: at every row"):
        run(shelf, Raises, f"file:{tmp_path}/store", poison="quarantine")


@pytest.mark.fault("I04")
def test_where_the_user_wants_to_look_at_it_the_region_parks_with_the_row_named(
    shelf: str, tmp_path: Path
) -> None:
    class Odd(hf.KeyedOperator):
        def process(self, row: Any, key: Any) -> Any:
            return os._exit(1) if row.n == 17 else {"n": row.n}

    where = f"file:{tmp_path}/store"
    with pytest.raises(
        RegionParkedError, match=r'at the row \{"n": 17, "k": 1\}: its process ended with code 1'
    ):
        run(shelf, Odd, where, poison="park")
    assert numbers(shelf) == []
    assert bad(run(shelf, Odd, where, poison="quarantine")) == [17]
    assert numbers(shelf) == [n for n in range(30) if n != 17]


@pytest.mark.fault("I04", "B05")
def test_code_that_dies_at_every_row_is_not_fed_with_all_of_them(
    shelf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poison, "MAX_FOUND", 1)
    monkeypatch.setattr(poisoned_step, "MAX_FOUND", 1)

    class Never(hf.KeyedOperator):
        def process(self, row: Any, key: Any) -> Any:
            os._exit(1)

    with pytest.raises(RegionParkedError, match="more than 1 rows of one step end their processes"):
        run(shelf, Never, f"file:{tmp_path}/store", rows=6, step=6, poison=hf.Poison(after=1))
    assert numbers(shelf) == []


def ends_at_12(table: pa.Table) -> pa.Table:
    if 12 in table.column("n").to_pylist():
        os.kill(os.getpid(), signal.SIGKILL)
    return table.select(["n"])


def test_a_function_over_tables_goes_on_without_the_row_that_ends_its_process(
    shelf: str, tmp_path: Path
) -> None:
    made = hf.Topology("poison")
    rows = made.source(hf.Rows([(n, 0) for n in range(30)], "n long, k long", rows_per_step=10), name="rows")
    mapped = rows.consistent("r").map_arrow(ends_at_12, "n long", name="mapped", poison=hf.Poison(after=1))
    mapped.sink(MemorySink(shelf), name="out")
    mapped.errors.sink(MemorySink(f"{shelf}-bad"), name="bad")
    run_local(made, f"file:{tmp_path}/store")
    assert numbers(shelf) == [n for n in range(30) if n != 12]
    (letter,) = MemorySink.rows(f"{shelf}-bad")
    MemorySink.clear(f"{shelf}-bad")
    assert json.loads(letter["row"]) == {"n": 12, "k": 0}
    assert letter["operator"] == "mapped"


# --- parts ------------------------------------------------------------------------------------------------------------


def test_work_apart_answers_raises_and_dies() -> None:
    assert apart(lambda: list(range(100_000)))[-1] == 99_999
    with pytest.raises(ZeroDivisionError):
        apart(lambda: 1 // 0)
    with pytest.raises(hf.HoldfastError, match="code 5"):
        apart(lambda: os._exit(5))
    with pytest.raises(hf.HoldfastError, match="SIGKILL"):
        apart(lambda: os.kill(os.getpid(), signal.SIGKILL))


@pytest.mark.parametrize("wrong", ["bury", 7, ("park",)])
def test_what_is_not_known_is_refused(wrong: Any) -> None:
    rows = hf.Topology("t").source(hf.Rows([(1,)], "n long"), name="rows")
    with pytest.raises(TopologyError, match="is not known"):
        rows.keyed("n", program.Sums, "n long", poison=wrong)
    for after in (0, -1, True, 1.5):
        with pytest.raises(TopologyError, match="after must be"):
            hf.Poison(after=after)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="timeout"):
        hf.Poison(timeout=-1)
    made = hf.Topology("unread")
    unread = made.source(hf.Rows([(1,)], "n long"), name="rows").map_arrow(
        ends_at_12, "n long", name="mapped", poison="quarantine"
    )
    unread.sink(MemorySink("x"), name="out")
    with pytest.raises(TopologyError, match=r'told poison="quarantine", and nobody reads its errors'):
        run_local(made)
    with pytest.raises(TopologyError, match="no errors of its own"):
        rows.keyed("n", program.Sums, "n long", poison="park").errors.sink(MemorySink("x"), name="x")
