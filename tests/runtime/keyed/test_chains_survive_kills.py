"""Bases and deltas under kill -9: the driver dies while it stores or loads what it joined. That it died there proves that
something was joined; what it wrote is what its input comes to."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path

import pytest
from chain_program import rows
from killed import lived, written

from holdfast.checkpoint import manifest as manifests
from holdfast.ids import RegionName
from holdfast.store.urls import open_store

PROGRAM = Path(__file__).with_name("chain_program.py")
REGION = RegionName("chains")


def deltas_of_newest(here: Path) -> int:
    store = open_store(f"file:{here}/store")
    store.open("chains")
    epoch = store.epochs(REGION)[-1]
    form = manifests.decode(store.manifest(REGION, epoch), "the newest").operators()["sums"].form
    store.close()
    assert form is not None
    return form.deltas


@pytest.mark.slow
def test_a_driver_that_dies_while_it_joins_loses_nothing(tmp_path: Path) -> None:
    for moment in ("delta", "base", "restore"):
        assert lived(PROGRAM, tmp_path, "", moment) == -signal.SIGKILL, f"it did not die in a {moment}"
        if moment == "base":
            assert deltas_of_newest(tmp_path) >= 2, "the chain before the base stays what a restore reads"
    assert lived(PROGRAM, tmp_path, "", "never") == 0
    wanted = []
    for key, all_of in itertools.groupby(
        sorted(enumerate(rows()), key=lambda row: (row[1][0], row[0])), lambda row: row[1][0]
    ):
        values = [value for _, (_, value) in all_of]
        wanted += [(key, total, n) for n, total in enumerate(itertools.accumulate(values), 1)]
    found = [(row["k"], row["total"], row["n"]) for row in written(tmp_path, "sums")]
    assert sorted(found) == sorted(wanted)
