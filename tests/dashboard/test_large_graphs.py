"""A run of many operators can be looked at after its end, in every kind of store that this machine has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.cli.status.store_status import read_status
from holdfast.dashboard.watched import Watched
from holdfast.store.events.as_bytes import EVENT_BYTES_MAX
from holdfast.testing import run_local

SOURCES = 60


@pytest.mark.parametrize("url", ["file:{}/store", "sqlite:{}/store.db", "objects+file://{}/store"])
def test_the_status_of_many_operators_is_in_the_event_log(tmp_path: Path, url: str) -> None:
    topology = hf.Topology("many")
    for number in range(SOURCES):
        rows = topology.source(hf.Rows([(1,), (2,)], "n long"), name=f"rows_{number}")
        rows.aggregate("n", times=hf.count(), name=f"times_{number}").sink(
            hf.MemorySink("many"), name=f"out_{number}"
        )
    store = url.format(tmp_path)
    run_local(topology, store)
    hf.MemorySink.clear("many")
    summary = read_status(store)["summary"]
    assert len(json.dumps(summary)) > EVENT_BYTES_MAX
    assert [of["rows"] for of in summary["elements"].values()] == [2] * SOURCES
    watched = Watched(store)
    watched.look()
    assert watched.story.status is not None
    assert len(watched.story.status["elements"]) == SOURCES
