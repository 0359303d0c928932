"""The examples over real data give the published or reference results, without failures and after a kill -9."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from app_data import APPS, DATA, WITHOUT_DATA, App, check_words, count_words, mails, place

from holdfast.cli.load import load_topology
from holdfast.ids import RegionName
from holdfast.store.urls import open_store
from holdfast.testing import processes

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(app.data.is_dir() for app in APPS.values()) or not DATA.is_dir(), reason=WITHOUT_DATA
    ),
]

EACH = pytest.mark.parametrize("app", APPS.values(), ids=APPS)
PROGRAM = Path(__file__).with_name("killed_program.py")
SEED = 7


def run_to_the_end(app: App, here: Path, spark: Any) -> dict[str, Any]:
    status: dict[str, Any] = app.build(here).run(
        spark, store=str(here / "store"), until="available", close=True
    )
    assert status["regions"][app.region]["resets"] == 0
    return status


@pytest.mark.sampled(keep=1)  # all of them come to their end after a kill, too
@EACH
def test_without_failures_the_result_is_the_reference(app: App, tmp_path: Path, spark: Any) -> None:
    here = place(tmp_path, app)
    run_to_the_end(app, here, spark)
    app.check(here, True)


@EACH
def test_every_example_promises_exactly_once(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    monkeypatch.setenv(app.name.upper(), str(place(tmp_path, app)))
    topology = load_topology(str(app.file))
    sinks = topology.explain(spark=spark).partition("\nsinks\n")[2]
    assert "exactly-once" in sinks
    assert "at-least-once" not in sinks
    assert "best effort" not in sinks


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of all applications after the driver that ran them together was killed."""
    directory = tmp_path_factory.mktemp("killed")
    for app in APPS.values():
        place(directory, app)
    tag = processes.new_tag("apps")
    seconds = random.Random(SEED).uniform(0.2, 1.0)
    command = [sys.executable, str(PROGRAM), str(directory), str(seconds)]
    environment = {**os.environ, processes.TAG: tag}
    with (directory / "log").open("w") as log:
        driver = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            assert driver.wait(240) == -9, (directory / "log").read_text()[-3000:]
            assert processes.left_after(tag, 30) == [], "its JVM and workers notice and end"
        finally:
            processes.kill_all(tag)
            driver.wait()
    return directory


@pytest.mark.sampled(keep=2)
@EACH
def test_after_a_kill_in_the_middle_the_result_is_the_reference(app: App, killed: Path, spark: Any) -> None:
    here = killed / app.name
    app.check(here, False)
    epochs = open_store(f"file:{here / 'store'}").epochs(RegionName(app.region))
    assert epochs, "a kill before the first epoch proves little"
    run_to_the_end(app, here, spark)
    begun = [e for e in open_store(f"file:{here / 'store'}").events() if e.kind == "reset.begin"]
    assert begun[-1].data["epoch"] >= max(epochs)
    app.check(here, True)


def test_words_of_3000_files_are_those_a_plain_loop_counts(tmp_path: Path, spark: Any) -> None:
    app, here = APPS["mails"], tmp_path
    (here / "in").mkdir()
    for name, content in mails():
        (here / "in" / name).write_bytes(content)
    run_to_the_end(app, here, spark)
    check_words(count_words(here / "in"), here, True)
