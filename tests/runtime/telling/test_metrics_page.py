"""Metrics of a run: their names, that they say what the status says, and that Prometheus itself can read them."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import holdfast as hf
from holdfast.errors import ConfigError
from holdfast.runtime.job import Job, job_of
from holdfast.runtime.telling.metrics_page import address_of, check_address
from holdfast.testing import arm, disarm
from holdfast.testing.local import submit_local

NAMES = {
    "holdfast_epoch_duration_seconds", "holdfast_epoch_bytes", "holdfast_epochs", "holdfast_last_epoch",
    "holdfast_last_epoch_timestamp_seconds", "holdfast_pause_seconds", "holdfast_restore_seconds", "holdfast_resets",
    "holdfast_rows", "holdfast_rows_lost", "holdfast_source_lag_rows", "holdfast_source_lag_seconds",
    "holdfast_sink_pending_epochs", "holdfast_log_bytes", "holdfast_log_consumer_lag_rows",
}  # fmt: skip


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """Runs on after a reset, with all its rows processed and at least one epoch."""
    topology = hf.Topology("shop")
    rows = [(n % 3, datetime.fromtimestamp(n, UTC)) for n in range(90)]
    source = topology.source(hf.Rows(rows, "k int, at timestamp", rows_per_step=10), name="rows")
    timed = source.consistent("books", period=0.05).persist("kept").event_time("at", delay="2 seconds")
    timed.aggregate("k", window=hf.tumbling("10 seconds"), n=hf.count(), name="counts").sink(
        hf.MemorySink("metrics"), name="out"
    )
    arm("step.end=raise@3")
    run = submit_local(topology, f"file:{tmp_path}/store", metrics="127.0.0.1:0")
    try:
        deadline = time.monotonic() + 60
        while not (_settled(run)):
            assert time.monotonic() < deadline, run.status()
            time.sleep(0.05)
        yield job_of(run)
    finally:
        disarm()
        run.stop()
        hf.MemorySink.clear("metrics")


def _settled(run: hf.Run) -> bool:
    told = run.status()
    done = sum(element.rows for element in told.elements.values()) >= 180
    seen = told.progress.eventTime.get("watermark") == "1970-01-01T00:01:27.000Z"
    done = done and seen and all(source.metrics.get("lag_rows") == 0 for source in told.progress.sources)
    return done and told.regions["books"].resets == 1 and told.regions["books"].epochs_published > 0


def scraped(job: Job) -> dict[str, Any]:
    assert job.watchers.page is not None
    with urllib.request.urlopen(f"http://127.0.0.1:{job.watchers.page.port}/metrics") as answer:
        text = answer.read().decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(families) >= NAMES, NAMES - set(families)
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families.values()
        for sample in family.samples
    }


def test_what_is_scraped_is_what_the_status_says(job: Job) -> None:
    found = scraped(job)
    told = job.status().as_dict()  # later: what grows may have grown
    books = told["regions"]["books"]
    assert (
        found[
            "holdfast_resets_total", *_of(region="books", reason=f"element {next(iter(books['resets_of']))}")
        ]
        == 1
    )
    assert (
        0
        < found["holdfast_epochs_total", *_of(region="books", outcome="published")]
        <= books["epochs_published"]
    )
    assert 0 < found["holdfast_last_epoch", ("region", "books")] <= books["epoch"]
    assert (
        found["holdfast_epoch_duration_seconds_count", ("region", "books")]
        == found["holdfast_epochs_total", *_of(region="books", outcome="published")]
    )
    assert found["holdfast_run_state", ("state", "running")] == 1
    assert found["holdfast_source_lag_rows", ("source", "rows")] == 0
    assert found["holdfast_watermark_timestamp_seconds", ("operator", "counts")] == 87.0
    assert found["holdfast_state_bytes", ("operator", "counts")] > 0
    for name, element in told["elements"].items():
        assert found["holdfast_rows_total", *_of(element=name, port="in")] == element["rows"]
    assert found["holdfast_log_bytes", ("log", "kept")] > 0
    assert found["holdfast_sink_pending_epochs", ("sink", "out")] in (0, 1)


def _of(**labels: str) -> Any:
    return tuple(sorted(labels.items()))


def test_the_page_is_gone_with_the_run(job: Job) -> None:
    page = job.watchers.page
    assert page is not None
    with pytest.raises(ConfigError, match="Address already in use"):
        check_address(f"127.0.0.1:{page.port}")
    job.stop()
    check_address(f"127.0.0.1:{page.port}")


@pytest.mark.parametrize(
    "text", ["", "here", "127.0.0.1", "127.0.0.1:99999", "nowhere.example:9464", "1.2.3:80"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        address_of(text)
    assert address_of("9464") == ("127.0.0.1", 9464)
    assert address_of("[::1]:9464") == ("::1", 9464)


@pytest.mark.chaos
def test_prometheus_scrapes_a_run(job: Job, tmp_path: Path) -> None:
    program = shutil.which("prometheus")
    assert program is not None, "prometheus is missing: apt-get install prometheus"
    assert job.watchers.page is not None
    target = f"127.0.0.1:{job.watchers.page.port}"
    with urllib.request.urlopen(f"http://{target}/metrics") as answer:
        checked = subprocess.run(["promtool", "check", "metrics"], input=answer.read(), capture_output=True)
    assert checked.returncode in (0, 3), checked.stderr  # 3: remarks about style only
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: holdfast, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    server = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
    try:
        query = f"http://127.0.0.1:{port}/api/v1/query?query="
        deadline = time.monotonic() + 60
        while not (rows := _asked(query + "sum(holdfast_rows_total)")):
            assert time.monotonic() < deadline, "nothing was scraped"
            time.sleep(0.3)
        told = job.status().as_dict()
        assert float(rows[0]["value"][1]) == sum(
            element["rows"] + sum(element["sink_rows"].values()) for element in told["elements"].values()
        )
        resets = _asked(query + "holdfast_resets_total")
        assert [float(each["value"][1]) for each in resets] == [told["regions"]["books"]["resets"]] == [1]
        quantile = _asked(query + "histogram_quantile(0.9,holdfast_epoch_duration_seconds_bucket)")
        assert 0 < float(quantile[0]["value"][1]) < 300
    finally:
        server.terminate()
        server.wait(20)


def _asked(url: str) -> list[dict[str, Any]]:
    try:
        with urllib.request.urlopen(url) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return found
    except OSError:
        return []


def test_an_address_of_another_machine_is_not_blamed_on_the_port() -> None:
    with pytest.raises(ConfigError, match="cannot be shown") as refused:
        check_address("192.0.2.1:9464")
    assert "address of this machine" in str(refused.value.cure)
