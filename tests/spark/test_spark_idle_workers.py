"""Python workers that wait for the next step are killed, all of them, again and again: nobody notices. If the step comes before Spark has
noticed either, it gives the task to a dead worker, and the region resets."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from faults import fired
from numbered_lives import check, feed
from numbered_program import REGION, Paced, build

from holdfast.testing import processes

pytestmark = pytest.mark.spark


def workers() -> list[int]:
    """Of this process's own session, told by descent: this process, its JVM, the daemon, workers."""
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    found = [one for number in numbers if (one := processes.look(number)) is not None]
    jvms = {one.pid for one in found if one.parent == os.getpid() and "java" in one.command}
    daemons = {one.pid for one in found if one.parent in jvms and "pyspark" in one.command}
    return [one.pid for one in found if one.parent in daemons]


def killed(pids: list[int], noticed: bool) -> None:
    """`noticed`: by the daemon whose children they are."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while noticed and any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, "the daemon does not notice that workers end"
        time.sleep(0.005)


@pytest.mark.parametrize("noticed", [True, False])
@pytest.mark.fault("P02")
def test_idle_workers_that_are_killed_between_steps_change_nothing(
    noticed: bool, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next step is asked for where none is under way: all is in one element."""
    feed(tmp_path, 400)
    victims: set[int] = set()
    next_slice = Paced.next_slice

    def kill_and_go_on(source: Any) -> Any:
        if any((tmp_path / "store").glob("epochs/*/*.manifest")) and (noticed or len(victims) < 4):
            found = workers()
            killed(found, noticed)
            victims.update(found)
        return next_slice(source)

    monkeypatch.setattr(Paced, "next_slice", kill_and_go_on)
    made = build(tmp_path, pace_s=0.02)
    status = made.run(spark, store=f"file:{tmp_path}/store", until="available", partitions=2).as_dict()
    assert len(status["elements"]) == 1
    assert len(victims) >= 4, "there were hardly any idle workers"
    fired("an idle worker killed", len(victims))
    assert not noticed or status["regions"][REGION]["resets"] == 0
    check(tmp_path)
