"""Tables people look at: the live display of a run, a status, a store."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table

from holdfast.runtime.job import Job

REFRESH_S = 0.5


def show_status(status: Mapping[str, Any]) -> None:
    Console().print(status_tables(status))


def show_store(found: dict[str, Any]) -> None:
    """`holdfast status` for people."""
    console = Console()
    owner = found["owner"]
    if found["alive"]:
        line = f"{found['store']}: run {owner['token']} is alive (pid {owner['pid']} on {owner['host']})"
    else:
        line = f"{found['store']}: no run is alive"
    console.print(line, soft_wrap=True, markup=False)
    if found["summary"] is not None:
        console.print(status_tables(found["summary"]))
    table = Table("when", "event", "what", title="recent events", title_justify="left")
    for event in found["events"]:
        facts = {name: value for name, value in event.items() if name not in ("number", "wall", "kind")}
        what = ", ".join(f"{name}={value}" for name, value in facts.items() if value not in ("", None))
        table.add_row(time.strftime("%H:%M:%S", time.localtime(event["wall"])), event["kind"], what)
    console.print(table)


def status_tables(status: Mapping[str, Any]) -> Group:
    """Regions, elements and sinks with losses of one status."""
    regions = Table(
        Column("region", overflow="fold"), "phase", "epoch", "age", "last epoch", "late", "restore", "resets",
        "reason",
        title=f"{status['topology']}: {status['state']} ({status['uptime_s']} s)", title_justify="left",
    )  # fmt: skip
    for name, region in status["regions"].items():
        regions.add_row(
            name, region["phase"], str(region["epoch"]), _seconds(region["age_s"]),
            _millis(region["last_epoch_ms"]), str(region.get("epochs_late", 0)), _seconds(region.get("restore_next_s")),
            str(region["resets"]), region["reason"][:60],
        )  # fmt: skip
    name = Column("element", overflow="fold")
    elements = Table(name, "rows", "rows/s", "steps", "step", "failures", "lost rows", "waits for")
    for name, element in status["elements"].items():
        elements.add_row(
            name, f"{element['rows']:,}", f"{element['rows_per_s']:,}", str(element["steps"]),
            _millis(element["last_step_ms"]), str(element["failures"]), str(element["lost_rows"]), element["waiting"],
        )  # fmt: skip
    lost = {sink: rows for sink, rows in status.get("lost_rows", {}).items() if rows}
    sinks = Table(Column("sink", overflow="fold"), "rows lost in all runs")
    for sink, rows in lost.items():
        sinks.add_row(sink, f"{rows:,}")
    counted = [
        (operator, what, rows)
        for element in status["elements"].values()
        for operator, counts in element.get("counts", {}).items()
        for what, rows in counts.items()
    ]
    counts = Table(Column("operator", overflow="fold"), "what it counted", "since its beginning")
    for operator, what, rows in counted:
        counts.add_row(operator, what, f"{rows:,}")
    return Group(
        *[regions] * bool(status["regions"]), elements, *[counts] * bool(counted), *[sinks] * bool(lost)
    )


@contextlib.contextmanager
def follow(enabled: bool) -> Iterator[Callable[[Job], None]]:
    """A live display that begins when a job is handed to the yielded function."""
    ended = threading.Event()
    threads: list[threading.Thread] = []

    def watch(job: Job) -> None:
        with Live(status_tables(job.status()), console=Console(stderr=True), refresh_per_second=4) as live:
            while not ended.wait(REFRESH_S):
                live.update(status_tables(job.status()))

    def begin(job: Job) -> None:
        if enabled:
            threads.append(threading.Thread(target=watch, args=(job,), daemon=True))
            threads[0].start()

    try:
        yield begin
    finally:
        ended.set()
        for thread in threads:
            thread.join(5)


def _seconds(value: float | None) -> str:
    return "—" if value is None else f"{value:.1f} s"


def _millis(value: float | None) -> str:
    return "—" if value is None else f"{value:.0f} ms"
