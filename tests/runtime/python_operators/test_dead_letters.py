"""`on_error="stream"`: rows that fail are in a stream of their own, exactly once, and leave no trace in state and output."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import driven
import pytest
from driven import Driven
from keyed_python_model import logic_of, table_of

import holdfast as hf
from holdfast.errors import RegionParkedError, TopologyError
from holdfast.store.urls import open_store
from holdfast.testing import compare_rows, compare_sequence, run_local

ROWS = [(f"k{n % 3}", n) for n in range(90)]
SCHEMA = "k string, n long, total long"


def is_bad(n: int) -> bool:
    return n % 10 in (3, 4)


def golden() -> list[dict[str, Any]]:
    totals: dict[str, int] = {}
    found = []
    for k, n in ROWS:
        if not is_bad(n):
            totals[k] = totals.get(k, 0) + n
            found.append({"k": k, "n": n, "total": totals[k]})
    return found


class Plain(hf.Operator):
    """Fails behind a change of its state and a row that it has submitted."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}

    def process(self, row: Any, port: int) -> Iterator[dict[str, Any]]:
        self.totals[row.k] = self.totals.get(row.k, 0) + row.n
        yield {"k": row.k, "n": row.n, "total": self.totals[row.k]}
        if is_bad(row.n):
            raise ValueError(f"{row.n} is bad")


class Declared(Plain):
    totals = hf.Map(str, int)  # type: ignore[assignment]

    def __init__(self) -> None:
        pass


class Keyed(hf.KeyedOperator):
    total = hf.Value(int, default=0)

    def process(self, row: Any, key: Any) -> Iterator[dict[str, Any]]:
        self.total += row.n
        yield {"k": key, "n": row.n, "total": self.total}
        if is_bad(row.n):
            raise ValueError(f"{row.n} is bad")


class Weak(driven.Weak):
    def fails_at(self, row: Any) -> bool:
        return row.n in (35, 60)


WAYS = {
    "plain": lambda rows: rows.apply(Plain, SCHEMA, name="op", on_error="stream"),
    "declared": lambda rows: rows.apply(Declared, SCHEMA, name="op", on_error="stream"),
    "keyed": lambda rows: rows.keyed("k", Keyed, SCHEMA, name="op", on_error="stream"),
}


@pytest.fixture
def shelves(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    names = (f"{request.node.name} out", f"{request.node.name} errors")
    yield names
    for name in names:
        hf.MemorySink.clear(name)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.fault("I03", "O08")
def test_rows_that_fail_are_told_once_and_leave_no_trace(
    way: str, tmp_path: Path, shelves: tuple[str, str]
) -> None:
    topology = hf.Topology("letters")
    source = topology.source(hf.Rows(ROWS, "k string, n long", rows_per_step=7), name="rows")
    made = WAYS[way](source.consistent("r", period=0.02, max_consecutive_resets=5))
    made.apply(Weak, SCHEMA, name="weak").sink(hf.MemorySink(shelves[0]), name="out")
    made.errors.sink(hf.MemorySink(shelves[1]), name="errors")
    Weak.failures = 2
    status = run_local(topology, f"file:{tmp_path}/store", partitions=3)
    assert status["regions"]["r"]["resets"] == 2
    compare_rows(golden(), hf.MemorySink.rows(shelves[0]))
    letters = hf.MemorySink.rows(shelves[1])
    wanted = [{"k": k, "n": n} for k, n in ROWS if is_bad(n)]
    compare_rows(wanted, [json.loads(letter["row"]) for letter in letters])
    assert {letter["operator"] for letter in letters} == {"op"}
    for letter in letters:
        assert letter["error"] == f"ValueError: {json.loads(letter['row'])['n']} is bad"
        assert letter["traceback"].count("File ") == 1
        assert __file__ in letter["traceback"]
        assert letter["time"].tzinfo is not None
    counts = [element["counts"]["op"] for element in status["elements"].values() if element["counts"]]
    assert counts[0]["errors"] == len(wanted)


def test_a_stored_state_goes_on_with_and_without_a_stream_of_errors(
    tmp_path: Path, shelves: tuple[str, str]
) -> None:
    def run(rows: list[Any], on_error: Any) -> None:
        topology = hf.Topology("letters")
        source = topology.source(hf.Rows(rows, "k string, n long"), name="rows").consistent("r", period=0.02)
        made = source.apply(Declared, SCHEMA, name="op", on_error=on_error)
        made.sink(hf.MemorySink(shelves[0]), name="out")
        if on_error == "stream":
            made.errors.autonomous().sink(hf.MemorySink(shelves[1]), name="errors")
        run_local(topology, f"file:{tmp_path}/store")

    run(ROWS[:2], "fail")
    run(ROWS[:50], "stream")
    run([*ROWS[:50], ("k0", 60)], "fail")
    before = [row for row in golden() if row["n"] < 50]
    last = max(row["total"] for row in before if row["k"] == "k0")
    compare_sequence([*before, {"k": "k0", "n": 60, "total": last + 60}], hf.MemorySink.rows(shelves[0]))


# --- what a row may be, and what is no matter of a row ---


def run_one(operator: Any, tmp_path: Path, shelves: tuple[str, str]) -> list[dict[str, Any]]:
    topology = hf.Topology("letters")
    source = topology.source(hf.Rows([("a", 1), ("b", 2)], "k string, n long"), name="rows")
    made = source.consistent("r", period=0.02).apply(operator, SCHEMA, name="op", on_error="stream")
    made.sink(hf.MemorySink(shelves[0]), name="out")
    made.errors.sink(hf.MemorySink(shelves[1]), name="errors")
    run_local(topology, f"file:{tmp_path}/store")
    return hf.MemorySink.rows(shelves[1])


def test_a_value_that_does_not_fit_the_schema_is_a_failure_of_its_row(
    tmp_path: Path, shelves: tuple[str, str]
) -> None:
    class Odd(hf.Operator):
        def process(self, row: Any, port: int) -> Any:
            return row.k, row.n, "text" if row.n == 1 else 1 << 62

    (letter,) = run_one(Odd, tmp_path, shelves)
    assert json.loads(letter["row"]) == {"k": "a", "n": 1}
    assert "does not fit its schema" in letter["error"]
    assert hf.MemorySink.rows(shelves[0]) == [{"k": "b", "n": 2, "total": 1 << 62}]


def test_a_number_that_is_too_large_is_a_failure_of_its_row(tmp_path: Path, shelves: tuple[str, str]) -> None:
    class Large(hf.Operator):
        def process(self, row: Any, port: int) -> Any:
            return row.k, row.n, row.n << 62

    (letter,) = run_one(Large, tmp_path, shelves)
    assert json.loads(letter["row"]) == {"k": "b", "n": 2}


def test_a_misspelt_column_ends_the_run_all_the_same(tmp_path: Path, shelves: tuple[str, str]) -> None:
    class Misspelt(hf.Operator):
        def process(self, row: Any, port: int) -> Any:
            return {"k": row.k, "n": row.n, "totla": 1}

    with pytest.raises(TopologyError, match="'totla'"):
        run_one(Misspelt, tmp_path, shelves)


def test_an_outage_is_no_matter_of_a_row(tmp_path: Path, shelves: tuple[str, str]) -> None:
    class Away(hf.Operator):
        tries = 0

        def process(self, row: Any, port: int) -> Any:
            type(self).tries += 1
            if self.tries < 3:
                raise ConnectionError("the service is away")
            return row.k, row.n, 0

    assert run_one(Away, tmp_path, shelves) == []
    assert len(hf.MemorySink.rows(shelves[0])) == 2


def test_a_large_state_stays_as_the_row_left_it(
    tmp_path: Path, shelves: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.runtime.runs.hosted import known_states

    monkeypatch.setattr(known_states, "REMEMBERED_BYTES", 10)

    class Counts(hf.Operator):
        def __init__(self) -> None:
            self.seen, self.much = 0, "x" * 100

        def process(self, row: Any, port: int) -> Any:
            self.seen += 1
            self.submit((row.k, row.n, self.seen))
            if row.n == 1:
                raise ValueError("oh")

    assert len(run_one(Counts, tmp_path, shelves)) == 1
    assert hf.MemorySink.rows(shelves[0]) == [{"k": "b", "n": 2, "total": 2}]


def test_what_cannot_be_is_refused() -> None:
    class Tables(hf.Operator):
        def process_batch(self, table: Any, port: int) -> Any: ...

    source = hf.Topology("t").source(hf.Rows([("a", 1)], "k string, n long"), name="rows")
    with pytest.raises(TopologyError, match=r"process_batch\(\) and is used with on_error"):
        source.apply(Tables, SCHEMA, on_error="stream")
    with pytest.raises(TopologyError, match="on_error='drop' is not known"):
        source.apply(Plain, SCHEMA, on_error="drop")  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="has no errors of its own"):
        _ = source.apply(Plain, SCHEMA).errors


# --- keys ---


class Timed(hf.KeyedOperator):
    n = hf.Value(int, default=0)

    def process(self, row: Any, key: Any) -> Any:
        self.n += 1
        self.set_timer(row.at + dt.timedelta(seconds=row.v))
        if row.v == 13:
            raise ValueError("thirteen")
        return key, f"row {self.n}"

    def on_timer(self, at: dt.datetime, key: Any) -> Any:
        self.n += 100
        if at.second == 7:
            raise ValueError("seven")
        return key, f"timer {at.second}: {self.n}"


def test_timers_of_a_row_that_failed_are_gone_and_a_timer_that_fails_is_not_called_again(
    tmp_path: Path,
) -> None:
    driven = Driven(logic_of(Timed, on_error="stream"), 1, tmp_path)
    driven.step(table_of([("a", 0, 5), ("a", 0, 13), ("a", 0, 7), ("a", 1, 20), ("b", 30, 1)], 0), 0)
    wanted = ["row 1", "row 2", "row 3", "timer 5: 103", "timer 21: 203"]
    assert [row["what"] for row in driven.emitted if row["k"] == "a"] == wanted
    letters = driven.beside
    assert [letter["error"] for letter in letters] == ["ValueError: thirteen", "ValueError: seven"]
    assert letters[1]["row"] is None
    driven.step(table_of([("b", 60, 1)], 5), 0)
    assert len(driven.beside) == 2
    assert not [row for row in driven.emitted if "timer 13" in row["what"]]


@pytest.mark.fault("SR14")
def test_many_failures_cost_no_more_than_the_rows_between_them(tmp_path: Path) -> None:
    calls = 0

    class Half(hf.KeyedOperator):
        n = hf.Value(int, default=0)

        def process(self, row: Any, key: Any) -> Any:
            nonlocal calls
            calls += 1
            self.n += 1
            if row.v % 2:
                raise ValueError("odd")
            return key, str(self.n)

    driven = Driven(logic_of(Half, on=None, on_error="stream"), 1, tmp_path)
    driven.step(table_of([("a", None, n) for n in range(200)], 0), 0)
    assert calls <= 400
    assert [row["what"] for row in driven.emitted] == [str(n) for n in range(1, 101)]


@pytest.mark.fault("I03")
def test_without_a_stream_of_errors_a_failing_row_parks_the_region(tmp_path: Path) -> None:
    topology = hf.Topology("letters")
    source = topology.source(hf.Rows(ROWS, "k string, n long"), name="rows").consistent("r", period=0.02)
    source.apply(Plain, SCHEMA, name="op").sink(hf.MemorySink("none"), name="out")
    with pytest.raises(RegionParkedError, match="3 is bad"):
        run_local(topology, f"file:{tmp_path}/store")
    assert open_store(f"file:{tmp_path}/store").events()
