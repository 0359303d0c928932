"""Declared variables of operators in the driver, stored as bases and deltas: through faults, kills and restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faults
import pytest
from killed import killed_and_finished, written
from variables_program import Many, expected, states, topology

import holdfast as hf
from holdfast.checkpoint import chain
from holdfast.checkpoint.blobs import put_blobs
from holdfast.checkpoint.manifest import Manifest, decode, references
from holdfast.checkpoint.parts import Chained, OperatorPart
from holdfast.errors import DamagedError, TopologyError
from holdfast.failpoints import fired
from holdfast.ids import Epoch, OperatorName, RegionName
from holdfast.runtime.region.restore_budget import RestoreBudget
from holdfast.runtime.runs.variable_chain import VersionedState, limits_of
from holdfast.state.values import codec
from holdfast.store.urls import open_store
from holdfast.testing import arm, compare_sequence, run_local

REGION = RegionName("r")
PROGRAM = Path(__file__).with_name("variables_program.py")


def manifests(url: str) -> list[Manifest]:
    store = open_store(url)
    return [decode(store.manifest(REGION, epoch), "it") for epoch in store.epochs(REGION)]


def part(manifest: Manifest) -> OperatorPart:
    return manifest.operators()["many"]


def chained(found: OperatorPart) -> Chained:
    assert isinstance(found.form, Chained)
    return found.form


def kind(found: OperatorPart) -> str:
    assert found.form is not None
    return found.form.kind


def check_every_epoch(url: str) -> None:
    """Each epoch there is holds the state after as many rows as it counted."""
    wanted = list(states())
    store = open_store(url)
    for manifest in manifests(url):
        found = chain.restore(store, part(manifest).pairs)
        whole = {**codec.decode(found.rest["state"]), **found.payloads}
        assert whole == codec.decode(wanted[whole.get("seen", 0)]), f"epoch {manifest.epoch}"
    store.close()


# --- whatever fails ------------------------------------------------------------------------------------------------------

FAULTS = (
    "ckpt.op.serialize=raise@20",
    "ckpt.op.put=raise@9",
    "ckpt.op.put=enospc@11",
    "ckpt.op.put_done=raise@14",
    "ckpt.manifest.tmp_written=raise@5",
    "ckpt.manifest.renamed=raise@6",
    "ckpt.epoch.published=raise@7;sink.commit.begin=raise@9",
    "sink.commit.applied=raise@8",
    "gc.delete=raise@4",
    "step.end=raise@12",
    "step.end=raise@9;reset.op.load=raise@2;reset.op.loaded=raise@3",
)


@pytest.mark.sampled(keep=6)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.fault("R10")
def test_a_fault_loses_no_change(fault: str, shelf: str, tmp_path: Path) -> None:
    arm(fault)
    mode = "async" if FAULTS.index(fault) % 2 else "drain"
    keep = 3 if "gc" in fault else 100
    run_local(topology(hf.MemorySink(shelf), mode=mode, keep=keep), f"file:{tmp_path}/store")
    assert all(fired().values()), fired()
    compare_sequence(expected(), hf.MemorySink.rows(shelf))
    assert any(kind(part(manifest)) == "delta" for manifest in manifests(f"file:{tmp_path}/store"))
    check_every_epoch(f"file:{tmp_path}/store")


@pytest.mark.slow
@pytest.mark.fault("P09", "R10")
def test_a_driver_killed_at_every_write_goes_on(tmp_path: Path) -> None:
    kills = (
        "ckpt.op.put=kill@9",
        "ckpt.op.put_done=kill@4",
        "ckpt.manifest.renamed=kill@3",
        "reset.op.loaded=kill@2",
        "ckpt.epoch.published=kill@4",
    )
    killed_and_finished(PROGRAM, tmp_path, kills, "drain")
    compare_sequence(expected(), sorted(written(tmp_path, "out"), key=lambda row: row["n"]))


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "name", ["ckpt.op.put", "ckpt.op.put_done", "ckpt.manifest.fsynced", "reset.op.loaded"]
)
def test_a_fault_at_any_write_loses_no_change(name: str, shelf: str, tmp_path: Path) -> None:
    wrong = "step.end=raise@20;" if name.startswith("reset") else ""
    for number in range(1, 100):
        arm(f"{wrong}{name}=raise@{number}")
        url = f"file:{tmp_path}/{number}"
        run_local(topology(hf.MemorySink(shelf), mode="async" if number % 2 else "drain", keep=100), url)
        if not fired()[name]:
            break
        faults.fired("exception in the driver")
        compare_sequence(expected(), hf.MemorySink.rows(shelf))
        check_every_epoch(url)
        hf.MemorySink.clear(shelf)
    assert number > 3


@pytest.mark.sampled(keep=1)
@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["drain", "token", "async"])
def test_a_driver_killed_at_any_write_goes_on(mode: str, tmp_path: Path) -> None:
    for number in range(1, 30, 2):
        here = tmp_path / str(number)
        here.mkdir()
        killed_and_finished(PROGRAM, here, [f"ckpt.op.put=kill@{number}", "ckpt.op.put_done=kill@5"], mode)
        compare_sequence(expected(), sorted(written(here, "out"), key=lambda row: row["n"]))


# --- what is stored ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["file", "sqlite"])
def test_a_delta_costs_what_changed_and_old_pairs_go(store: str, shelf: str, tmp_path: Path) -> None:
    url = f"{store}:{tmp_path}/store"
    run_local(topology(hf.MemorySink(shelf), checkpoint=hf.incremental(ratio=None, max_deltas=6)), url)
    compare_sequence(expected(), hf.MemorySink.rows(shelf))
    retained = manifests(url)
    kinds = [kind(part(manifest)) for manifest in retained]
    assert "delta" in kinds
    for manifest in retained:
        form = chained(part(manifest))
        assert form.deltas <= 6
        assert form.history.delta is not None
        assert form.history.base is not None
        assert form.history.delta.bytes * 2 < form.history.base.bytes
        assert sum(1 for ref in part(manifest).pairs if ref.key.endswith("~non")) == 1
    opened = open_store(url)
    stored = {(entry, key) for entry in opened.entries() for key in opened.keys(entry)}
    assert stored == set().union(*map(references, retained))
    opened.close()


def test_a_restart_goes_on_with_the_history_and_the_chain(shelf: str, tmp_path: Path) -> None:
    url = f"file:{tmp_path}/store"
    rule = hf.incremental(ratio=None)
    run_local(topology(hf.MemorySink(shelf), rows=168, checkpoint=rule), url)
    before = part(manifests(url)[-1])
    assert kind(before) == "delta"
    run_local(topology(hf.MemorySink(shelf), rows=176, checkpoint=rule), url)
    after = [part(manifest) for manifest in manifests(url) if kind(part(manifest)) == "delta"]
    assert max(chained(each).deltas for each in after) > chained(before).deltas
    old = {ref.key for ref in before.pairs if ref.key.endswith("~incr")}
    assert len(old) > 1
    assert old <= {ref.key for ref in after[-1].pairs}, "its deltas build on those before the restart"
    compare_sequence(expected(176), hf.MemorySink.rows(shelf))


def test_the_form_may_change_between_runs(shelf: str, tmp_path: Path) -> None:
    url = f"file:{tmp_path}/store"
    for rows, form in ((64, hf.full()), (128, hf.incremental()), (184, hf.full()), (240, None)):
        run_local(topology(hf.MemorySink(shelf), rows=rows, checkpoint=form), url)
        newest = part(manifests(url)[-1])
        is_full = form == hf.full()
        assert (kind(newest) == "full") == is_full
        assert (newest.blob is None, bool(newest.pairs)) == (not is_full, not is_full)
    compare_sequence(expected(), hf.MemorySink.rows(shelf))


class Shorter(Many):
    recent = hf.Window(int, rows=20)


def test_a_variable_that_is_declared_differently_is_stored_anew(shelf: str, tmp_path: Path) -> None:
    url = f"file:{tmp_path}/store"
    rule = hf.incremental(ratio=None)
    run_local(topology(hf.MemorySink(shelf), rows=168, checkpoint=rule), url)
    known = {manifest.epoch for manifest in manifests(url)}
    run_local(topology(hf.MemorySink(shelf), rows=184, operator=Shorter, checkpoint=rule), url)
    new = [part(manifest) for manifest in manifests(url) if manifest.epoch not in known]
    assert kind(new[0]) == "delta"
    store = open_store(url)
    recent = [chain.restore(store, each.pairs).payloads["recent"] for each in new]
    assert recent == [list(range(end - 20, end)) for end in (176, 184, 184)]


class ByHand(Many):
    def checkpoint(self) -> Any:
        return [dict(self.counts), self.seen]

    def reset(self, state: Any) -> None:
        self.counts, self.seen = state[0], state[1]


class Undeclared:
    def process(self, row: Any, port: int) -> Iterator[tuple[int, int]]:
        yield row.n, row.k


@pytest.mark.parametrize("operator", [ByHand, Undeclared])
def test_operators_that_declare_nothing_or_do_it_by_hand_are_stored_whole(
    operator: type, shelf: str, tmp_path: Path
) -> None:
    run_local(topology(hf.MemorySink(shelf), rows=40, operator=operator), f"file:{tmp_path}/store")
    newest = part(manifests(f"file:{tmp_path}/store")[-1])
    assert kind(newest) == "full"
    assert newest.blob is not None


def test_a_damaged_pair_is_found_before_anything_changes(shelf: str, tmp_path: Path) -> None:
    url = f"file:{tmp_path}/store"
    run_local(topology(hf.MemorySink(shelf), rows=80), url)
    store = open_store(url)
    store.open("variables")
    store.acquire()
    ref = next(ref for ref in part(manifests(url)[-1]).pairs if ref.key.endswith("~incr"))
    data = store.get(ref.entry, ref.key)
    assert data is not None
    store.put(ref.entry, {ref.key: data[:-1] + bytes([data[-1] ^ 1])})
    store.release()
    store.close()
    with pytest.raises(DamagedError, match="checksum"):
        run_local(topology(hf.MemorySink(shelf)), url)


# --- the invariant -------------------------------------------------------------------------------------------------------


def begun(op: Many) -> VersionedState:
    made = VersionedState(
        RestoreBudget().chooser(OperatorName("many"), limits_of(hf.incremental(ratio=None)))
    )
    made.restored(Epoch(0), op, None, None)
    return made


def in_memory(name: str) -> Any:
    store = open_store(f"memory:{name}")
    store.open("t")
    store.acquire()
    store.create_entry("many@r")
    return store


def checkpoint(state: VersionedState, store: Any, epoch: int, *, stored: bool = True) -> Any:
    pinned = state.pin(Epoch(epoch), None)
    made = state.part_of(Epoch(epoch), pinned)
    if stored:
        keys = {f"e{epoch}-a1-many~{kind}": data for kind, data in made.pairs.items()}
        state.stored(Epoch(epoch), list(put_blobs(store, "many@r", keys).values()))
    return made.part


def test_a_pin_after_one_that_was_not_stored_builds_on_nothing() -> None:
    store = in_memory("unstored")
    op = Many()
    op.fill()
    state = begun(op)
    assert checkpoint(state, store, 1).form.kind == "base"
    op.counts["a"] = 1
    assert checkpoint(state, store, 2).form.kind == "delta"
    assert checkpoint(state, store, 3).form.kind == "base"
    op.counts["b"] = 1
    assert checkpoint(state, store, 4, stored=False).form.kind == "delta"
    lost = checkpoint(state, store, 5)
    assert lost.form.kind == "base"
    assert not lost.pairs
    again = checkpoint(state, store, 5)
    assert again.form.kind == "base", "a number that was used before"
    store.close()


def test_a_delta_that_does_not_fit_becomes_a_base_and_the_next_one_is_tried() -> None:
    store = in_memory("refused")
    op = Many()
    op.fill()
    tight = limits_of(hf.incremental(ratio=0.3))
    state = VersionedState(RestoreBudget().chooser(OperatorName("many"), tight))
    state.restored(Epoch(0), op, None, None)
    forms = []
    for epoch, changed in enumerate((150, 140, 1), 1):
        op.counts.update({f"key {n}": -epoch for n in range(changed)})
        forms.append(checkpoint(state, store, epoch).form)
    assert [form.kind for form in forms] == ["base", "base", "delta"]
    history = forms[-1].history
    assert history.chain.bytes <= 0.3 * history.base.bytes
    store.close()


def test_variables_that_are_replaced_as_a_whole_are_not_followed_for_ever() -> None:
    store = in_memory("replaced")

    class Replaced(hf.Operator):
        held = hf.Value(list)

    op = Replaced()
    state = VersionedState(RestoreBudget().chooser(OperatorName("large"), limits_of(hf.incremental())))
    op.held = list(range(100))
    state.restored(Epoch(0), op, None, None)
    numbers = []
    for epoch in range(1, 5):
        op.held = list(range(epoch, 100))
        form = checkpoint(state, store, epoch).form
        assert form.kind == "base"
        numbers.append(form.history.number)
    assert numbers == [1, 1, 0, 0]
    store.close()


class Tally(hf.Operator):
    failures = 0
    counts = hf.Map(int, int)

    def process(self, row: Any, port: int) -> Iterator[tuple[int, int]]:
        if row.n == 200 and Tally.failures:
            Tally.failures -= 1
            raise ValueError("a passing weakness")
        self.counts[row.k] = self.counts.get(row.k, 0) + 1
        yield row.n, sum(self.counts.values())


def test_outside_of_regions_an_operator_gets_its_variables_back_too(shelf: str, tmp_path: Path) -> None:
    Tally.failures = 1
    made = hf.Topology("loose")
    rows = [(n % 50, n) for n in range(240)]
    source = made.source(hf.Rows(rows, "k long, n long", rows_per_step=1), name="rows")
    tally = source.isolate().apply(Tally, "n long, total long", name="tally").checkpoint(every=0.000001)
    tally.sink(hf.MemorySink(shelf), name="out")
    status = run_local(made, f"file:{tmp_path}/store")
    totals = [row["total"] for row in hf.MemorySink.rows(shelf)]
    lost = sum(element["lost_rows"] for element in status["elements"].values())
    assert lost > 0
    assert totals == list(range(1, 241 - lost)), "all but the rows of the step that failed are in the state"
    store = open_store(f"file:{tmp_path}/store")
    assert len(store.keys("tally@~autonomous")) < 60
    store.close()


# --- what a user may write -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"ratio": 0}, "ratio=0"),
        ({"ratio": float("nan")}, "ratio=nan"),
        ({"max_deltas": -1}, "max_deltas=-1"),
        ({"max_deltas": True}, "max_deltas=True"),
        ({"restore_within": "soon"}, "restore_within='soon'"),
    ],
)
def test_a_bound_that_cannot_be_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(TopologyError, match=told):
        hf.incremental(**given)


def test_what_is_no_form_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"checkpoint='full'.*hf\.full\(\)"):
        topology(hf.MemorySink("x"), checkpoint="full")
