"""In a real browser: a run is killed, recovers and parks, and the page says so by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from chromium import chromium
from faults import fired

import holdfast as hf
from holdfast.dashboard.server import Page
from holdfast.testing import run_local

PROGRAM = Path(__file__).with_name("page_program.py")
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


def start(here: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(PROGRAM), str(here)], stderr=subprocess.DEVNULL)


def test_the_page_says_by_itself_that_a_run_is_killed_recovers_and_parks(tmp_path: Path) -> None:
    page = Page(f"file:{tmp_path}/store", port=0)
    run = None
    try:
        with chromium(tmp_path / "profile") as browser:
            browser.open(page.url)
            browser.await_text("#state", "no run yet")
            run = start(tmp_path)
            browser.await_text("#state", "running")
            browser.await_text("[data-region=heart] tbody", "rows")
            assert "exactly-once" in browser.await_text("#sinks", "out")
            browser.await_text("#logs", "holds retention")
            browser.await_text("#logs", "written by beats_log")
            assert browser.ask("document.querySelectorAll('#graph [data-operator]').length") >= 4
            assert browser.ask("document.querySelectorAll('#graph rect.region').length") == 2

            browser.ask("document.querySelector('[data-region=heart] button[data-key]').click()")
            browser.await_text("[data-region=heart] .gantt", "upload, acknowledge")
            assert browser.ask("document.querySelectorAll('.gantt rect.upload').length") >= 1

            os.kill(run.pid, signal.SIGKILL)
            run.wait()
            fired("driver killed")
            browser.await_text("#state", "killed")
            assert browser.text("#figure-rows_per_s") == "0"
            browser.await_text("article[data-region=heart] h3", "over")

            run = start(tmp_path)
            browser.await_text("#state", "running")
            browser.await_text("#moments", "region 'heart' has its state of epoch")
            browser.await_text("article[data-region=heart]", "predicted")
            browser.await_text("article[data-region=heart]", "the run begins, or somebody resumed it")
            newest = browser.ask(
                "Number(document.querySelector('[data-region=heart] button[data-key]').textContent)"
            )
            browser.await_text("[data-region=heart] tbody", str(newest + 3))

            (tmp_path / "broken").touch()
            browser.await_text("#state", "parked")
            fired("parked")
            assert "is no number" in browser.text("#reasons")
            assert browser.ask("document.title").startswith("parked: beats")
            assert browser.ask("document.getElementById('evil') === null"), "what a run says is text"
            assert browser.ask("document.querySelectorAll('#timeline circle.mark-bad').length") >= 1
            browser.photograph(tmp_path / "wide.png", 1200, 900)
            browser.photograph(tmp_path / "narrow.png", 380, 800, dark=True)
            assert browser.ask("document.documentElement.scrollWidth") <= 380, (
                "nothing sticks out of a narrow screen"
            )
            assert browser.ask("getComputedStyle(document.body).backgroundColor") != "rgb(251, 251, 250)", (
                "dark"
            )
    finally:
        page.close()
        if run is not None:
            run.kill()
            run.wait()


def test_500_operators_are_shown_at_once_and_reached_by_the_keyboard(tmp_path: Path) -> None:
    wide = hf.Topology("wide")
    for chain in range(25):
        stream = wide.source(hf.Rows([(chain,)] * 5, "n long"), name=f"rows_{chain}")
        if chain % 2:
            stream = stream.consistent(name=f"region_{chain}", period=0.2)
        for step in range(18):
            stream = stream.map_arrow(lambda batch: batch, "n long", name=f"step_{chain}_{step}")
        stream.sink(hf.MemorySink(f"wide-{chain}"), name=f"out_{chain}")
    run_local(wide, store=f"file:{tmp_path}/store")
    page = Page(f"file:{tmp_path}/store", port=0)
    try:
        with chromium(tmp_path / "profile") as browser:
            browser.open(page.url)
            browser.await_text("#graph", "show all 500 operators")
            assert browser.ask("document.querySelectorAll('#graph [data-operator]').length") == 25
            for key in ("Tab", "Enter"):
                browser.press(key)
            assert browser.ask("document.querySelectorAll('#graph [data-operator]').length") == 500
            assert browser.ask("document.activeElement.dataset.key") == "whole", (
                "drawing anew keeps the focus"
            )
            placed = "[...document.querySelectorAll('#graph g rect')].map((each) => [each.x.baseVal.value, each.y.baseVal.value]).join()"
            before = browser.ask(placed)
            assert (
                browser.ask(
                    "(() => { const at = performance.now(); show(); return performance.now() - at; })()"
                )
                < 1000
            )
            assert browser.ask(placed) == before, "nothing moves"
    finally:
        page.close()
        for chain in range(25):
            hf.MemorySink.clear(f"wide-{chain}")
