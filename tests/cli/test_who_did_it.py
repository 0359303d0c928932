"""The event log says who ran, and who asked the run for something: user, host, process."""

from __future__ import annotations

import getpass
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.cli.main import run_command
from holdfast.store.urls import open_store
from holdfast.testing import MemorySink, Rows, submit_local


@pytest.mark.fault("SR20")
def test_who_ran_and_who_stopped_is_in_the_event_log(tmp_path: Path) -> None:
    made = hf.Topology("signed")
    rows = made.source(Rows([(n,) for n in range(5)], "n long"), name="rows").consistent("r", period=0.05)
    rows.sink(MemorySink("signed"), name="out")
    url = f"file:{tmp_path}/store"
    job: Any = submit_local(made, url, until=None)
    asked = threading.Thread(target=lambda: run_command(["stop", url]))
    asked.start()
    assert job.await_termination(timeout=30)
    asked.join()
    job.close()
    events = {event.kind: dict(event.data) for event in open_store(url).events()}
    for kind in ("run.started", "mail"):
        assert events[kind]["by"].startswith(f"{getpass.getuser()}@")
        assert str(os.getpid()) in events[kind]["by"]
    MemorySink.clear("signed")
