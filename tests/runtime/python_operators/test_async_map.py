"""`async_map`: calls at the same time, in order or not, made again, given up, and their place in epochs."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import HoldfastError, TopologyError
from holdfast.testing.local import run_local

ROWS = [(n,) for n in range(40)]


def result(
    fn: Any, tmp_path: Path, schema: str = "n long, twice long", **options: Any
) -> list[dict[str, Any]]:
    topology = hf.Topology("calls")
    hf.MemorySink.clear("calls")
    source = topology.source(hf.Rows(ROWS, "n long", rows_per_step=10), name="rows")
    region = source.consistent(period=0.02, max_consecutive_resets=2)
    region.async_map(fn, schema, name="ask", **options).sink(hf.MemorySink("calls"), name="out")
    run_local(topology, store=f"file:{tmp_path}/store")
    return hf.MemorySink.rows("calls")


WANTED = [{"n": n, "twice": 2 * n} for n in range(40)]


class Together:
    """Calls that only end when a given number of them are under way at once."""

    def __init__(self, calls: int) -> None:
        self.barrier = threading.Barrier(calls)
        self.lock = threading.Lock()
        self.running = self.most = 0

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.barrier.wait(30)
        with self.lock:
            self.running -= 1
        return {"n": row["n"], "twice": 2 * row["n"]}


def test_functions_are_called_at_the_same_time_but_not_more_than_allowed(tmp_path: Path) -> None:
    calls = Together(5)
    assert result(calls, tmp_path, concurrency=5) == WANTED
    assert calls.most == 5


def test_rows_are_dicts_that_are_asked_like_rows_of_other_operators(tmp_path: Path) -> None:
    found = result(lambda row: {"n": row.n, "twice": row["n"] + row.asDict()["n"]}, tmp_path)
    assert all(row["twice"] == 2 * row["n"] for row in found)
    with pytest.raises(HoldfastError, match="this row has no column 'm'; it has n"):
        result(lambda row: {"n": row.m, "twice": 0}, tmp_path / "other")


async def backwards(row: dict[str, Any]) -> dict[str, Any]:
    """The first rows take longest."""
    for _ in range(100 - row["n"]):
        await asyncio.sleep(0)
    return {"n": row["n"], "twice": 2 * row["n"]}


def test_rows_leave_as_they_came_or_as_calls_end(tmp_path: Path) -> None:
    assert result(backwards, tmp_path) == WANTED
    found = result(backwards, tmp_path / "b", ordered=False, concurrency=40)
    assert [row["n"] for row in found] == [n for ten in (0, 10, 20, 30) for n in range(ten + 9, ten - 1, -1)]


def test_a_call_gives_no_row_one_or_several(tmp_path: Path) -> None:
    def fn(row: dict[str, Any]) -> Any:
        return [None, (row["n"],), [{"n": row["n"]}, {"n": -row["n"]}]][row["n"] % 3]

    found = [row["n"] for row in result(fn, tmp_path, "n long")]
    assert found == [m for n in range(40) for m in ([], [n], [n, -n])[n % 3]]


def failing(times: int) -> tuple[Callable[[dict[str, Any]], Any], dict[int, int]]:
    calls: dict[int, int] = {}

    async def fn(row: dict[str, Any]) -> Any:
        calls[row["n"]] = calls.get(row["n"], 0) + 1
        if row["n"] == 7 and calls[7] <= times:
            raise ConnectionError("the service is away")
        return {"n": row["n"], "twice": 2 * row["n"]}

    return fn, calls


def test_a_call_that_fails_is_made_again(tmp_path: Path) -> None:
    fn, calls = failing(2)
    assert result(fn, tmp_path, retries=2) == WANTED
    assert (calls[7], calls[8], set(calls.values())) == (3, 1, {1, 3})


def test_a_call_that_fails_for_good_fails_the_step_and_what_is_replayed_is_called_again(
    tmp_path: Path,
) -> None:
    fn, calls = failing(2)
    assert result(fn, tmp_path, retries=1) == WANTED
    assert (calls[7], calls[8]) == (3, 2)


def test_a_region_whose_calls_never_succeed_is_parked_with_the_reason(tmp_path: Path) -> None:
    def fn(row: dict[str, Any]) -> Any:
        raise ValueError("the service does not want this")

    with pytest.raises(HoldfastError, match=r"fn\(\): ValueError: the service does not want this") as caught:
        result(fn, tmp_path)
    assert __file__ in str(caught.value)
    assert "  in a call for {'n': " in str(caught.value), "the row is told"


def test_a_call_that_takes_too_long_has_failed(tmp_path: Path) -> None:
    calls: list[int] = []

    async def fn(row: dict[str, Any]) -> Any:
        calls.append(row["n"])
        if row["n"] == 3 and calls.count(3) == 1:
            await asyncio.Event().wait()
        return {"n": row["n"], "twice": 2 * row["n"]}

    assert result(fn, tmp_path, timeout="50 ms", retries=1) == WANTED
    assert calls.count(3) == 2


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"fn": 7}, "takes a function"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"retries": -1}, "retries=-1"),
        ({"timeout": "soon"}, "timeout='soon' is no duration"),
    ],
)
def test_what_has_no_meaning_is_refused(options: dict[str, Any], why: str) -> None:
    source = hf.Topology("t").source(hf.Rows(ROWS, "n long"), name="rows")
    with pytest.raises(TopologyError, match=why) as caught:
        source.async_map(options.pop("fn", lambda row: row), "n long", **options)
    assert caught.value.cure


# --- rows whose calls fail for good ---


def with_errors(
    fn: Any, tmp_path: Path, timed: bool = False, **options: Any
) -> tuple[list[Any], list[dict[str, Any]]]:
    """(what came, the rows of the stream of errors)."""
    topology = hf.Topology("calls")
    for name in ("calls", "errors"):
        hf.MemorySink.clear(name)
    rows = [(n, datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=n)) for n in range(40)]
    source = topology.source(hf.Rows(rows, "n long, at timestamp", rows_per_step=10), name="rows")
    region = source.event_time("at", delay=0).consistent(period=0.02, max_consecutive_resets=2)
    schema = "n long, at timestamp" if timed else "n long"
    made = region.async_map(fn, schema, name="ask", on_error="stream", **options)
    made.errors.sink(hf.MemorySink("errors"), name="wrong")
    if timed:
        made = made.aggregate([], window=hf.tumbling("10 seconds"), n=hf.count(), name="tens")
    made.sink(hf.MemorySink("calls"), name="out")
    status = run_local(topology, store=f"file:{tmp_path}/store", close=True)
    assert status.elements["ask"].counts.get("ask", {}).get("errors", 0) == len(hf.MemorySink.rows("errors"))
    return [row["n"] for row in hf.MemorySink.rows("calls")], hf.MemorySink.rows("errors")


async def odd_one(row: dict[str, Any]) -> Any:
    if row["n"] == 7:
        raise ValueError("not this one")
    if row["n"] == 12:
        await asyncio.Event().wait()
    if row["n"] == 23:
        return {"n": "no number"}
    return {"n": row["n"]}


@pytest.mark.parametrize("ordered", [True, False])
def test_rows_whose_calls_fail_for_good_are_in_a_stream_of_their_own(tmp_path: Path, ordered: bool) -> None:
    found, errors = with_errors(odd_one, tmp_path, ordered=ordered, timeout="50 ms", retries=1)
    assert sorted(found) == [n for n in range(40) if n not in (7, 12, 23)]
    told = {json.loads(error["row"])["n"]: error for error in errors}
    assert [error["operator"] for error in errors] == ["ask"] * 3
    assert told[7]["error"] == "ValueError: not this one"
    assert "in odd_one" in told[7]["traceback"]
    assert "took longer than 0.05 s" in told[12]["error"]
    assert "does not fit its schema" in told[23]["error"]


def test_event_time_goes_on_past_rows_whose_calls_failed(tmp_path: Path) -> None:
    def fn(row: dict[str, Any]) -> Any:
        if row["n"] % 10 == 9:
            raise ValueError("not this one")
        return (row["n"], row["at"])

    found, errors = with_errors(fn, tmp_path, timed=True)
    assert found == [9] * 4
    assert len(errors) == 4


def test_a_service_that_is_away_is_no_matter_of_a_row(tmp_path: Path) -> None:
    fn, calls = failing(1)

    async def only_n(row: dict[str, Any]) -> Any:
        return {"n": (await fn(row))["n"]}

    assert with_errors(only_n, tmp_path) == (list(range(40)), [])
    assert calls[7] == 2, "the step was made again"


def test_a_misspelt_column_ends_the_run_although_errors_have_a_stream(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"operator 'ask' gave a row with a column 'm'"):
        with_errors(lambda row: {"m": row["n"]}, tmp_path)


def test_errors_that_nobody_reads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="errors"):
        result(odd_one, tmp_path, "n long", on_error="stream")
    with pytest.raises(TopologyError, match="on_error='drop' is not known"):
        result(odd_one, tmp_path, "n long", on_error="drop")
