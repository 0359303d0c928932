"""Keyed Python operators against a loop over the rows of each key: state, lifetimes and timers are the same for every cut
into steps, number of partitions, and way in which rows arrive."""

from __future__ import annotations

import datetime as dt
import itertools
import time
from pathlib import Path
from typing import Any

import driven
import pyarrow as pa
import pytest
from driven import Driven, drive
from hypothesis import given
from hypothesis import strategies as st
from keyed_python_model import (
    BEGIN,
    EPOCH,
    INPUT,
    Everything,
    Row,
    by_key,
    logic_of,
    naive,
    second,
    table_of,
)
from sampling import examples

import holdfast as hf
from holdfast.errors import RegionParkedError, StateError
from holdfast.operators.python import keyed_python
from holdfast.state.keyed.segment import open_segment
from holdfast.state.variables.wakeups import SUFFIX
from holdfast.store.urls import open_store
from holdfast.testing import compare_rows, run_local

keys = st.sampled_from(["a", "b", "", None, "long enough to be no prefix of another"])
a_row = st.tuples(keys, st.one_of(st.none(), st.integers(-10, 40), st.integers(0, 40)), st.integers(-6, 30))


@examples(100)
@given(data=st.data())
def test_every_key_sees_the_same_whatever_the_cuts_and_partitions(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rows: list[Row] = data.draw(st.lists(a_row, max_size=60))
    delay = data.draw(st.integers(0, 6))
    driven = Driven(
        logic_of(Everything, delay=delay), data.draw(st.integers(1, 4)), tmp_path_factory.mktemp("keyed")
    )
    with pytest.MonkeyPatch.context() as patched:  # few keys at a time, as if there were very many
        patched.setattr(keyed_python, "KEYS_AT_ONCE", data.draw(st.sampled_from([1, 2, 1 << 15])))
        for _ in drive(driven, len(rows), data, lambda begin, end: table_of(rows[begin:end], begin)):
            pass
    assert by_key(driven.emitted) == naive(rows, delay)


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_a_step_gives_what_rows_cause_in_their_order(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_python, "KEYS_AT_ONCE", at_once)

    class Echo(hf.KeyedOperator):
        def process(self, row: Any, key: Any) -> Any:
            return [(key, str(row.v)), (key, "again")] if row.v % 2 else None

    driven = Driven(logic_of(Echo, on=None), 1, tmp_path)
    driven.step(table_of([(f"k{n % 5}", None, n) for n in range(40)], 0), 3)
    wanted = [(f"k{n % 5}", what) for n in range(1, 40, 2) for what in (str(n), "again")]
    assert [(row["k"], row["what"]) for row in driven.emitted] == wanted


# --- what is kept ---


class Session(hf.KeyedOperator):
    n = hf.Value(int, default=0)
    until = hf.Value(dt.datetime)

    def process(self, row: Any, key: Any) -> None:
        if self.until is not None:
            self.clear_timer(self.until)
        self.n += 1
        self.until = row.at + dt.timedelta(seconds=30)
        self.set_timer(self.until)

    def on_timer(self, at: dt.datetime, key: Any) -> Any:
        yield (key, f"{self.n} until {(at - BEGIN).total_seconds():g}")
        self.clear()


def index_rows(driven: Driven) -> int:
    return sum(
        segment.rows for segments in driven.segments for segment in segments if segment.name.endswith(SUFFIX)
    )


def test_a_timer_that_moves_on_with_every_row_has_one_entry_in_the_index(tmp_path: Path) -> None:
    driven = Driven(logic_of(Session), 2, tmp_path)
    for step in range(200):
        driven.step(table_of([(f"k{n}", step // 10, 0) for n in range(8)], step * 8), step % 3)
        assert index_rows(driven) <= 8
    assert driven.emitted == []
    driven.step(table_of([("last", 100, 0)], 1600), 0)
    compare_rows([{"k": f"k{n}", "what": "200 until 49"} for n in range(8)], driven.emitted)


def test_forgotten_keys_leave_nothing_behind(tmp_path: Path) -> None:
    driven = Driven(logic_of(Session), 1, tmp_path)
    for step in range(300):
        driven.step(table_of([(f"k{step}-{n}", step * 100, 0) for n in range(10)], step * 10), 0)
        assert driven.counts["keys"] == 10
        assert driven.counts["state_bytes"] < 1000
        assert sum(segment.rows for segment in driven.segments[0]) < 400
    assert len(driven.emitted) == 2990


def test_state_that_ends_by_itself_is_removed_without_another_row(tmp_path: Path) -> None:
    class Seen(hf.KeyedOperator):
        values = hf.Map(str, int, ttl=10)

        def process(self, row: Any, key: Any) -> None:
            self.values[str(row.v)] = row.v

    driven = Driven(logic_of(Seen), 1, tmp_path)
    driven.step(table_of([(f"k{n}", 0, n) for n in range(50)], 0), 0)
    assert driven.counts["keys"] == 50
    driven.step(table_of([("k0", 5, 1)], 50), 0)
    driven.step(table_of([("other", 10, 1)], 51), 0)
    assert driven.counts["keys"] == 2  # k0 was written again
    driven.step(table_of([("other", 15, 1)], 52), 0)
    assert driven.counts["keys"] == 1


def test_a_step_wakes_only_keys_that_are_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driven = Driven(logic_of(Session), 1, tmp_path)
    driven.step(table_of([(f"k{n:03}", n, 0) for n in range(500)], 0), 0)
    asked: list[int] = []
    module = "holdfast.operators.python.keyed_python.find_rows"
    from holdfast.state.keyed.lookup import find_rows

    monkeypatch.setattr(module, lambda s, keys, m: (asked.append(keys.num_rows), find_rows(s, keys, m))[1])
    driven.emitted.clear()
    driven.step(table_of([("x", 502, 0)], 500), 0)
    assert asked == [4], "three keys are due, and one has a row"
    assert len(driven.emitted) == 3


def test_a_shorter_delay_after_a_restart_leaves_no_timer_out(tmp_path: Path) -> None:
    slow = Driven(logic_of(Session, delay=100), 1, tmp_path)
    slow.step(table_of([("a", 0, 0), ("b", 60, 0)], 0), 0)
    quick = Driven(logic_of(Session, delay=0), 1, tmp_path)
    quick.segments, quick.meta, quick._step = slow.segments, slow.meta, 10
    quick.step(table_of([("c", 61, 0)], 2), 0)
    assert quick.emitted == [{"k": "a", "what": "1 until 30"}]


# --- other forms ---


def test_batches_and_rows_give_the_same(tmp_path: Path) -> None:
    class ByRow(hf.KeyedOperator):
        total = hf.Value(int, default=0)

        def process(self, row: Any, key: Any) -> Any:
            self.total += row.v
            return {"k": key, "what": f"{row.v} {self.total}"}

    class ByBatch(hf.KeyedOperator):
        total = hf.Value(int, default=0)

        def process_batch(self, table: pa.Table, key: Any) -> pa.Table:
            assert table.column_names == INPUT.names
            assert set(table.column("k").to_pylist()) == {key}
            values = table.column("v").to_pylist()
            sums = list(itertools.accumulate(values, initial=self.total))[1:]
            self.total = sums[-1]
            what = [f"{v} {s}" for v, s in zip(values, sums, strict=True)]
            return pa.table({"k": pa.array([key] * len(values), pa.string()), "what": what})

    rows: list[Row] = [(f"k{n % 7}" if n % 7 else None, None, n) for n in range(200)]
    both = []
    for operator, cut in ((ByRow, 30), (ByBatch, 30), (ByBatch, 7)):
        driven = Driven(logic_of(operator, on=None), 3, tmp_path / f"{operator.__name__}{cut}")
        driven.directory.mkdir()
        for first in range(0, 200, cut):
            driven.step(table_of(rows[first : first + cut], first), 2)
        both.append(by_key(driven.emitted))
    assert both[0] == both[1] == both[2]


class Weak(driven.Weak):
    def fails_at(self, row: Any) -> bool:
        return row.rise is not None and row.v >= 80


ROWS_IN = [(f"k{n % 5}" if n % 7 else None, n) for n in range(120)]


def rise(row: Any, state: Any) -> dict[str, Any]:
    before, state.last = state.last, row.v
    return {"k": row.k, "v": row.v, "rise": None if before is None else row.v - before}


def rises(shelf: str, rows_per_step: int = 7) -> hf.Topology:
    topology = hf.Topology("rises")
    source = topology.source(hf.Rows(ROWS_IN, "k string, v long", rows_per_step=rows_per_step), name="rows")
    risen = source.consistent("r", period=0.02, max_consecutive_resets=2).map_state(
        "k", rise, "k string, v long, rise long", {"last": hf.Value(int)}, name="rises"
    )
    risen.apply(Weak, "k string, v long, rise long", name="weak").sink(hf.MemorySink(shelf), name="out")
    return topology


def golden_rises() -> list[dict[str, Any]]:
    last: dict[Any, int] = {}
    found = []
    for k, v in ROWS_IN:
        found.append({"k": k, "v": v, "rise": v - last[k] if k in last else None})
        last[k] = v
    return found


def test_a_mapped_state_survives_a_failure_in_the_middle(tmp_path: Path, shelf: str) -> None:
    Weak.failures = 1
    status = run_local(rises(shelf), store=f"file:{tmp_path}/store", partitions=3)
    assert status["regions"]["r"]["resets"] == 1
    compare_rows(golden_rises(), hf.MemorySink.rows(shelf))
    counts = status["elements"]["rows"]["counts"]
    assert counts["rises"]["keys"] == 6
    assert counts["rises"]["state_bytes"] > 6


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.fault("I07")
def test_a_stored_state_goes_on_over_another_number_of_partitions(
    tmp_path: Path, shelf: str, partitions: int
) -> None:
    store = f"file:{tmp_path}/store"
    Weak.failures = 1000
    with pytest.raises(RegionParkedError):
        run_local(rises(shelf), store, partitions=3)
    assert "epoch.published" in [event.kind for event in open_store(store).events()]
    Weak.failures = 0
    run_local(rises(shelf, rows_per_step=5), store, partitions=partitions)
    compare_rows(golden_rises(), hf.MemorySink.rows(shelf))


def test_what_is_stored_is_what_the_codec_writes(tmp_path: Path) -> None:
    from holdfast.state.values import codec

    driven = Driven(logic_of(Session), 1, tmp_path)
    driven.step(table_of([("a", 1, 0), ("a", 2, 0)], 0), 0)
    states = next(segment for segment in driven.segments[0] if not segment.name.endswith(SUFFIX))
    (data,) = open_segment(states.path).column("__hf_state").to_pylist()
    at = (second(32) - EPOCH) // dt.timedelta(microseconds=1)
    stored = codec.decode(data)
    assert stored == {"": [at, [at]], "n": 2, "until": second(32)}


# --- mistakes in the user's code ---


def run_once(operator: Any, tmp_path: Path) -> None:
    driven = Driven(logic_of(operator), 1, tmp_path)
    driven.step(table_of([("ann", 1, 7)], 0), 0)


def test_an_error_names_operator_and_key(tmp_path: Path) -> None:
    class Fails(hf.KeyedOperator):
        def process(self, row: Any, key: Any) -> None:
            raise ZeroDivisionError("oh")

    with pytest.raises(hf.HoldfastError, match=r"operator 'op', key 'ann': ZeroDivisionError: oh"):
        run_once(Fails, tmp_path)


def test_a_wrong_type_is_refused_where_it_is_assigned(tmp_path: Path) -> None:
    class Wrong(hf.KeyedOperator):
        total = hf.Value(float, default=0.0)

        def process(self, row: Any, key: Any) -> None:
            self.total = row.v

    wanted = r"operator 'op', key 'ann': variable 'total' of Wrong holds float, not int 7\. Convert it: float"
    with pytest.raises(StateError, match=wanted):
        run_once(Wrong, tmp_path)


def test_an_attribute_that_is_not_declared_is_refused(tmp_path: Path) -> None:
    class Forgetful(hf.KeyedOperator):
        def process(self, row: Any, key: Any) -> None:
            self._cache = 1  # no state: fine
            self.total = 1

    with pytest.raises(hf.HoldfastError, match=r"Forgetful\.total is set, but not declared"):
        run_once(Forgetful, tmp_path)


def test_a_row_that_does_not_fit_the_schema_is_told_with_its_key(tmp_path: Path) -> None:
    class Odd(hf.KeyedOperator):
        def process(self, row: Any, key: Any) -> Any:
            return {"k": key, "what": 17}

    with pytest.raises(hf.HoldfastError, match=r"key 'ann': operator 'op' submitted a row that does not fit"):
        run_once(Odd, tmp_path)


def test_timers_that_cannot_be_are_refused(tmp_path: Path) -> None:
    class Seconds(hf.KeyedOperator):
        def process(self, row: Any, key: Any) -> None:
            self.set_timer(time.time() + 5)

        def on_timer(self, at: Any, key: Any) -> None: ...

    class Silent(hf.KeyedOperator):
        def process(self, row: Any, key: Any) -> None:
            self.set_timer(row.at)

    class Circle(Silent):
        def on_timer(self, at: Any, key: Any) -> None:
            self.set_timer(at)

    class Naive(Circle):
        def process(self, row: Any, key: Any) -> None:
            self.set_timer(row.at.replace(tzinfo=None))

    for operator, wanted in (
        (Seconds, "no timers by the clock on the wall"),
        (Silent, r"has no on_timer\(at, key\)"),
        (Circle, "would never end"),
        (Naive, "has no time zone"),
    ):
        (tmp_path / operator.__name__).mkdir()
        with pytest.raises(StateError, match=wanted):
            run_once(operator, tmp_path / operator.__name__)
