"""`holdfast chaos` as people call it: exit codes, JSON, tables that fit, and nothing left behind."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import faults as told_faults
import pytest
from rich.console import Console

from holdfast.cli.ordeal.table import show
from holdfast.testing import processes

GOOD = """
import holdfast as hf

shop = hf.Topology("shop")
orders = shop.source(hf.Files("orders", format="json", schema="id long, customer string, cents long"), name="orders")
orders = orders.consistent(name="shop", period=2)
orders.sink(hf.FileSink("out", format="json"), name="out")
spent = orders.aggregate("customer", n=hf.count(), spent=hf.sum("cents"), name="spent")
spent.sink(hf.FileSink("spent"), name="spent_out")
"""
BAD = """
import holdfast as hf


class Numbered:
    def __init__(self):
        self._seen = 0

    def process(self, row, port):
        self._seen += 1
        yield (row.id, self._seen)


shop = hf.Topology("shop")
orders = shop.source(hf.Files("orders", format="json", schema="id long, customer string, cents long"), name="orders")
orders.consistent(name="shop").apply(Numbered, "id long, n long", name="numbered").sink(hf.FileSink("out"), name="out")
"""
LIVE = """
import holdfast as hf

shop = hf.Topology("shop")
lines = shop.source(hf.UdpLines({port}, host="127.0.0.1"), name="lines").preserve("logs/lines").consistent("r")
lines.sink(hf.FileSink("out"), name="out")
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "orders").mkdir(parents=True)
    (home / "out").mkdir()
    (home / "out" / "mine.csv").write_text("keep me\n")
    (tmp_path / "tmp").mkdir()
    rows = [{"id": n, "customer": f"c{n % 5}", "cents": n} for n in range(900)]
    for file in range(3):
        lines = "".join(json.dumps(row) + "\n" for row in rows[file * 300 : file * 300 + 300])
        (home / "orders" / f"{file}.json").write_text(lines)
    return home


def begin(home: Path, program: str, *options: str) -> tuple[subprocess.Popen[str], str]:
    """The command in a process of its own, with a temporary directory of its own, and a tag on all that it starts."""
    (home / "shop.py").write_text(program)
    tag = processes.new_tag("chaos-command")
    environment = {
        **os.environ,
        "TMPDIR": str(home.parent / "tmp"),
        "HOLDFAST_TEST_TAG": tag,
        "COLUMNS": "80",
    }
    command = [str(Path(sys.executable).with_name("holdfast")), "chaos", "shop.py", "--local", *options]
    process = subprocess.Popen(
        command, cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    return process, tag


def chaos(home: Path, program: str, *options: str) -> tuple[int, str, str]:
    process, tag = begin(home, program, *options)
    out, err = process.communicate(timeout=300)
    nothing_is_left(home, tag)
    return process.returncode, out, err


def nothing_is_left(home: Path, tag: str) -> None:
    deadline = time.monotonic() + 10
    while (left := running(tag)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    assert list((home.parent / "tmp").iterdir()) == []
    assert [path.name for path in (home / "out").iterdir()] == ["mine.csv"]


def running(tag: str) -> list[int]:
    wanted, found = f"HOLDFAST_TEST_TAG={tag}".encode(), []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_a_good_program_ends_with_0_and_its_own_places_are_untouched(home: Path) -> None:
    code, out, err = chaos(
        home, GOOD, "--kills", "2", "--faults", "driver,disk", "--seed", "3", "--json", "-"
    )
    found = json.loads(out)
    assert (code, found["verdict"], found["exit_code"]) == (0, "kept", 0), err
    assert [each["fault"] for each in found["schedule"]] == [each["fault"] for each in found["faults"]]
    assert any(each["fired"] and each["in_middle"] for each in found["faults"])
    assert {each["sink"]: each["compared"] for each in found["sinks"]} == {
        "out": "rows",
        "spent_out": "last row per customer",
    }
    assert not (home / "spent").exists()
    told_faults.fired("fault in a trial", len(found["faults"]))


def test_a_broken_promise_ends_with_1_and_a_table_that_fits_a_terminal(home: Path) -> None:
    code, out, _ = chaos(home, BAD, "--kills", "2", "--faults", "driver", "--seed", "8", "--store", "kept")
    assert code == 1
    assert "a promise was broken; the same schedule again: --seed 8" in out
    assert max(map(len, out.splitlines())) <= 80
    assert (home / "kept" / "faulty" / "store").is_dir()


def test_where_no_fault_can_fire_nothing_was_shown(home: Path) -> None:
    plain = GOOD.replace('.consistent(name="shop", period=2)', "")
    code, out, _ = chaos(home, plain, "--kills", "1", "--faults", "store", "--json", "-")
    assert (code, json.loads(out)["verdict"]) == (20, "not judged")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_trial_leaves_nothing_behind(home: Path, number: int) -> None:
    process, tag = begin(home, GOOD, "--kills", "4", "--seed", "1")
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("fault 1"):
            break
    assert len(running(tag)) == 2
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 130
    nothing_is_left(home, tag)


def test_a_killed_trial_leaves_no_process_behind(home: Path) -> None:
    process, tag = begin(home, GOOD, "--kills", "4", "--seed", "1")
    assert process.stderr is not None
    next(line for line in process.stderr if line.startswith("fault 1"))
    process.kill()
    process.communicate(timeout=60)
    deadline = time.monotonic() + 10
    while running(tag) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running(tag) == []


def test_a_live_input_is_recorded_once_and_used_for_both_runs(home: Path) -> None:
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ("--kills", "1", "--faults", "driver", "--record", "4", "--json", "-")
    process, tag = begin(home, LIVE.format(port=port), *options)
    number = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        while process.poll() is None:
            sender.sendto(f"line {number}\n".encode(), ("127.0.0.1", port))
            number += 1
            time.sleep(0.005)
    out, err = process.communicate()
    assert process.returncode == 0, err + out
    assert json.loads(out)["sinks"][0]["rows"] > 10
    assert not (home / "logs").exists()
    nothing_is_left(home, tag)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--faults", "worker"), "there is no worker to kill without Spark"),
        (("--faults", "goblin"), "there is no fault 'goblin'"),
        (("--store", "redis://x"), "need a directory"),
    ],
)
def test_what_cannot_be_meant_is_refused(home: Path, options: tuple[str, ...], said: str) -> None:
    code, _, err = chaos(home, GOOD, *options)
    assert code == 3
    assert said in " ".join(err.split())


def test_a_program_that_needs_spark_says_so_without_it(home: Path) -> None:
    code, _, err = chaos(home, GOOD.replace("orders.sink(", 'orders.filter("cents > 0").sink('), "--local")
    assert code == 3
    assert "'filter_1' is made of Spark expressions. next: Leave --local out." in " ".join(err.split())


def test_long_names_fit_80_columns() -> None:
    fault = {
        "fault": "executor", "how": "SIGKILL to idle pid 1234567", "at_s": 1234.5, "share": 0.5, "epoch": 12345,
        "place": "ckpt.manifest.tmp_written", "in_middle": False, "effect": "run ended (EngineGoneError), started again",
    }  # fmt: skip
    sink = {
        "sink": "a_sink_with_a_name", "guarantee": "exactly-once for single failures", "compared": "rows", "rows": 10**6,
        "missing": 10**5, "counted": 10**5, "doubled": 10**5, "wrong": 10**5, "verdict": "not judged", "first": "",
    }  # fmt: skip
    result: dict[str, Any] = {
        "topology": "shop", "input_rows": 1, "golden_s": 1.0, "faulty_s": 2.0, "faults": [fault], "sinks": [sink],
        "failure": "", "not_judged": [], "verdict": "not judged", "seed": 1,
    }  # fmt: skip
    console = Console(width=80, record=True, file=io.StringIO())
    show(result, console)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "100,000" in text
    assert "ckpt.manifest.tmp_written" in text
