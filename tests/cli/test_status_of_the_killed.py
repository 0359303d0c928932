"""`holdfast status` of a run that was killed: it does not say that it runs, and knows every published epoch."""

from __future__ import annotations

from pathlib import Path

from holdfast.cli.status.store_status import read_status
from holdfast.store.urls import open_store


def test_a_killed_run_is_not_called_running(tmp_path: Path) -> None:
    url = f"file:{tmp_path}/store"
    store = open_store(url)
    store.open("shop")
    store.acquire()
    store.append_events([("summary", {"state": "running", "regions": {"r": {"epoch": 0}}})])
    store.append_events([("epoch.published", {"region": "r", "epoch": 1})])
    store.release()
    found = read_status(url)
    assert not found["alive"]
    assert found["summary"]["state"].startswith("killed")
    assert found["summary"]["regions"]["r"]["epoch"] == 1
