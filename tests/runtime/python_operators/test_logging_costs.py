"""The cost of following changes as a run measures it, and what becomes of state while it sways the choice of form."""

from __future__ import annotations

from pathlib import Path

import pytest
from killed import killed_and_finished, written
from variables_program import ROWS, Many, expected, topology

import holdfast as hf
from holdfast.checkpoint.blobs import put_blobs
from holdfast.checkpoint.costs import tracking_cost
from holdfast.failpoints import fired
from holdfast.ids import Epoch, OperatorName
from holdfast.runtime.region.restore_budget import RestoreBudget
from holdfast.runtime.runs.variable_chain import VersionedState, limits_of
from holdfast.store.urls import open_store
from holdfast.testing import arm, compare_sequence, run_local

PROGRAM = Path(__file__).with_name("variables_program.py")


def forms(followed_s: float, plain_s: float, epochs: int) -> str:
    """Forms of checkpoints of an operator whose steps take so long with and without their changes being followed."""
    store = open_store(f"memory:logging-{followed_s}")
    store.open("t")
    store.acquire()
    store.create_entry("many@r")
    op = Many()
    op.fill()
    chooser = RestoreBudget().chooser(OperatorName("many"), limits_of(hf.incremental(ratio=None)))
    state = VersionedState(chooser)
    state.restored(Epoch(0), op, None, None)
    found = ""
    for epoch in range(1, epochs + 1):
        for _ in range(tracking_cost.STEPS_MIN):
            state.worked(0, 1000, followed_s if chooser.tracking else plain_s)
        op.counts["a"] = epoch
        made = state.part_of(Epoch(epoch), state.pin(Epoch(epoch), None))
        keys = {f"e{epoch}-a1-many~{kind}": data for kind, data in made.pairs.items()}
        state.stored(Epoch(epoch), list(put_blobs(store, "many@r", keys).values()))
        assert made.part.form is not None
        found += made.part.form.kind[0]
    store.close()
    return found


def test_deltas_end_where_following_takes_longer_than_it_saves() -> None:
    assert forms(1e6, 0.0, 13) == "bdbbbbbbbbbbd"


def test_deltas_go_on_where_following_takes_nothing() -> None:
    assert forms(1.0, 1.0, 13) == "bdbddbddddbdd"


@pytest.mark.parametrize("mode", ["drain", "async"])
def test_a_run_measures_steps_of_both_kinds_and_loses_no_change(
    mode: str, shelf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step counts as large and every cost as noticeable: forms follow what is measured, noise included."""
    monkeypatch.setattr(tracking_cost, "STEP_ROWS_MIN", 1)
    monkeypatch.setattr(tracking_cost, "NOTICEABLE_S", 0.0)
    seen: list[tuple[bool, int]] = []
    real = VersionedState.worked

    def worked(self: VersionedState, port: int, rows: int, seconds: float) -> None:
        assert seconds > 0
        seen.append((self._is_followed, rows))
        real(self, port, rows, seconds)

    monkeypatch.setattr(VersionedState, "worked", worked)
    arm("step.end=raise@12;ckpt.op.put=raise@30")
    run_local(topology(hf.MemorySink(shelf), mode=mode), f"file:{tmp_path}/store")
    assert all(fired().values()), fired()
    compare_sequence(expected(), hf.MemorySink.rows(shelf))
    assert {is_followed for is_followed, _ in seen} == {True, False}
    assert sum(rows for _, rows in seen) >= len(ROWS)


def test_after_a_row_that_failed_nothing_counts_as_followed() -> None:
    op = Many()
    op.fill()
    state = VersionedState(RestoreBudget().chooser(OperatorName("many"), limits_of(hf.incremental())))
    state.restored(Epoch(0), op, None, None)
    state.part_of(Epoch(1), state.pin(Epoch(1), None))
    before = state._is_followed
    state.exchanged(op)
    state.worked(0, 1000, 1.0)
    assert before
    assert state._paces[0].plain == (0.001,)


@pytest.mark.slow
def test_a_driver_killed_between_measurements_goes_on(tmp_path: Path) -> None:
    kills = ("ckpt.op.put=kill@5", "ckpt.epoch.published=kill@6")
    killed_and_finished(PROGRAM, tmp_path, kills, "async")
    compare_sequence(expected(), sorted(written(tmp_path, "out"), key=lambda row: row["n"]))
