"""Persisted streams as users meet them: what is refused, what waits, what catches up, what is kept, and what `explain` says."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import forked
import persist_program
import pyarrow as pa
import pytest
from faults import fired
from small_disk import enter_namespace, mount_small, try_namespace

import holdfast as hf
from holdfast import failpoints
from holdfast.cli.main import run_command
from holdfast.compiler.analyse import ArrowAnalyser
from holdfast.compiler.compile import compile_graph
from holdfast.compiler.explain import explain_mermaid, explain_text
from holdfast.errors import ConfigError, FencedError, HoldfastError, MismatchError, StoreError, TopologyError
from holdfast.language.operators.persist import PersistSpec
from holdfast.log.log import MEMORY_BYTES
from holdfast.runtime.engines.local import LocalEngine
from holdfast.runtime.persisted import connectors
from holdfast.testing import MemorySink, run_local, submit_local

NUMBERS = "n long"


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


def wait(condition: Callable[[], Any], what: str) -> None:
    patience = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < patience, f"waited 60 s for {what}"
        time.sleep(0.005)


def numbers(path: Path) -> list[int]:
    log = hf.Log(path)
    return log.reader().read_all().column("n").to_pylist() if log.exists else []


def source(topology: hf.Topology, rows: int = 60, **settings: Any) -> Any:
    data = hf.Rows([(n,) for n in range(rows)], NUMBERS, rows_per_step=5)
    return topology.source(data, name="numbers", **settings)


# --- what the compiler makes of it ---


def plan_of(topology: hf.Topology) -> Any:
    return compile_graph(topology.graph(), ArrowAnalyser())


def test_what_follows_in_a_region_is_a_second_one_with_the_same_settings() -> None:
    made = hf.Topology("t")
    rows = source(made).consistent("first", period=7, keep=5)
    rows.persist("middle").sink(MemorySink("x"), name="x")
    plan = plan_of(made)
    assert {region.name: region.members for region in plan.regions} == {
        "first": ("numbers", "middle.log"),
        "middle": ("middle", "x"),
    }
    assert [(region.settings.period_s, region.settings.keep) for region in plan.regions] == [(7, 5)] * 2


def test_what_follows_may_be_told_otherwise() -> None:
    made = hf.Topology("t")
    rows = source(made).consistent("first", trigger="operator")
    rows.persist("a").autonomous().sink(MemorySink("x"), name="x")
    rows.persist("b").consistent("own", period=3).sink(MemorySink("y"), name="y")
    rows.persist("c").sink(MemorySink("z"), name="z")
    plan = plan_of(made)
    found = {region.name: region.settings for region in plan.regions}
    assert found.keys() == {"first", "own", "c"}
    assert found["own"].period_s == 3
    assert (found["first"].trigger, found["c"].trigger) == (
        "operator",
        "periodic",
    )  # nobody would ask for epochs


def test_explain_shows_one_connection_and_says_the_truth_about_it() -> None:
    made = hf.Topology("t")
    rows = source(made)
    rows.persist("plain").consistent("r").sink(MemorySink("x"), name="x")
    rows.apply(persist_program.Passed, NUMBERS, name="passed").persist("lossy").consistent("s").sink(
        MemorySink("y"), name="y"
    )
    other = made.source(hf.Rows([(1,)], NUMBERS), name="other").consistent("first")
    other.persist("exact").sink(MemorySink("z"), name="z")
    text = explain_text(plan_of(made))
    assert "middle.log" not in text
    lines = {
        line.split()[0]: line
        for line in text[text.index("persistent connections") :].splitlines()
        if line.strip()
    }
    assert "best effort" in lines["plain"]  # its element has another end: what failed there would be lost
    assert "at most once" in lines["lossy"]
    assert "exactly-once" in lines["exact"]
    assert "in region first; rows count in the log once their epoch is sealed" in lines["exact"]
    assert "but into the log of lossy rows come at most once" in lines["y"]
    assert "every row is in the log of exact once" in lines["z"]
    alone = hf.Topology("t")
    source(alone).persist("plain").consistent("r").sink(MemorySink("x"), name="x")
    assert "needs no checkpoint" in explain_text(plan_of(alone))
    picture = explain_mermaid(plan_of(alone))
    assert "== log ==>" in picture
    assert "into plain" in picture


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda rows: rows.persist("middle"), "Nobody reads"),
        (lambda rows: rows.persist(7), "needs a name"),
        (lambda rows: rows.persist("a b"), "cannot be the name"),
        (lambda rows: rows.persist("middle", path="s3://x/y"), "cannot be kept"),
        (lambda rows: rows.persist("middle", keep_bytes=-1), "keep_bytes"),
        (lambda rows: rows.persist("middle", keep=-1), "keep"),
        (lambda rows: rows.persist("middle").sink(MemorySink("m"), name="middle.log"), "there is an operator"),
        (lambda rows: [rows.persist(n, path="log").sink(MemorySink(n), name=f"s{n}") for n in "ab"], "in one log"),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_refused(build: Callable[[Any], Any], said: str) -> None:
    made = hf.Topology("t")
    with pytest.raises(HoldfastError, match=said):
        build(source(made))
        plan_of(made)


def test_a_cycle_through_a_log_is_refused() -> None:
    made = hf.Topology("t")
    back = made.feedback(NUMBERS)
    joined = made.operator(
        persist_program.Passed, [source(made)], control=[back.stream], schema=NUMBERS, name="joined"
    )
    behind = joined.persist("middle").apply(persist_program.Passed, NUMBERS, name="passed")
    back.complete(behind)
    with pytest.raises(TopologyError, match="cycle passes through the log of 'middle'"):
        plan_of(made)


def test_a_replay_writes_no_log_of_the_program(tmp_path: Path) -> None:
    with hf.Log(tmp_path / "input") as log:
        log.append([{"n": n} for n in range(10)])
    made = hf.Topology("t")
    source(made).persist("middle", path=tmp_path / "real").sink(MemorySink("real"), name="out")
    hf.replay(made, tmp_path / "input", into=tmp_path / "tried", engine=LocalEngine(1))
    assert not hf.Log(tmp_path / "real").exists
    parts = list((tmp_path / "tried/out").glob("part-*"))
    assert sum(len(part.read_text().splitlines()) for part in parts) == 10


def test_a_run_without_a_directory_for_logs_is_told_to_name_one(tmp_path: Path) -> None:
    made = hf.Topology("t")
    source(made).persist("middle").sink(MemorySink("nowhere"), name="x")
    for store in (None, f"sqlite:{tmp_path}/store.db"):
        with pytest.raises(ConfigError, match='persist\\("middle", path='):
            run_local(made, store=store)
    placed = hf.Topology("t")
    source(placed).persist("middle", path=tmp_path / "log").sink(hf.LogSink(tmp_path / "out"), name="x")
    run_local(placed, store=f"sqlite:{tmp_path}/store.db")
    assert numbers(tmp_path / "out") == numbers(tmp_path / "log") == list(range(60))


# --- event time and order ---

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
EVENTS = [(BEGIN + timedelta(seconds=(n * 7) % 50 + n), n) for n in range(100)]


def windows(here: Path, through_log: bool, name: str) -> Any:
    made = hf.Topology(name)
    rows = hf.Rows(EVENTS, "at timestamp, n long", rows_per_step=7)
    stream = made.source(rows, name="events").consistent("r", period=0.02).event_time("at", delay=20)
    stream = stream.persist("middle") if through_log else stream
    counted = stream.aggregate(
        "n", window=hf.tumbling("10 seconds"), rows=hf.count(), late=True, name="windows"
    )
    counted.sink(MemorySink(f"{name}-out"), name="out")
    counted.late.sink(MemorySink(f"{name}-late"), name="late")
    run_local(made, store=f"file:{here}/{name}")
    found = []
    for end in ("out", "late"):
        table = MemorySink.table(f"{name}-{end}")
        found.append([] if table is None else sorted(map(str, table.to_pylist())))
        MemorySink.clear(f"{name}-{end}")
    return found


def test_windows_behind_a_log_close_as_they_would_without(tmp_path: Path) -> None:
    direct = windows(tmp_path, False, "direct")
    assert all(direct), "windows close, and some rows are late"
    assert windows(tmp_path, True, "logged") == direct


def test_time_that_rows_in_memory_alone_do_not_tell_has_to_be_declared_again() -> None:
    made = hf.Topology("t")
    rows = made.source(hf.Rows(EVENTS, "at timestamp, n long"), name="events").event_time("at", delay=20)
    kept = rows.filter("n > 3").persist("middle", when="outage")
    kept.aggregate("n", window=hf.tumbling(10), rows=hf.count(), name="w").sink(MemorySink("w"), name="out")
    with pytest.raises(
        TopologyError, match=r"persist 'middle' lets rows go by memory.*Declare it again behind 'middle'"
    ):
        plan_of(made)


# --- a consumer that is down ---


def test_a_run_that_begins_far_behind_takes_no_more_than_fits_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connectors, "BYTES_PER_STEP", 1 << 20)
    with hf.Log(tmp_path / "log") as log:  # what was written while nobody read
        log.append([{"n": n, "text": f"{n:06d}" * 1000} for n in range(2000)])
    shared = connectors.SharedLog("middle", PersistSpec(str(tmp_path / "log")), None)
    shared.schema = hf.Log(tmp_path / "log").schema
    source = connectors.PersistedSource(shared)
    source.seek(None)
    first = source.next_slice()
    assert first is not None
    assert (first.rows or 0) * 6000 < 2 << 20


@pytest.mark.fault("I10", "O11")
def test_while_a_consumer_is_down_rows_land_in_the_log_and_memory_stays_flat(tmp_path: Path) -> None:
    flag, gate, log = tmp_path / "down", tmp_path / "gate", tmp_path / "store/logs/middle"
    flag.touch()

    def wide(table: pa.Table) -> pa.Table:
        found = table.column("n").to_pylist()
        if found[-1] >= 2000:
            wait(gate.exists, "the gate")
        return table.append_column("text", pa.array([f"{n:06d}" * 2000 for n in found]))

    made = hf.Topology("t")
    rows = (
        source(made, 4000).consistent("first", period=0.1).map_arrow(wide, "n long, text string", name="wide")
    )
    behind = rows.persist("middle", keep="1 day").consistent("second", period=0.05)
    behind.apply(lambda: persist_program.Broken(str(flag)), "n long, count long", name="counted").sink(
        hf.LogSink(tmp_path / "out"), name="out"
    )
    job = submit_local(made, f"file:{tmp_path}/store")
    try:
        wait(lambda: job.status().regions["second"].phase == "parked", "the consumer to be parked")
        fired("consumer parked")
        wait(
            lambda: hf.Log(log).exists and hf.Log(log).bounds(committed=False).end >= 1900, "half of the rows"
        )
        before = pa.total_allocated_bytes()
        gate.touch()
        wait(lambda: hf.Log(log).bounds().end == 4000, "all rows in the log")
        assert sum(path.stat().st_size for path in log.rglob("*.tail")) > 2.5 * MEMORY_BYTES
        assert pa.total_allocated_bytes() - before < MEMORY_BYTES
        assert job.status().as_dict()["logs"]["middle"]["waiting"] >= 1000
        flag.unlink()
        job.resume()
        wait(lambda: len(numbers(tmp_path / "out")) == 4000, "the consumer to catch up")
        job.stop()
    finally:
        job.close()
    assert numbers(tmp_path / "out") == list(range(4000))
    assert hf.Log(tmp_path / "out").reader().read_all().column("count").to_pylist() == list(range(1, 4001))


def test_rows_for_an_element_that_gave_up_wait_in_the_log_for_the_next_run(tmp_path: Path) -> None:
    flag, log = tmp_path / "down", tmp_path / "store/logs/middle"
    flag.touch()

    def run(until: Callable[[], bool]) -> Any:
        made = hf.Topology("t")
        ticks = made.source(hf.Beacon(rate=2000, rows_per_step=20), name="ticks").map_arrow(
            renamed, NUMBERS, name="n"
        )
        behind = ticks.persist("middle", keep="1 day")
        behind.apply(lambda: persist_program.Broken(str(flag)), "n long, count long", name="counted").sink(
            hf.LogSink(tmp_path / "out"), name="out"
        )
        job = submit_local(made, f"file:{tmp_path}/store")
        try:
            wait(until, "the run to get so far")
            return job
        finally:
            with contextlib.suppress(HoldfastError):
                job.stop()
            job.close()

    def at() -> int:
        there = hf.Log(log).consumers() if hf.Log(log).exists else []
        return int(there[0].positions[0]) if there else 0

    run(lambda: at() > 0 and hf.Log(log).bounds().end > at() + 1000)
    reached = at()
    flag.unlink()
    job = run(lambda: len(numbers(tmp_path / "out")) > 1500)
    found = numbers(tmp_path / "out")
    assert found == list(range(reached, reached + len(found))), (
        "what waited in the log comes first, and in order"
    )
    assert reached <= job.status().lost_rows["out"]
    assert numbers(log) == list(range(len(numbers(log))))


def renamed(table: pa.Table) -> pa.Table:
    return table.select(["id"]).rename_columns(["n"])


def test_a_run_that_is_stopped_leaves_the_rest_in_the_log_for_the_next_one(tmp_path: Path) -> None:
    gate, log = tmp_path / "gate", tmp_path / "store/logs/middle"

    def behind_gate(table: pa.Table) -> pa.Table:
        wait(gate.exists, "the gate")
        return table

    def topology() -> hf.Topology:
        made = hf.Topology("t")
        ticks = made.source(hf.Beacon(rows=1500, rate=3000, rows_per_step=20), name="ticks")
        ticks = ticks.consistent("r", period=0.03).map_arrow(renamed, NUMBERS, name="n")
        behind = ticks.persist("middle", keep="1 day").map_arrow(behind_gate, NUMBERS, name="gated")
        behind.sink(hf.LogSink(tmp_path / "out"), name="out")
        return made

    job = submit_local(topology(), f"file:{tmp_path}/store")
    wait(lambda: hf.Log(log).exists and hf.Log(log).bounds().end > 0, "some rows in the log")
    taken = hf.Log(log).bounds().end
    wait(lambda: hf.Log(log).bounds().end > taken + 500, "many rows in the log")
    job.ask_to_stop()
    gate.touch()
    job.stop()
    job.close()
    stored = numbers(log)
    assert len(stored) < 1500, "the run was stopped in the middle"
    assert numbers(tmp_path / "out") == stored[: len(numbers(tmp_path / "out"))]
    run_local(topology(), store=f"file:{tmp_path}/store")
    assert numbers(tmp_path / "out") == numbers(log) == list(range(1500))


def test_a_full_disk_makes_the_producer_wait_and_costs_nothing(tmp_path: Path) -> None:
    for number, shape in enumerate(("sr", "br", "rr")):
        here = tmp_path / shape
        failpoints.arm(f"log.write=enospc@{4 + number}")
        status = persist_program.run(shape, here)
        assert failpoints.fired()["log.write"] == 1
        fired("disk full")
        assert numbers(here / "store/logs/middle") == persist_program.kept(), shape
        assert numbers(here / "out") == persist_program.kept()
        assert not any(status.lost_rows.values())


def outlast_a_full_disk(root: Path) -> None:
    """Body of a child: the log lies on a small disk, what follows is down, and the disk fills up until somebody makes room."""
    report: dict[str, Any] = {}
    try:
        enter_namespace()
        small, flag = root / "small", root / "down"
        mount_small(small, "3m")
        (small / "ballast").write_bytes(bytes(2 << 20))
        flag.touch()
        made = hf.Topology("t")
        rows = source(made, 1200).map_arrow(padded, "n long, text string", name="padded")
        behind = rows.persist("middle", path=small / "log", keep="1 day").consistent("second", period=0.05)
        behind.apply(lambda: persist_program.Broken(str(flag)), "n long, count long", name="counted").sink(
            hf.LogSink(root / "out"), name="out"
        )
        job = submit_local(made, f"file:{root}/store")
        wait(lambda: job.status().regions["second"].phase == "parked", "the consumer to be parked")
        wait(lambda: shutil.disk_usage(small).free < 16384, "the disk to be full")
        report["stored"] = hf.Log(small / "log").bounds().end
        (small / "ballast").unlink()
        flag.unlink()
        job.resume()
        wait(lambda: len(numbers(root / "out")) == 1200, "all rows to come out")
        job.stop()
        report["lost"] = sum(job.status().lost_rows.values())
        job.close()
        report["exact"] = numbers(root / "out") == numbers(small / "log") == list(range(1200))
    except BaseException as error:
        report["error"] = f"{type(error).__name__}: {error}"
    (root / "report").write_text(json.dumps(report))
    os._exit(0)


def padded(table: pa.Table) -> pa.Table:
    return table.append_column("text", pa.array(["x" * 1300] * table.num_rows))


@pytest.mark.fault("S08")
def test_a_disk_that_is_full_while_a_consumer_is_down_costs_nothing(tmp_path: Path) -> None:
    tried = tmp_path / "mounts"
    forked.finish(forked.start(try_namespace, tried), 30)
    if tried.read_text():
        pytest.skip(f"needs a private mount namespace with a small tmpfs: {tried.read_text()}")
    forked.finish(forked.start(outlast_a_full_disk, tmp_path), 180)
    report = json.loads((tmp_path / "report").read_text())
    assert "error" not in report, report
    assert 0 < report["stored"] < 1200
    assert report["exact"]
    assert not report["lost"]
    fired("disk full")


# --- an element without state ---


@pytest.mark.parametrize(
    ("where", "ends"),
    [
        ("sink.write=raise@3", False),
        ("step.end=raise@4", False),
        ("log.write=eio@3", True),
        ("log.synced=eio@2", True),
    ],
)
def test_a_step_that_failed_is_done_again_and_its_outcome_is_looked_up(
    tmp_path: Path, where: str, ends: bool
) -> None:
    def run() -> Any:
        made = hf.Topology("t")
        source(made).persist("middle").isolate().sink(MemorySink(tmp_path.name), name="x")
        return run_local(made, store=f"file:{tmp_path}/store")

    failpoints.arm(where)
    if ends:  # a disk that fails ends the run
        with pytest.raises(StoreError, match="nobody knows"):
            run()
        assert len(numbers(tmp_path / "store/logs/middle")) < 60
        assert sum(failpoints.disarm().values()) == 1
    status = run()
    assert ends or sum(failpoints.fired().values()) == 1
    assert numbers(tmp_path / "store/logs/middle") == list(range(60))
    assert status.elements["numbers"].lost_rows == 0
    MemorySink.clear(tmp_path.name)


def test_without_any_store_a_log_is_enough_to_go_on(tmp_path: Path) -> None:
    for life in range(3):
        made = hf.Topology("t")
        source(made, 20 * (life + 1)).persist("middle", path=tmp_path / "log", keep="1 day").sink(
            MemorySink("any"), name="x"
        )
        run_local(made)
        assert numbers(tmp_path / "log") == list(range(20 * (life + 1)))
    MemorySink.clear("any")
    renamed = hf.Topology("t")
    renamed.source(hf.Rows([(1,)], NUMBERS), name="other").persist("middle", path=tmp_path / "log").sink(
        MemorySink("any"), name="x"
    )
    with pytest.raises(MismatchError, match="'other' is new and source 'numbers'"):
        run_local(renamed)
    assert numbers(tmp_path / "log") == list(range(60))


def test_a_run_that_owns_the_store_replaces_a_writer_that_does_not_know_it_yet(tmp_path: Path) -> None:
    def run(rows: int) -> None:
        made = hf.Topology("t")
        source(made, rows).persist("middle", keep="1 day").sink(MemorySink("replaced"), name="x")
        run_local(made, store=f"file:{tmp_path}/store")

    run(30)
    old = hf.Log(tmp_path / "store/logs/middle")
    old.owner()
    run(60)
    with pytest.raises(FencedError):
        old.append([{"n": -1}])
    assert numbers(tmp_path / "store/logs/middle") == list(range(60))
    MemorySink.clear("replaced")


# --- who holds the log ---


def test_a_consumer_moves_on_with_epochs_and_savepoints_hold_rows(tmp_path: Path) -> None:
    made = hf.Topology("t")
    data = hf.Beacon(rate=2000, rows_per_step=50)
    rows = made.source(data, name="ticks").consistent("first", period=0.05)
    rows.persist("middle").consistent("second", period=0.05).sink(MemorySink(tmp_path.name), name="out")
    job = submit_local(made, f"file:{tmp_path}/store")

    def held() -> int:
        return int(job.status().as_dict()["logs"]["middle"]["held_by"].get("middle", 0))

    try:
        wait(lambda: held() > 200, "the consumer to move on")
        job.savepoint("here", region="second")
        wait(lambda: (job.status().regions["second"].epoch or 0) > 20, "epochs behind the savepoint")
        first = held()
        epoch = job.status().regions["second"].epoch or 0
        wait(lambda: (job.status().regions["second"].epoch or 0) > epoch + 10, "more epochs")
        assert held() == first, "what a savepoint needs was let go"
        job.stop()
    finally:
        job.close()
    (consumer,) = hf.Log(tmp_path / "store/logs/middle").consumers()
    assert (consumer.name, consumer.positions) == ("middle", {0: first})
    assert consumer.epoch
    assert len(MemorySink.table(tmp_path.name)) > first
    MemorySink.clear(tmp_path.name)


def test_a_source_of_ones_own_registers_if_it_has_a_name(tmp_path: Path) -> None:
    with hf.Log(tmp_path / "log") as log:
        log.append([{"n": n} for n in range(30)])
    for consumer in (None, "report"):
        made = hf.Topology("t")
        rows = hf.LogSource(tmp_path / "log", rows_per_step=7, consumer=consumer)
        made.source(rows, name="rows").consistent("r").sink(MemorySink("own"), name="out")
        run_local(made, store=f"file:{tmp_path}/store-{consumer}")
        found = {each.name: each.positions[0] for each in hf.Log(tmp_path / "log").consumers()}
        assert found == ({} if consumer is None else {"report": 30})
    MemorySink.clear("own")
    with pytest.raises(ConfigError, match="consumer"):
        hf.LogSource(tmp_path / "log", consumer="a b")


def test_what_a_consumer_has_behind_it_goes(tmp_path: Path) -> None:
    for _ in range(4):  # each run ends with an epoch, and three of them are kept
        persist_program.run("sr", tmp_path)
    with hf.Log(tmp_path / "store/logs/middle", upkeep_every=None) as log:
        log.append([{"n": -1}])  # a new owner closes the tail before
        (found,) = log.retain()
        assert found.low == len(persist_program.kept())
    status = persist_program.run("sr", tmp_path)
    assert status.as_dict()["logs"]["middle"]["rows"] == 1


def test_status_shows_who_holds_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    persist_program.run("sr", tmp_path)
    log = hf.Log(tmp_path / "store/logs/middle")
    log.pin("audit", 7)
    persist_program.run("sr", tmp_path)
    assert run_command(["status", str(tmp_path / "store")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "log of middle: 225 rows, 0 not read yet; held by middle from row" in said
    assert "pin audit from row 7 on" in said
