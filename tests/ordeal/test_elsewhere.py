"""What a trial reads is the same in each run, and what it writes lies in its own place; taps know how far a run is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.language.connectors import Sink, Source
from holdfast.language.graph import SinkSpec
from holdfast.sinks.files import FileSink
from holdfast.sinks.foreach_batch import ForeachBatch
from holdfast.testing.ordeal.elsewhere import elsewhere, is_recorded, sinks_of, trial_graph
from holdfast.testing.ordeal.taps import Gate, Taps, share_told


def rows_in(source: Source) -> int:
    source.bound()
    source.seek(None)
    found = 0
    while (piece := source.next_slice()) is not None:
        found += source.read_arrow(piece, None).num_rows
    return found


def test_files_that_come_later_are_not_read(tmp_path: Path) -> None:
    def source() -> Source:
        return hf.Files(str(tmp_path), "json", "id long")

    (tmp_path / "a.json").write_text('{"id": 1}\n')
    extent = json.loads(json.dumps(source().extent()))
    (tmp_path / "b.json").write_text('{"id": 2}\n{"id": 3}\n')
    kept, all_of_it = source(), source()
    kept.keep_to(extent)
    assert (rows_in(kept), rows_in(all_of_it)) == (1, 3)


def test_rows_of_a_log_that_come_later_are_not_read_and_its_consumers_stay(tmp_path: Path) -> None:
    with hf.Log(tmp_path / "log") as log:
        log.append([{"id": n} for n in range(5)])
        extent = hf.LogSource(tmp_path / "log").extent()
        log.append([{"id": n} for n in range(7)])
    source = hf.LogSource(tmp_path / "log", consumer="mine")
    source.keep_to(extent)
    assert rows_in(source) == 5
    assert hf.Log(tmp_path / "log").consumers() == []


@pytest.mark.parametrize("kind", ["files", "log", "sqlite"])
def test_sinks_write_by_their_own_code_elsewhere(kind: str, tmp_path: Path) -> None:
    real, place = tmp_path / "real", tmp_path / "trial"
    sinks: dict[str, Sink] = {
        "files": hf.FileSink(real, "json", partition_by="day"),
        "log": hf.LogSink(real),
        "sqlite": hf.DatabaseSink(f"sqlite:{real}", "orders"),
    }
    topology = hf.Topology("t")
    rows = topology.source(hf.Rows([(n, f"d{n % 2}") for n in range(10)], "id long, day string"), name="rows")
    rows.consistent("r").sink(sinks[kind], name="out")
    moved = trial_graph(topology.graph(), place, {})
    (sink,) = sinks_of(moved).values()
    assert type(sink) is type(sinks[kind])
    assert is_recorded("out", sinks[kind], place) == ""
    again = hf.Topology("t")
    source = again.source(hf.Rows([(n, f"d{n % 2}") for n in range(10)], "id long, day string"), name="rows")
    source.consistent("r").sink(sink, name="out")
    hf.testing.run_local(again, store=f"file:{tmp_path}/store")
    assert sorted((row["id"], row["day"]) for row in sink.visible_rows()) == [
        (n, f"d{n % 2}") for n in range(10)
    ]
    assert not real.exists()


def test_rows_of_others_are_recorded_with_the_same_guarantee(tmp_path: Path) -> None:
    once, again = hf.MemorySink("unused"), hf.ForeachBatch(lambda rows, step: None)
    assert isinstance(elsewhere("a", once, tmp_path), FileSink)
    assert isinstance(elsewhere("b", again, tmp_path), ForeachBatch)
    assert elsewhere("b", again, tmp_path).guarantee == "at-least-once"
    server = hf.DatabaseSink("postgresql://user@host/db", "orders")
    assert isinstance(elsewhere("c", server, tmp_path), FileSink)
    assert "cannot be redirected" in is_recorded("c", server, tmp_path)
    assert "not called" in is_recorded("b", again, tmp_path)


def test_nothing_of_the_programs_own_logs_and_budgets_is_left() -> None:
    topology = hf.Topology("t")
    rows = topology.source(hf.Rows([(1,)], "id long"), name="rows").may_lose(rows=1)
    rows.persist("kept", path="mine").consistent("r", period=60).sink(hf.MemorySink("unused"), name="out")
    operators = trial_graph(topology.graph(), Path("place"), {}).operators
    assert all(op.annotations.may_lose is None for op in operators.values())
    assert [op.spec.path for op in operators.values() if op.kind == "persist"] == [None]  # type: ignore[attr-defined]
    assert {op.annotations.consistent.period_s for op in operators.values() if op.annotations.consistent} == {
        0.7
    }
    assert not any(
        isinstance(op.spec, SinkSpec) and isinstance(op.spec.sink, hf.MemorySink) for op in operators.values()
    )


class TestTaps:
    def test_a_gate_lets_freely_then_step_by_step_then_nothing(self) -> None:
        gate = Gate(allowed=0.4, most=0.6, beat_s=1.0)
        assert gate.lets(0.3, 0.0)
        assert not gate.lets(0.5, 0.5)
        assert gate.lets(0.5, 1.5)
        assert not gate.lets(0.6, 99.0)
        assert Gate(1.0, 1.0, 1.0).lets(1.5, 0.0)

    def test_a_later_life_knows_how_far_a_position_is(self, tmp_path: Path) -> None:
        def life() -> tuple[Source, Taps]:
            source, taps = (
                hf.Rows([(n,) for n in range(100)], "id long", 10),
                Taps(tmp_path, {"rows": 100}, Gate(1, 1, 0), 0.0),
            )
            taps.put_on("rows", source)
            return source, taps

        source, _ = life()
        source.seek(None)
        for _ in range(4):
            source.next_slice()
        state = source.snapshot()
        source.next_slice()
        assert share_told(tmp_path) == 0.5
        source, taps = life()
        source.seek(state)
        assert taps.given == {"rows": 40}
        assert share_told(tmp_path) == 0.4
