"""What `submit` returns: typed values that can be read as mappings too, and a handle that tells what it is."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.errors import ConfigError
from holdfast.testing.local import submit_local


def submitted(tmp_path: Path) -> hf.Run:
    topology = hf.Topology("shop")
    rows = topology.source(hf.Rows([(n % 3, n) for n in range(90)], "k int, n long"), name="rows")
    counts = rows.consistent("books", trigger="manual").aggregate("k", n=hf.count(), name="counts")
    counts.sink(hf.MemorySink("handle"), name="out")
    return submit_local(topology, store=f"file:{tmp_path}/store", until="available")


def test_a_run_tells_what_it_does_in_values_and_as_plain_data(tmp_path: Path) -> None:
    run = submitted(tmp_path)
    assert isinstance(run, hf.Run)
    assert run.await_termination(timeout="1 minute")
    status = run.status()
    assert (status.topology, status.state) == ("shop", "ended")
    assert status.regions["books"].epoch == status["regions"]["books"]["epoch"] >= 1
    (element,) = status.elements.values()
    assert isinstance(element, hf.ElementStatus)
    assert element.rows == 90
    assert json.loads(json.dumps(status.as_dict())) == status.as_dict() == dict(status)
    told = {"topology", "state", "uptime_s", "regions", "elements", "lost_rows", "at", "id", "run"}
    assert told == set(status)
    with pytest.raises(dataclasses.FrozenInstanceError):
        status.state = "running"  # type: ignore[misc]
    with pytest.raises(KeyError):
        _ = status["nothing"]
    progress = status.progress
    assert progress.epochs == {"books": status.regions["books"].epoch}
    assert (list(progress.rows.values()), progress.sink_rows) == ([90], {"out": 3})
    assert repr(run).startswith("<Run of 'shop': ended, ")
    assert repr(run).endswith(f"region 'books' at epoch {progress.epochs['books']}>")
    hf.MemorySink.clear("handle")


def test_an_end_that_nobody_knows_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="until='now'"):
        hf.Topology("shop").submit(until="now")  # type: ignore[arg-type]
