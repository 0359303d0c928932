"""Failpoints: syntax, counting, and what each action does."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import failpoints
from holdfast.failpoints import FaultInjected, fp

REPOSITORY = Path(__file__).resolve().parents[1]
NAME = "step.begin"


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


def run_armed(text: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """A process that reaches the failpoint three times under the environment variable."""
    script = f"from holdfast.failpoints import fp\nfor i in range(3): print(i, fp({NAME!r}), flush=True)"
    return subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=30,
        env={**os.environ, failpoints.ENV: text, failpoints.ENV_LOG: str(tmp_path / "log")},
    )  # fmt: skip


def test_nothing_happens_when_nothing_is_armed() -> None:
    failpoints.disarm()
    assert [fp(NAME) for _ in range(3)] == [False] * 3
    assert failpoints.fired() == {}


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("drop", [True, False, False]),
        ("drop@2", [False, True, False]),
        ("drop@2+", [False, True, True]),
        ("log@3", [False, False, False]),
    ],
)
def test_a_fault_fires_at_the_hit_it_was_armed_for(text: str, results: list[bool]) -> None:
    failpoints.arm(f"{NAME}={text}")
    assert [fp(NAME) for _ in range(3)] == results
    assert fp("step.end") is False
    assert failpoints.fired() == {NAME: max(1, sum(results))}
    assert failpoints.disarm() == {NAME: max(1, sum(results))}
    assert fp(NAME) is False


def test_actions_raise_what_they_say() -> None:
    failpoints.arm(f"{NAME}=raise; step.end=eio@1 ;gc.list=enospc;gc.select=sleep:0.01;")
    with pytest.raises(FaultInjected, match=NAME):
        fp(NAME)
    for name, code in (("step.end", errno.EIO), ("gc.list", errno.ENOSPC)):
        with pytest.raises(OSError, match=name) as caught:
            fp(name)
        assert caught.value.errno == code
    began = time.monotonic()
    fp("gc.select")
    assert time.monotonic() - began >= 0.01


@pytest.mark.parametrize(
    "text",
    ["x", "step.begin", "step.begin=", "step.begin=explode", "nowhere=kill", "step.begin=kill@0", "step.begin=kill@x",
     "step.begin=sleep:long", "step.begin=kill@", "step.begin=kill;step.begin=raise"],
)  # fmt: skip
def test_a_wrong_text_is_refused_and_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not NAME=ACTION") as caught:
        failpoints.arm(text)
    assert text.split(";")[-1] in str(caught.value)


def test_an_unknown_name_is_refused_armed_or_not() -> None:
    for text in ("", f"{NAME}=log"):
        failpoints.arm(text)
        with pytest.raises(ValueError, match="not a known failpoint"):
            fp("no.such.place")


def test_names_are_unique() -> None:
    assert len(set(failpoints.NAMES)) == len(failpoints.NAMES)


@pytest.mark.parametrize(
    ("text", "code"), [("kill@2", -signal.SIGKILL), ("exit:3@2", 3), ("exit@2", 70), ("raise@2", 1)]
)
def test_the_environment_arms_other_processes(text: str, code: int, tmp_path: Path) -> None:
    done = run_armed(f"{NAME}={text}", tmp_path)
    assert done.returncode == code
    assert done.stdout == "0 False\n"
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert [line[:-1] for line in lines] == [
        [NAME],
        [NAME],
        [f"!{NAME}", text.partition("@")[0].partition(":")[0]],
    ]
    assert len({line[-1] for line in lines}) == 1


def test_stop_waits_for_somebody_to_go_on() -> None:
    pid = os.fork()
    if pid == 0:
        failpoints.arm(f"{NAME}=stop")
        fp(NAME)
        os._exit(7)
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    os.kill(pid, signal.SIGCONT)
    _, status = os.waitpid(pid, 0)
    assert os.WEXITSTATUS(status) == 7


def test_late_goes_on_when_another_thread_begins_to_store_a_part() -> None:
    failpoints.arm(f"{NAME}=late:30@1+")
    late = threading.Thread(target=fp, args=(NAME,))
    late.start()
    while not failpoints.fired()[NAME]:
        time.sleep(0.001)
    fp("step.end")
    late.join(0.2)
    assert late.is_alive(), "another failpoint does not let it go on"
    while late.is_alive():  # it may have fired and not wait yet
        fp("ckpt.op.serialize")
        late.join(0.01)


def test_late_waits_no_longer_than_it_is_told() -> None:
    failpoints.arm(f"{NAME}=late:0.01")
    assert fp(NAME) is False
    assert failpoints.fired() == {NAME: 1}


def test_what_can_be_dropped_is_known() -> None:
    """A failpoint whose caller ignores the answer would be dropped in vain."""
    asks = re.compile(r'(?:if|while|not|return|=) *(?:not )?fp\("([a-z_.]+)"\)')
    found = {
        name for path in (REPOSITORY / "holdfast").rglob("*.py") for name in asks.findall(path.read_text())
    }
    assert found == set(failpoints.MAY_DROP)
