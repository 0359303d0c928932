"""An epoch that takes long: `status`, the table and the log say who holds it up, on which connection, since when."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast as hf
from holdfast.cli.status.show import held_up
from holdfast.testing import MemorySink, Rows, submit_local


def store(shelf: str) -> str:
    return "memory:" + re.sub(r"\W", "_", shelf)


def wait(condition: Callable[[], Any], what: str) -> Any:
    patience = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < patience, f"waited 60 s for {what}"
        time.sleep(0.005)
    return found


class Stuck:
    """Works on a row until it is let go."""

    go_on = threading.Event()

    def process(self, row: Any, port: int) -> Any:
        if row.n == 25:
            Stuck.go_on.wait(60)
        return {"n": row.n}


@pytest.fixture
def stuck() -> Iterator[None]:
    Stuck.go_on.clear()
    yield
    Stuck.go_on.set()


def topology(shelf: str, mode: Any, **settings: Any) -> hf.Topology:
    made = hf.Topology("held")
    rows = made.source(Rows([(n,) for n in range(200)], "n long", rows_per_step=10), name="rows")
    rows = rows.consistent("r", mode=mode, trigger="manual", **settings)
    slow = rows.apply(Stuck, "n long", name="stuck")
    slow.isolate().sink(MemorySink(shelf), name="out")
    return made


@pytest.mark.parametrize("mode", ["async", "drain", "token"])
def test_the_slow_element_and_its_connection_are_named(mode: str, shelf: str, stuck: None) -> None:
    job = submit_local(topology(shelf, mode), store(shelf), until=None)
    try:
        wait(lambda: job.status()["elements"]["rows"]["rows"] == 200, "all rows to be sent")
        assert "under_way" not in job.status()["regions"]["r"]
        job.trigger_epoch()

        def named() -> Any:
            told = job.status()["regions"]["r"].get("under_way", {})
            found = {each["element"]: each for each in told.get("held_up_by", ())}
            return told if set(found) == {"stuck"} and told["seconds"] > 1.1 else None

        told = wait(named, "its name")
        (by,) = told["held_up_by"]
        assert by["seconds"] <= told["seconds"]
        if mode == "async":
            assert by["what"].startswith("it has not begun")
        else:
            assert by["connections"] == ["rows.0--stuck"]
            assert re.match(r"it works on \d+ rows ahead of the marker", by["what"])
        status = job.status()["regions"]["r"]
        assert (status["mode"], status["trigger"], status["epoch"]) == (mode, "manual", 0)
        lines = held_up(status)
        assert lines[0].startswith("epoch 1 has been under way for")
        assert lines[1].startswith("  held up by stuck: ")
        Stuck.go_on.set()
        wait(lambda: job.status()["regions"]["r"]["epoch"] == 1, "the epoch")
        assert "under_way" not in job.status()["regions"]["r"]
    finally:
        Stuck.go_on.set()
        job.close()


@pytest.mark.fault("R01")
def test_the_log_says_it_when_an_epoch_is_overdue_and_so_does_the_reason_when_it_is_given_up(
    shelf: str, stuck: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    made = topology(shelf, "drain", drain_timeout=0.4, max_consecutive_resets=50)
    job = submit_local(made, store(shelf), until=None)
    try:
        wait(lambda: job.status()["elements"]["rows"]["rows"] == 200, "all rows to be sent")
        job.trigger_epoch()
        wait(lambda: job.status()["regions"]["r"]["reason"], "the end of patience")
    finally:
        Stuck.go_on.set()
        job.close()
    said = [record.getMessage() for record in caplog.records]
    assert any(
        "establishing epoch 1 for" in line and "held up by stuck: it works on" in line for line in said
    )
    assert any("gives epoch 1 up: epoch 1 timed out; stuck: it works on" in line for line in said)
