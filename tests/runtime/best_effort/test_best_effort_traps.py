"""Ways to lose, double or misread rows outside of regions that a user may hit on without any kill."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.errors import NoSpaceError, StepFailed
from holdfast.failpoints import arm, disarm
from holdfast.language.connectors import Slice
from holdfast.language.hosted import Operator
from holdfast.language.topology import Topology
from holdfast.runtime.element import alone_life
from holdfast.runtime.element.account_books import AccountBooks
from holdfast.runtime.runs.hosted import known_states
from holdfast.sources import Beacon, Files
from holdfast.state.variables import instance_state
from holdfast.store.files.file_store import FileStore
from holdfast.store.urls import open_store
from holdfast.testing import MemorySink, run_local, submit_local

STEP = 5


@pytest.fixture
def where(tmp_path: Path) -> str:
    return f"file:{tmp_path}/store"


def ids(shelf: str) -> list[int]:
    return [row["id"] for row in MemorySink.rows(shelf)]


def wait(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    patience = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < patience
        time.sleep(0.002)


def beacon(rows: int) -> Beacon:
    return Beacon(rows=rows, rows_per_step=STEP)


def slowly(table: pa.Table) -> pa.Table:
    time.sleep(0.005)
    return table.select(["id"])


def keyed(table: pa.Table) -> pa.Table:
    return pa.table({"id": table["id"], "k": pa.array([7] * table.num_rows, pa.int64())})


# --- what the status says ---------------------------------------------------------------------------------------------


def test_every_sink_is_in_the_status_also_if_it_lacks_nothing(shelf: str) -> None:
    made = Topology("loose")
    made.source(beacon(10), name="numbers").sink(MemorySink(shelf), name="out")
    assert run_local(made)["lost_rows"] == {"out": 0}


class Plain(Operator):
    """Remembers nothing."""

    def process(self, row: Any, port: int) -> Any:
        return (row.id,)


class Setting(Operator):
    """Has an attribute that never changes."""

    def __init__(self) -> None:
        self.factor = 1

    def process(self, row: Any, port: int) -> Any:
        return (row.id * self.factor,)


class Remembers(Operator):
    def __init__(self) -> None:
        self.seen = 0

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        return (row.id,)


@pytest.mark.parametrize(("operator", "lost"), [(Plain, 0), (Setting, 0), (Remembers, 50)])
def test_an_operator_that_remembers_nothing_loses_nothing_by_a_restart(
    operator: Any, lost: int, shelf: str, where: str
) -> None:
    def made(rows: int) -> Topology:
        loose = Topology("loose")
        loose.source(beacon(rows), name="numbers").apply(operator, "id long", name="op").sink(
            MemorySink(shelf), name="out"
        )
        return loose

    run_local(made(50), where)
    assert run_local(made(60), where)["lost_rows"] == {"out": lost}
    assert ids(shelf) == list(range(60))


def test_rows_are_counted_where_they_were_lost_not_what_would_have_become_of_them(
    shelf: str, where: str
) -> None:
    """Two ways lead to the sink, and one row becomes three: it still counts as one."""

    def thrice(table: pa.Table) -> pa.Table:
        return pa.concat_tables([table.select(["id"])] * 3)

    made = Topology("loose")
    numbers = made.source(beacon(50), name="numbers")
    one = numbers.isolate().map_arrow(thrice, "id long", name="one")
    other = numbers.isolate().map_arrow(slowly, "id long", name="other")
    one.union(other, name="both").sink(MemorySink(shelf), name="out")
    arm("step.begin=raise@1")
    try:
        status = run_local(made, where)
    finally:
        disarm()
    assert status["lost_rows"] == {"out": STEP}
    assert len(ids(shelf)) == 4 * (50 - STEP)


# --- ends of runs -----------------------------------------------------------------------------------------------------


def test_a_full_disk_while_a_run_is_stopped_lets_no_row_come_twice(
    shelf: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [False]
    save = FileStore.save_record

    def save_if_there_is_space(store: FileStore, name: str, data: bytes) -> None:
        if full[0]:
            raise NoSpaceError("no space left.", cure="Free some.")
        save(store, name, data)

    monkeypatch.setattr(FileStore, "save_record", save_if_there_is_space)

    def made() -> Topology:
        loose = Topology("loose")
        source = loose.source(beacon(300), name="numbers").map_arrow(slowly, "id long", name="slowly")
        source.sink(MemorySink(shelf), name="out")
        return loose

    job = submit_local(made(), where)
    wait(lambda: len(ids(shelf)) > 20)
    full[0] = True
    wait(lambda: job.status()["elements"]["numbers"]["waiting"] == "space in the store")
    job.stop(timeout=0.1)
    full[0] = False
    status = run_local(made(), where)
    assert ids(shelf) == list(range(300))
    assert status["lost_rows"]["out"] <= STEP, "at most the step that could not begin"


def write_file(directory: Path, number: int) -> None:
    directory.mkdir(exist_ok=True)
    rows = {"id": pa.array(range(10 * number, 10 * number + 10), pa.int64())}
    pq.write_table(pa.table(rows), directory / f"{number:03}.parquet")


def totals_of_files(directory: Path, shelf: str, step: Callable[[pa.Table], pa.Table] = slowly) -> Topology:
    """Whole files are steps, and nobody knows how many rows they have."""
    made = Topology("loose")
    rows = made.source(Files(str(directory), "parquet", "id long", max_files_per_step=1), name="files")
    keys = rows.map_arrow(step, "id long", name="step").map_arrow(keyed, "id long, k long", name="keys")
    keys.aggregate("k", n=hf.count(), name="totals").sink(MemorySink(shelf), name="out")
    return made


def test_rows_of_files_that_nobody_counted_are_counted_when_they_are_lost(
    shelf: str, where: str, tmp_path: Path
) -> None:
    for number in range(3):
        write_file(tmp_path / "in", number)
    run_local(totals_of_files(tmp_path / "in", shelf), where)
    write_file(tmp_path / "in", 3)
    status = run_local(totals_of_files(tmp_path / "in", shelf), where)
    assert MemorySink.rows(shelf)[-1] == {"k": 7, "n": 10}, "it has no checkpoint and begins anew"
    assert status["lost_rows"] == {"out": 30}


def test_rows_of_a_file_whose_step_was_interrupted_are_counted(
    shelf: str, where: str, tmp_path: Path
) -> None:
    begun = []

    def fails_when_stopped(table: pa.Table) -> pa.Table:
        begun.append(True)
        wait(lambda: job._ended.is_set())
        raise ValueError("cancelled")

    write_file(tmp_path / "in", 0)
    job = submit_local(totals_of_files(tmp_path / "in", shelf, fails_when_stopped), where)
    wait(lambda: bool(begun))
    job.stop(timeout=0.0)
    assert job.status()["lost_rows"] == {"out": 10}
    status = run_local(totals_of_files(tmp_path / "in", shelf), where)
    assert status["lost_rows"] == {"out": 10}, "counted once"
    assert MemorySink.rows(shelf) == []


@pytest.mark.fault("O11")
def test_an_account_does_not_grow_with_every_file(
    shelf: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alone_life, "UNCOUNTED_MAX", 4)
    sizes = []
    save = AccountBooks.save

    def noted(books: AccountBooks, account: Any, positions: Any, uncounted: Any, *more: Any) -> None:
        sizes.append(len(uncounted))
        save(books, account, positions, uncounted, *more)

    monkeypatch.setattr(AccountBooks, "save", noted)
    for number in range(20):
        write_file(tmp_path / "in", number)
    run_local(totals_of_files(tmp_path / "in", shelf), where)
    assert 1 < max(sizes) <= 6
    assert run_local(totals_of_files(tmp_path / "in", shelf), where)["lost_rows"] == {"out": 200}


class Confirms(Operator):
    """Counts what comes back by its control port."""

    def __init__(self) -> None:
        self.back = 0

    def process(self, row: Any, port: int) -> Any:
        if port == 1:
            self.back += 1
            return None
        return (row.id,)


@pytest.mark.parametrize("way", ["to the end", "stopped"])
def test_a_cycle_outside_of_regions_comes_to_an_end(way: str, shelf: str, where: str) -> None:
    made = Topology("cycle")
    numbers = made.source(beacon(40), name="numbers").map_arrow(slowly, "id long", name="slowly")
    back = made.feedback("id long")
    sent = made.operator(Confirms, inputs=[numbers], control=[back.stream], schema="id long", name="sends")
    sent = sent.checkpoint(every=60)
    back.complete(sent.apply(Plain, "id long", name="returns"))
    sent.sink(MemorySink(shelf), name="out")
    job = submit_local(made, where, until="available" if way == "to the end" else None)
    if way == "stopped":
        wait(lambda: len(ids(shelf)) == 40)
        job.ask_to_stop()
    assert job.await_termination(timeout=60)
    assert ids(shelf) == list(range(40))
    assert job.status()["lost_rows"] == {"out": 0}
    assert [e.data["number"] for e in open_store(where).events() if e.kind == "operator.checkpoint"] == [1]


# --- ports of regions -------------------------------------------------------------------------------------------------


class Merge(Operator):
    """Takes its time with rows of the autonomous port."""

    def process(self, row: Any, port: int) -> Any:
        if port == 1:
            time.sleep(0.02)
        return (row.id, port)


def into_a_region(shelf: str, isolated: bool = False) -> Topology:
    made = Topology("mixed")
    exact = made.source(beacon(30), name="exact").consistent("r", period=0.05)
    loose = made.source(beacon(200), name="loose").map_arrow(slowly, "id long", name="slowly")
    if isolated:
        loose = loose.isolate().map_arrow(slowly, "id long", name="more")
    merged = made.operator(
        Merge, inputs=[exact, loose.autonomous()], schema="id long, port long", name="merge"
    )
    merged.sink(MemorySink(shelf), name="out")
    return made


def entered(shelf: str) -> list[int]:
    return [row["id"] for row in MemorySink.rows(shelf) if row["port"] == 1]


def test_rows_that_waited_to_enter_a_region_are_in_the_status_of_the_run_that_lost_them(
    shelf: str, where: str
) -> None:
    job = submit_local(into_a_region(shelf), where)
    wait(lambda: job.loops["loose"].worker.sources[0].source.snapshot()["next"] == 200)
    wait(lambda: job.status()["elements"]["loose"]["waiting"] == "input")
    job.stop(timeout=0.2)  # one that had the time for it would take them in
    lost = job.status()["lost_rows"]
    assert lost == {"out": 200 - len(entered(shelf))}
    assert lost["out"] > 0
    assert job.status()["elements"]["merge"]["lost_rows"] == lost["out"]
    status = run_local(into_a_region(shelf), where)
    assert status["lost_rows"] == lost
    assert status["elements"]["merge"]["lost_rows"] == lost["out"]


def test_a_program_that_calls_a_connection_by_another_name_forgets_no_losses(shelf: str, where: str) -> None:
    job = submit_local(into_a_region(shelf), where)
    wait(lambda: job.loops["loose"].worker.sources[0].source.snapshot()["next"] == 200)
    job.close()  # at once: what is lost is counted by this run, or by the next
    for isolated in (True, False):
        status = run_local(into_a_region(shelf, isolated), where)
        assert status["lost_rows"] == {"out": 200 - len(entered(shelf))}
    assert max(collections.Counter(entered(shelf)).values(), default=1) == 1


# --- checkpoints that are not used any more, or damaged -----------------------------------------------------------------


def totals(shelf: str, rows: int, name: str = "totals", every: float | None = 0.0001) -> Topology:
    made = Topology("loose")
    keys = made.source(beacon(rows), name="numbers").map_arrow(keyed, "id long, k long", name="keys")
    counted = keys.aggregate("k", n=hf.count(), name=name)
    counted = counted if every is None else counted.checkpoint(every=every)
    counted.sink(MemorySink(shelf), name="out")
    return made


def totals_in_a_region(shelf: str, rows: int) -> Topology:
    made = Topology("loose")
    source = made.source(beacon(rows), name="numbers").consistent("r", period=0.05)
    counted = source.map_arrow(keyed, "id long, k long", name="keys").aggregate(
        "k", n=hf.count(), name="totals"
    )
    counted.sink(MemorySink(shelf), name="out")
    return made


EDITS: dict[str, Callable[[str, int], Topology]] = {
    "another name": lambda shelf, rows: totals(shelf, rows, name="sums"),
    "no checkpoint any more": lambda shelf, rows: totals(shelf, rows, every=None),
    "into a region": totals_in_a_region,
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_state_that_the_program_does_not_read_any_more_is_counted_once(
    edit: str, shelf: str, where: str
) -> None:
    run_local(totals(shelf, 50), where)
    status = run_local(EDITS[edit](shelf, 70), where)
    assert MemorySink.rows(shelf)[-1] == {"k": 7, "n": 20}
    assert status["lost_rows"] == {"out": 50}
    lost = {"out": 50 + 20} if edit == "no checkpoint any more" else {"out": 50}
    assert run_local(EDITS[edit](shelf, 90), where)["lost_rows"] == lost


class Seen(Operator):
    def __init__(self) -> None:
        self.n = 0

    def process(self, row: Any, port: int) -> Any:
        self.n += 1
        return (7, self.n)


def seen(shelf: str, rows: int) -> Topology:
    made = Topology("loose")
    numbers = made.source(beacon(rows), name="numbers")
    numbers.apply(Seen, "k long, n long", name="totals").checkpoint(every=0.0001).sink(
        MemorySink(shelf), name="out"
    )
    return made


@pytest.mark.parametrize("make", [totals, seen], ids=["keyed", "in the driver"])
@pytest.mark.parametrize("what", ["records/state.totals*", "entries/totals@*/*"], ids=["record", "state"])
@pytest.mark.parametrize("damage", ["changed", "gone"])
@pytest.mark.fault("C01", "O08")
def test_a_damaged_checkpoint_costs_what_it_held_and_nobody_else_anything(
    make: Callable[[str, int], Topology], what: str, damage: str, shelf: str, where: str, tmp_path: Path
) -> None:
    run_local(make(shelf, 50), where)
    found = [path for path in (tmp_path / "store").glob(what) if path.is_file()]
    assert found
    for path in found:
        if damage == "gone":
            path.unlink()
        else:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 0xFF
            path.chmod(0o644)
            path.write_bytes(data)
    for rows, n in ((60, 10), (80, 30)):
        status = run_local(make(shelf, rows), where)
        assert MemorySink.rows(shelf)[-1] == {"k": 7, "n": n}
        assert status["lost_rows"] == {"out": 50}


# --- parts fail alone -------------------------------------------------------------------------------------------------


class Flaky(Beacon):
    """Cannot be asked now and then."""

    failures = 0

    def next_slice(self) -> Slice | None:
        if self._next >= 20 and Flaky.failures:
            Flaky.failures -= 1
            raise OSError("the network is away for a moment")
        return super().next_slice()


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone_life, "RETRY_S", 0.001)


def beside_a_region(shelf: str) -> Topology:
    made = Topology("mixed")
    exact = made.source(beacon(40), name="exact").consistent("r", period=0.05)
    exact.map_arrow(slowly, "id long", name="slowly").sink(MemorySink(shelf), name="exact_out")
    return made


def test_a_source_that_cannot_be_asked_is_asked_again_and_disturbs_nobody(shelf: str, where: str) -> None:
    Flaky.failures = 3
    made = beside_a_region(shelf)
    flaky = made.source(Flaky(rows=50, rows_per_step=STEP), name="flaky")
    steady = made.source(beacon(50), name="steady")
    both = steady.union(flaky, name="both")
    both.sink(MemorySink(f"{shelf}/both"), name="out")
    status = run_local(made, where)
    assert Flaky.failures == 0
    counted = collections.Counter(ids(f"{shelf}/both"))
    MemorySink.clear(f"{shelf}/both")
    assert counted == collections.Counter([*range(50), *range(50)]), "also the other source of its element"
    assert ids(shelf) == list(range(40))
    assert status["lost_rows"] == {"exact_out": 0, "out": 0}


@pytest.mark.fault("R06")
def test_a_source_that_can_never_be_asked_again_ends_its_element_alone(shelf: str, where: str) -> None:
    Flaky.failures = 1000
    made = beside_a_region(shelf)
    flaky = made.source(Flaky(rows=50, rows_per_step=STEP), name="flaky")
    flaky.sink(MemorySink(f"{shelf}/flaky"), name="out")
    with pytest.raises(StepFailed, match="the network is away"):
        run_local(made, where)
    found = ids(f"{shelf}/flaky")
    MemorySink.clear(f"{shelf}/flaky")
    assert found == list(range(20))
    assert ids(shelf) == list(range(40)), "the region came to its end"


class NeverMade(Operator):
    def __init__(self) -> None:
        raise OSError("the model is not there")

    def process(self, row: Any, port: int) -> Any:
        return (row.id,)


def test_an_operator_that_cannot_be_made_ends_its_element_alone(shelf: str, where: str) -> None:
    made = beside_a_region(shelf)
    loose = made.source(beacon(50), name="numbers")
    loose.apply(NeverMade, "id long", name="never").sink(MemorySink(f"{shelf}/never"), name="out")
    job = submit_local(made, where, until="available")
    with pytest.raises(StepFailed, match="the model is not there"):
        job.await_termination(timeout=60)
    assert ids(shelf) == list(range(40))
    assert job.status()["lost_rows"] == {"exact_out": 0, "out": 50}


# --- what it costs ----------------------------------------------------------------------------------------------------


class Heavy(Operator):
    def __init__(self) -> None:
        self.ballast = "x" * 100_000

    def process(self, row: Any, port: int) -> Any:
        return (row.id,)


def test_a_large_state_is_not_encoded_before_each_step(shelf: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_states, "REMEMBERED_BYTES", 1000)
    taken = []
    take_state = instance_state.take_state
    monkeypatch.setattr(instance_state, "take_state", lambda op: taken.append(op) or take_state(op))
    made = Topology("loose")
    numbers = made.source(beacon(100), name="numbers").map_arrow(slowly, "id long", name="slowly")
    numbers.apply(Heavy, "id long", name="heavy").sink(MemorySink(shelf), name="out")
    status = run_local(made)
    assert status["elements"]["heavy"]["steps"] > 5
    assert len(taken) <= 4, "when it is made, restored, and before its first step"
