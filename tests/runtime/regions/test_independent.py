"""Mode `independent`: an element that fails restarts alone, and nothing is lost or doubled; a death of the driver costs what
is counted. Compared with what a loop over the rows gives."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import independent_program as program
import pyarrow as pa
import pytest
from killed import lived, written

import holdfast as hf
from holdfast.errors import MismatchError, RegionParkedError, StateError, TopologyError
from holdfast.failpoints import arm, disarm
from holdfast.testing import MemorySink, run_local, submit_local

FILE = Path(program.__file__)


def expected(count: int = program.ROWS) -> dict[str, list[tuple[int, ...]]]:
    totals = [(n % 5, n // 5 + 1, n) for n in range(count)]
    return {"totals": sorted(totals), "numbered": [(n,) for n in range(count)]}


def results(here: Path) -> dict[str, list[tuple[int, ...]]]:
    columns = {"totals": ("k", "n", "newest"), "numbered": ("id",)}
    return {
        name: sorted(tuple(row[c] for c in chosen) for row in written(here, name))
        for name, chosen in columns.items()
    }


def resets(status: Any) -> dict[str, int]:
    return {name: region["resets"] for name, region in status.as_dict()["regions"].items()}


@pytest.mark.parametrize("rows_per_step", [1, 7, 600])
def test_without_failures_the_result_is_that_of_any_mode(rows_per_step: int, tmp_path: Path) -> None:
    status = run_local(
        program.build(str(tmp_path), rows_per_step=rows_per_step), store=f"file:{tmp_path}/store"
    )
    assert results(tmp_path) == expected()
    assert set(resets(status)) == {
        f"r.{e}" for e in ("numbers", "totals", "totals_out", "numbered", "numbered_out")
    }


FAULTS = [
    "step.begin=raise@9",
    "step.end=raise@31;step.begin=raise@55",
    "step.end=raise@5;ckpt.op.put=raise@4;sink.write=raise@20",
    "drain.begin=raise@3;step.begin=raise@20;ckpt.manifest.tmp_written=raise@5",
    "ckpt.op.serialize=raise@6;sink.write=raise@9;sink.prepare=raise@4",
    "step.end=raise@40;reset.begin=raise@6;reset.source.seek=raise@1",
    "sink.commit.begin=raise@3;step.end=raise@33",
]  # fmt: skip


@pytest.mark.parametrize("faults", FAULTS)
def test_elements_that_fail_alone_lose_and_double_nothing(faults: str, tmp_path: Path) -> None:
    arm(faults)
    try:
        status = run_local(program.build(str(tmp_path)), store=f"file:{tmp_path}/store")
    finally:
        fired = disarm()
    assert results(tmp_path) == expected()
    assert all(fired.values()), fired
    assert sum(resets(status).values()) >= len(fired) - 2
    assert status.as_dict()["lost_rows"] == {"totals_out": 0, "numbered_out": 0}


@pytest.mark.fault("B07")
def test_the_others_go_on_while_one_fails(tmp_path: Path) -> None:
    class Weak(hf.Operator):
        failures = 6

        def process(self, row: Any, port: int) -> Any:
            if row.id % 50 == 49 and Weak.failures:
                Weak.failures -= 1
                raise ValueError("weak")
            return row

    topology = hf.Topology("weak")
    rows = hf.Rows([(n,) for n in range(400)], "id long", rows_per_step=5)
    start = topology.source(rows, name="numbers").consistent(
        "r", period=0.05, mode="independent", max_consecutive_resets=20
    )
    weak = start.apply(Weak, "id long", name="weak")
    weak.isolate().sink(MemorySink(f"{tmp_path}/weak"), name="weak_out")
    start.isolate().sink(MemorySink(f"{tmp_path}/all"), name="all_out")
    status = run_local(topology, store=f"file:{tmp_path}/store")
    for name in ("weak", "all"):
        assert sorted(row["id"] for row in MemorySink.rows(f"{tmp_path}/{name}")) == list(range(400))
    assert resets(status) == {"r.numbers": 0, "r.weak": 6, "r.weak_out": 0, "r.all_out": 0}


def test_a_stop_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    for wait in (0.05, 0.15, None):
        until: Any = "available" if wait is None else None
        job = submit_local(program.build(str(tmp_path)), store=f"file:{tmp_path}/store", until=until)
        ended = job.await_termination(60 if wait is None else wait)
        assert ended == (wait is None)
        job.stop(60)
    assert results(tmp_path) == expected()


KILLS = [
    "step.end=kill@25",
    "ckpt.manifest.renamed=kill@9",
    "sink.commit.begin=kill@6",
    "drain.begin=kill@20",
]


@pytest.mark.parametrize("kill", KILLS)
def test_a_death_of_the_driver_costs_no_more_than_is_counted(kill: str, tmp_path: Path) -> None:
    assert lived(FILE, tmp_path, kill) == -signal.SIGKILL
    status = run_local(program.build(str(tmp_path)), store=f"file:{tmp_path}/store").as_dict()
    found = [n for (n,) in results(tmp_path)["numbered"]]
    missing = set(range(program.ROWS)) - set(found)
    assert len(missing) <= status["lost_rows"]["numbered_out"]


@pytest.mark.fault("I05")
def test_what_cannot_be_done_again_the_same_way_is_told(tmp_path: Path) -> None:
    class Fickle(hf.Operator):
        calls = 0

        def process(self, row: Any, port: int) -> Any:
            Fickle.calls += 1
            if Fickle.calls == 60:
                raise ValueError("once")
            return [row] * (1 if Fickle.calls < 60 else 2)

    topology = hf.Topology("fickle")
    rows = hf.Rows([(n,) for n in range(100)], "id long", rows_per_step=5)
    start = topology.source(rows, name="numbers").consistent(
        "r", period=30, mode="independent", max_consecutive_resets=2
    )
    begun: list[int] = []

    def one_step_first(table: pa.Table) -> pa.Table:
        """Only when the first rows have been in a step of their own come the others: something is sent before the failure."""
        patience = time.monotonic() + 60
        while begun and Fickle.calls < 5 and time.monotonic() < patience:
            time.sleep(0.01)
        begun.append(table.num_rows)
        return table

    rest = start.map_arrow(one_step_first, "id long", name="rest")
    rest.apply(Fickle, "id long", name="fickle").isolate().sink(MemorySink("unused"), name="out")
    with pytest.raises(StateError, match="is not what was sent before"):
        run_local(topology, store=f"file:{tmp_path}/store")


def test_a_cycle_is_refused_and_so_are_other_triggers(tmp_path: Path) -> None:
    topology = hf.Topology("t")
    source = topology.source(hf.Rows([(1,)], "id long"), name="numbers")
    source.consistent("r", trigger="manual", mode="independent").sink(MemorySink("unused"), name="out")
    with pytest.raises(TopologyError, match="each element has its own epochs, and trigger='manual'"):
        topology.explain()


@pytest.mark.parametrize(("before", "after", "cure"), [
    ("async", "independent", "the mode that the region had before mode='independent'"),
    ("independent", "async", "mode='independent'"),
])  # fmt: skip
def test_the_mode_of_a_store_is_not_changed_in_silence(
    before: str, after: str, cure: str, tmp_path: Path
) -> None:
    run_local(program.build(str(tmp_path), before, count=50), store=f"file:{tmp_path}/store")
    with pytest.raises(MismatchError, match=f"Put it back, with {cure}, or"):
        run_local(program.build(str(tmp_path), after), store=f"file:{tmp_path}/store")
    assert results(tmp_path) == expected(50)


class Slow(hf.Operator):
    """Holds a row back, and fails once if it is told to."""

    held = hf.List(int)
    fails_at = -1

    def process(self, row: Any, port: int) -> Any:
        time.sleep(0.001)
        if row.id == Slow.fails_at:
            raise ValueError("on purpose")
        out = [{"id": n, "k": 0} for n in self.held]
        self.held.clear()
        self.held.append(row.id)
        return out

    def drain(self) -> Any:
        out = [{"id": n, "k": 0} for n in self.held]
        self.held.clear()
        return out


def slow(here: Path, source: Any = None) -> hf.Topology:
    """A fast source, two slow operators and a sum behind: queues are full of rows when it is stopped."""
    topology = hf.Topology("slow")
    rows = source or hf.Rows([(n,) for n in range(400)], "id long", rows_per_step=10)
    settings = {"period": 0.05, "mode": "independent", "max_consecutive_resets": 1}
    start = topology.source(rows, name="numbers").consistent("r", **settings)
    first = start.apply(Slow, "id long, k long", name="first").apply(Slow, "id long, k long", name="second")
    sums = first.isolate().aggregate("k", n=hf.count(), newest=hf.max("id"), emit="each", name="sums")
    first.isolate().sink(hf.FileSink(f"{here}/out", "parquet"), name="out")
    sums.isolate().sink(hf.FileSink(f"{here}/sums", "parquet"), name="sums_out")
    return topology


def check_slow(here: Path, status: Any) -> None:
    assert status.as_dict()["lost_rows"] == {"out": 0, "sums_out": 0}
    assert [row["id"] for row in sorted(written(here, "out"), key=lambda row: row["id"])] == list(range(400))
    sums = sorted((row["n"], row["newest"]) for row in written(here, "sums"))
    assert sums == [(n + 1, n) for n in range(400)]


def test_a_stop_that_is_too_short_loses_and_doubles_nothing(tmp_path: Path) -> None:
    for seconds in (0.2, 0.3, 0.25, 0.1):
        job = submit_local(slow(tmp_path), store=f"file:{tmp_path}/store")
        job.await_termination(seconds)
        job.stop(0.01)
        assert set(job.status()["lost_rows"].values()) == {0}
    check_slow(tmp_path, run_local(slow(tmp_path), store=f"file:{tmp_path}/store"))


def files_of_fifty(here: Path) -> str:
    """400 numbers in 8 files."""
    place = here / "in"
    place.mkdir()
    for number in range(8):
        lines = "".join(f"{n}\n" for n in range(number * 50, number * 50 + 50))
        (place / f"{number}.csv").write_text("id\n" + lines)
    return str(place)


def test_a_short_stop_with_files_as_source_loses_and_doubles_nothing(tmp_path: Path) -> None:
    place = files_of_fifty(tmp_path)

    def build() -> hf.Topology:
        return slow(tmp_path, hf.Files(place, "csv", schema="id long", max_rows_per_step=13))

    for seconds in (0.2, 0.3):
        job = submit_local(build(), store=f"file:{tmp_path}/store")
        job.await_termination(seconds)
        job.stop(0.01)
    check_slow(tmp_path, run_local(build(), store=f"file:{tmp_path}/store"))


def test_steps_that_read_two_files_are_done_again(tmp_path: Path) -> None:
    """The source's element fails in the seventh file, when steps that crossed the ends of others are done."""
    failures = ["once"]

    def fails_once(table: pa.Table) -> pa.Table:
        if failures and 310 in table["id"].to_pylist():
            raise ValueError(failures.pop())
        return table

    topology = hf.Topology("files")
    source = hf.Files(files_of_fifty(tmp_path), "csv", schema="id long", max_rows_per_step=13)
    start = topology.source(source, name="numbers").consistent("r", period=60, mode="independent")
    once = start.map_arrow(fails_once, "id long", name="once")
    once.isolate().sink(hf.FileSink(f"{tmp_path}/out", "parquet"), name="out")
    status = run_local(topology, store=f"file:{tmp_path}/store")
    assert resets(status) == {"r.numbers": 1, "r.out": 0}
    assert status.as_dict()["lost_rows"] == {"out": 0}
    assert sorted(row["id"] for row in written(tmp_path, "out")) == list(range(400))


def test_a_parked_element_that_is_mended_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Slow, "fails_at", 173)
    with pytest.raises(RegionParkedError):
        run_local(slow(tmp_path), store=f"file:{tmp_path}/store")
    monkeypatch.setattr(Slow, "fails_at", -1)
    check_slow(tmp_path, run_local(slow(tmp_path), store=f"file:{tmp_path}/store"))


@pytest.mark.parametrize("kill", ["reset.begin=kill@2", "step.end=kill@4", "ckpt.epoch.published=kill@1"])
def test_a_kill_after_an_end_in_order_costs_no_more_than_is_counted(kill: str, tmp_path: Path) -> None:
    job = submit_local(program.build(str(tmp_path)), store=f"file:{tmp_path}/store")
    job.await_termination(0.15)
    job.stop(0.01)
    assert lived(FILE, tmp_path, kill) == -signal.SIGKILL
    status = run_local(program.build(str(tmp_path)), store=f"file:{tmp_path}/store").as_dict()
    found = [n for (n,) in results(tmp_path)["numbered"]]
    missing = set(range(program.ROWS)) - set(found)
    assert len(missing) <= status["lost_rows"]["numbered_out"]
    if kill.startswith("reset"):  # nobody had begun
        assert results(tmp_path) == expected()
