"""Metrics of a run for Prometheus: names and figures from its status, and the page where they are found.

Labels come from the graph only: as many series as it has regions, elements, operators, sources and sinks.
"""

from __future__ import annotations

import errno
import ipaddress
import math
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from wsgiref.simple_server import WSGIServer

from holdfast.errors import ConfigError
from holdfast.operators.shared.timed import TIMELESS

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector

    IS_INSTALLED = True
except ImportError:  # the extra "metrics" is not installed
    IS_INSTALLED = False
    Collector = object  # type: ignore[assignment, misc]

Plain = Mapping[str, Any]
STATES = ("running", "stopping", "parked", "failed", "ended")
LEFT_OUT = ("late", TIMELESS, "malformed", "errors", "dropped")


def families(status: Plain) -> Iterator[Metric]:
    """Every metric of a status as plain data. Pure."""
    state = GaugeMetricFamily("holdfast_run_state", "1 for the state that the run is in.", labels=["state"])
    for name in STATES:
        state.add_metric([name], float(status["state"] == name))
    yield state
    yield GaugeMetricFamily("holdfast_uptime_seconds", "Since the run began.", status["uptime_s"])
    yield from _of_regions(status["regions"])
    yield from _of_elements(status["elements"])
    lost = CounterMetricFamily("holdfast_rows_lost", "Rows that a sink lacks, in all runs.", labels=["sink"])
    for sink, rows in status["lost_rows"].items():
        lost.add_metric([sink], rows)
    yield lost
    yield from _of_logs(status.get("logs", {}))


def _of_regions(regions: Mapping[str, Plain]) -> Iterator[Metric]:
    took = HistogramMetricFamily(
        "holdfast_epoch_duration_seconds",
        "From the begin of an epoch until it is published.",
        labels=["region"],
    )
    size = _gauge(
        "holdfast_epoch_bytes",
        "Of the newest epoch of this run: what it added, and all of it.",
        "region",
        "kind",
    )
    epochs = _counter("holdfast_epochs", "Epochs of this run.", "region", "outcome")
    resets = _counter("holdfast_resets", "Resets, by what failed.", "region", "reason")
    restore = _gauge("holdfast_restore_seconds", "Of the last restore, and as predicted.", "region", "kind")
    plain = {
        what: _gauge(f"holdfast_{name}", text, "region")
        for what, (name, text) in {
            "epoch": ("last_epoch", "The newest published epoch."),
            "published_wall": ("last_epoch_timestamp_seconds", "When the newest epoch was published."),
            "parked": ("region_parked", "1 if it waits for a person."),
            "idle": ("region_idle", "1 if nothing is new since the newest epoch: none is overdue."),
        }.items()
    }
    pause = _gauge(
        "holdfast_pause_seconds", "The longest time an epoch kept an element from its work.", "region"
    )
    pending = _gauge(
        "holdfast_sink_pending_epochs", "Published epochs whose output is not visible yet.", "sink"
    )
    slow = _counter("holdfast_epochs_slow", "Epochs that took longer than the period.", "region")
    replayed = _counter("holdfast_rows_replayed", "Rows that were read again after resets.", "region")
    for name, region in regions.items():
        within = [(le, n) for le, n in region["epochs_within"].items()]
        took.add_metric([name], [*within, ("+Inf", region["epochs_published"])], region["epochs_s"])
        for kind, value in region["last_bytes"].items():
            _add(size, [name, kind], value)
        epochs.add_metric([name, "published"], region["epochs_published"])
        epochs.add_metric([name, "aborted"], region["epochs_aborted"])
        for element, count in region["resets_of"].items():
            resets.add_metric([name, f"element {element}" if element else "region"], count)
        for what in ("epoch", "published_wall"):
            _add(plain[what], [name], region[what])
        plain["parked"].add_metric([name], float(region["phase"] == "parked"))
        plain["idle"].add_metric([name], float(region.get("idle_since") is not None))
        _add(restore, [name, "real"], region.get("restore_s"))
        _add(restore, [name, "predicted"], region.get("restore_next_s"))
        pause.add_metric([name], region["longest_pause_ms"] / 1000)
        slow.add_metric([name], region["epochs_slow"])
        replayed.add_metric([name], region["rows_replayed"])
        for sink in region.get("sinks", ()):
            pending.add_metric([sink], float(region["epoch"] > region["visible"]))
    yield from (took, size, epochs, resets, restore, *plain.values(), pause, slow, replayed, pending)


def _of_elements(elements: Mapping[str, Plain]) -> Iterator[Metric]:
    rows = _counter(
        "holdfast_rows",
        "Rows taken in (port in) by an element, and written by its sinks (the sink).",
        "element",
        "port",
    )
    given = _counter("holdfast_source_rows", "Rows taken from a source.", "source")
    failures = _counter("holdfast_element_failures", "Failed steps.", "element")
    busy = _counter("holdfast_steps", "Steps.", "element")
    lost = _counter(
        "holdfast_element_rows_lost", "Rows that it cannot prove processed, in all runs.", "element"
    )
    left_out = _counter(
        "holdfast_rows_left_out", "Rows not where they belong, in all runs.", "operator", "reason"
    )
    lags = {
        what: _gauge(f"holdfast_source_lag_{unit}", "What waits in a source.", "source")
        for what, unit in (("lag_rows", "rows"), ("lag_bytes", "bytes"), ("lag_s", "seconds"))
    }
    state = {
        "bytes": _gauge("holdfast_state_bytes", "State of an operator.", "operator"),
        "rows": _gauge(
            "holdfast_state_rows",
            "Rows of an operator's state, each once; of many to within a few in a hundred.",
            "operator",
        ),
        "watermark": _gauge(
            "holdfast_watermark_timestamp_seconds", "Event time has come so far.", "operator"
        ),
    }
    for name, element in elements.items():
        rows.add_metric([name, "in"], element["rows"])
        for sink, written in element["sink_rows"].items():
            rows.add_metric([name, sink], written)
        failures.add_metric([name], element["failures"])
        busy.add_metric([name], element["steps"])
        lost.add_metric([name], element["lost_rows"])
        for operator, counts in element["counts"].items():
            for reason in LEFT_OUT:
                if reason in counts:
                    left_out.add_metric([operator, reason], counts[reason])
        for source, lag in element["sources"].items():
            given.add_metric([source], lag.get("rows", 0))
            for what, family in lags.items():
                _add(family, [source], lag.get(what))
        for operator, of in element["state"].items():
            for what, family in state.items():
                _add(family, [operator], of.get(what))
    yield from (rows, given, failures, busy, lost, left_out, *lags.values(), *state.values())


def _of_logs(logs: Mapping[str, Plain]) -> Iterator[Metric]:
    held = _gauge("holdfast_log_rows", "Rows that a log holds.", "log")
    size = _gauge("holdfast_log_bytes", "Bytes of a log.", "log")
    lag = _gauge("holdfast_log_consumer_lag_rows", "Rows in a log behind what holds them.", "log", "consumer")
    for name, log in logs.items():
        _add(held, [name], log.get("rows"))
        _add(size, [name], log.get("bytes"))
        for consumer, at in log.get("held_by", {}).items():
            _add(lag, [name, consumer], log["end"] - at if "end" in log else None)
    yield from (held, size, lag)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=list(labels))


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, labels=list(labels))


def _add(family: GaugeMetricFamily, labels: list[str], value: float | None) -> None:
    """What is not known has no series."""
    if value is not None and math.isfinite(value):
        family.add_metric(labels, value)


class _Scraped(Collector):
    def __init__(self, status: Callable[[], Plain | None]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        return iter(()) if status is None else families(plain_of(status))


def plain_of(status: Plain) -> Plain:
    """A status that a run gives, as plain data."""
    as_dict = getattr(status, "as_dict", None)
    return status if as_dict is None else as_dict()


class MetricsPage:
    """Where Prometheus finds the metrics of one run: http://ADDRESS/metrics, until it is closed."""

    def __init__(self, address: str, status: Callable[[], Plain | None]) -> None:
        host, port = address_of(address)
        registry = CollectorRegistry()
        registry.register(_Scraped(status))
        self._server: WSGIServer
        self._thread: threading.Thread
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise _taken(address, error) from error
        self.port: int = self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def address_of(text: str) -> tuple[str, int]:
    """HOST:PORT, or PORT on this machine. ConfigError if it is neither, or if metrics cannot be shown at all."""
    if not IS_INSTALLED:
        raise ConfigError(
            "metrics need prometheus_client.", cure='Install it: pip install "holdfast[metrics]".'
        )
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdecimal() or int(port) >= 1 << 16:
        raise ConfigError(f"{text!r} is no address for metrics.", cure="Write 127.0.0.1:9464.")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if host != "localhost":
            raise ConfigError(
                f"{host!r} is no address of this machine.", cure="Write 127.0.0.1:9464, or 0.0.0.0:9464."
            ) from None
    return host, int(port)


def check_address(text: str) -> None:
    """ConfigError if metrics could not be shown there now."""
    host, port = address_of(text)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise _taken(text, error) from error


def _taken(address: str, error: OSError) -> ConfigError:
    is_elsewhere = error.errno == errno.EADDRNOTAVAIL
    return ConfigError(
        f"metrics cannot be shown at {address}: {error.strerror or error}.",
        cure="Give an address of this machine, or 0.0.0.0 for all."
        if is_elsewhere
        else "Give another port, or end who uses it.",
    )
