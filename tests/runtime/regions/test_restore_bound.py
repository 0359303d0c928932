"""A bound on restore time: shared out among operators, told when it cannot be kept, compared with every restore."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path

import pytest

from holdfast.checkpoint.adaptive import Cost, Limits
from holdfast.checkpoint.costs.restore_time import Speed
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.operators import aggregates
from holdfast.language.topology import Topology
from holdfast.runtime.region.restore_budget import RestoreBudget
from holdfast.store.urls import open_store
from holdfast.testing import MemorySink, Rows, run_local


def counting(shelf: str, rows: int, within: float | None) -> Topology:
    made = Topology("counting")
    source = made.source(Rows([(n % 7,) for n in range(rows)], "k long", rows_per_step=5), name="numbers")
    counts = source.consistent(name="books", period=0.05, restore_within=within).aggregate(
        "k", name="counts", n=aggregates.count()
    )
    counts.sink(MemorySink(shelf), name="out")
    return made


def events(where: str, kind: str) -> list[dict[str, object]]:
    return [dict(event.data) for event in open_store(where).events() if event.kind == kind]


@pytest.mark.parametrize("seed", range(20))
def test_operators_of_a_region_keep_its_bound_together(seed: int) -> None:
    rng = random.Random(seed)
    budget = RestoreBudget(bound_s=rng.choice([1.0, 3.0]))
    choosers = [budget.chooser(OperatorName(f"o{n}"), Limits(ratio=None)) for n in range(3)]
    for _ in range(200):
        chooser = rng.choice(choosers)
        size = rng.randrange(1000, 3_000_000)
        delta = chooser.accepts_delta(size)
        chooser.took("delta" if delta else "base", Cost(size if delta else 20_000_000, 0.01))
        if delta:
            assert budget.predicted_s <= budget.bound_s  # type: ignore[operator]


def test_an_operators_own_bound_counts_beside_the_regions() -> None:
    budget = RestoreBudget(bound_s=60.0)
    chooser = budget.chooser(OperatorName("own"), Limits(ratio=None, seconds=0.5))
    chooser.took("base", Cost(30_000_000, 0.1))
    while chooser.accepts_delta(1_000_000):
        chooser.took("delta", Cost(1_000_000, 0.01))
    assert chooser.predicted_s <= 0.5
    assert not budget.too_large


def test_a_bound_that_the_base_alone_exceeds_is_told_once(
    shelf: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    where = f"file:{tmp_path}/store"
    with caplog.at_level(logging.WARNING, "holdfast"):
        run_local(counting(shelf, 200, within=0.01), where)
    told = [record.getMessage() for record in caplog.records if "cannot be restored" in record.getMessage()]
    assert len(told) == 1
    assert "'counts'" in told[0]
    assert len(events(where, "restore.bound_exceeded")) == 1


def test_a_bound_that_can_be_kept_is_not_spoken_of(
    shelf: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast"):
        run_local(counting(shelf, 200, within=60.0), f"file:{tmp_path}/store")
    assert not [record for record in caplog.records if "restored" in record.getMessage()]


def test_every_restore_is_compared_with_what_was_predicted_and_teaches(shelf: str, tmp_path: Path) -> None:
    where = f"file:{tmp_path}/store"
    run_local(counting(shelf, 100, within=5.0), where)
    status = run_local(counting(shelf, 200, within=5.0), where)
    first, second = events(where, "reset.done")
    assert first["restore_predicted_s"] == 0
    assert second["restore_predicted_s"] > 0  # type: ignore[operator]
    assert 0 < second["restore_s"] < 5.0  # type: ignore[operator]
    predicted = [event["restore_s"] for event in events(where, "epoch.published")]
    assert all(seconds > 0 for seconds in predicted)  # type: ignore[operator]
    assert status["regions"]["books"]["restore_s"] == second["restore_s"]
    store = open_store(where)
    store.open("counting")
    kept = store.load_record("restore-speed.books")
    store.close()
    assert kept is not None
    assert Speed.from_data(json.loads(kept)) != Speed()


@pytest.mark.parametrize("within", [0, -1, "soon", float("inf")])
def test_a_bound_that_is_no_time_is_refused(within: object) -> None:
    made = Topology("bad")
    with pytest.raises(TopologyError, match="restore_within"):
        made.source(Rows([(1,)], "k long"), name="n").consistent(restore_within=within)  # type: ignore[arg-type]
