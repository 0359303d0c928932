"""Tables people look at: the live display of a run, a status, a store."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from holdfast.cli import terminal
from holdfast.cli.status.sizes import shown_bytes, timing_lines
from holdfast.language.progress import utc
from holdfast.runtime.job import Job
from holdfast.runtime.metrics import costs, left_out
from holdfast.runtime.telling.events import RunEvent, TopologyChanged
from holdfast.runtime.telling.run_log import line_of
from holdfast.runtime.telling.stored_events import decode

REFRESH_S = 0.5
HELD_UP_S = 1.0
"""Who holds up an epoch is told when it has been under way for so long."""


def show_status(status: Mapping[str, Any]) -> None:
    """The end of a run: tables, and a warning if rows are not where they belong."""
    console = terminal.console()
    console.print(status_tables(status))
    if cost := costs(status):
        console.print(f"warning: rows were left out: {', '.join(cost)}", style="yellow", markup=False)


def show_store(found: dict[str, Any]) -> None:
    """`holdfast status` for people."""
    console = terminal.console()
    owner = found["owner"]
    if found["alive"]:
        line = f"{found['store']}: run {owner['token']} is alive (pid {owner['pid']} on {owner['host']})"
    else:
        line = f"{found['store']}: no run is alive"
    console.print(line, soft_wrap=True, markup=False)
    if found["summary"] is not None:
        console.print(_known(found["summary"]))
    table = Table("when", "event", "what", title="recent events", title_justify="left")
    for event in found["events"]:
        at = time.strftime("%H:%M:%S", time.localtime(event["wall"]))
        table.add_row(at, event["kind"], Text(_what(event)))
    console.print(table)


def _what(event: Mapping[str, Any]) -> str:
    """An event of a store in words; one that nobody here knows as it is."""
    facts = {name: value for name, value in event.items() if name not in ("number", "wall", "kind")}
    known = decode(event["kind"], facts)
    with contextlib.suppress(TypeError, ValueError, AttributeError):  # what a store holds may be anything
        if isinstance(known, RunEvent) and (line := line_of(known)) is not None:
            return line[1] % line[2]
    return ", ".join(f"{name}={value}" for name, value in facts.items() if value not in ("", None))


def _known(summary: Mapping[str, Any]) -> Group | Text:
    """The tables of a summary that lies in a store: anybody who may write there can have written anything."""
    try:
        return status_tables(summary)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return Text(f"the run's own summary cannot be read: {type(error).__name__}: {error}")


def status_tables(status: Mapping[str, Any]) -> Group:
    """Regions, elements, and rows that were left out, of one status."""
    regions = _table(
        "region", "mode", "phase", "epoch", "age", "took", "slow", "restore", "resets",
        title=f"{status['topology']}: {status['state']} ({status['uptime_s']} s)",
    )  # fmt: skip
    said = list(status.get("program_changed", ()))
    for name, region in status["regions"].items():
        regions.add_row(
            name, _mode(region), _phase(region), str(region["epoch"]), _seconds(region["age_s"]),
            _millis(region["last_epoch_ms"]), str(region.get("epochs_slow", 0)), _seconds(region.get("restore_next_s")),
            str(region["resets"]),
        )  # fmt: skip
        said += [f"region {name}: {region['reason']}"] if region["reason"] else []
        said += [f"region {name}: {idle}"] if (idle := idle_line(region)) else []
        said += [f"region {name}: {sentence}" for sentence in held_up(region)]
        said += [f"region {name}: {sentence}" for sentence in (*_changes(region), *timing_lines(region))]
    elements = _table("element", "rows", "rows/s", "steps", "step", "failures", "waits for")
    for name, element in status["elements"].items():
        elements.add_row(
            name, f"{element['rows']:,}", f"{element['rows_per_s']:,}", str(element["steps"]),
            _millis(element["last_step_ms"]), str(element["failures"]), element["waiting"],
        )  # fmt: skip
    counted, tables = left_out(status), _seen(status["elements"])
    rows = _table("rows left out by", "why", "rows")
    for name, why, count in counted:
        rows.add_row(name, why, f"{count:,}")
    for name, budget in status.get("loss_budgets", {}).items():
        said.append(f"loss budget of {name}: {_budget(budget)}")
    said += [f"log of {name}: {_log(log)}" for name, log in status.get("logs", {}).items()]
    return Group(
        *[regions] * bool(status["regions"]), *map(Text, said), elements, *tables, *[rows] * bool(counted)
    )


def _seen(elements: Mapping[str, Any]) -> list[Table]:
    """What waits in sources, the state of operators, and what sinks got in this run, if there are such."""
    sources = _table("source", "rows", "rows/s", "waiting", "bytes", "since", "event time")
    state = _table("operator", "state", "rows", "watermark")
    sinks = _table("sink", "rows")
    latest: dict[str, float] = {}
    for of in (of for element in elements.values() for of in element.get("state", {}).values()):
        for name, time_s in of.get("event_times", {}).items():
            latest[name] = max(time_s, latest.get(name, time_s))
    for element in elements.values():
        for name, lag in element.get("sources", {}).items():
            rows, size = lag.get("lag_rows"), lag.get("lag_bytes")
            told = ("—" if rows is None else f"{rows:,}", "—" if size is None else shown_bytes(size))
            given = (f"{lag.get('rows', element['rows']):,}", f"{lag.get('rows_per_s', 0):,}")
            sources.add_row(name, *given, *told, _seconds(lag.get("lag_s")), _moment(latest.get(name)))
        for name, of in element.get("state", {}).items():
            rows = of.get("rows")
            mark = "the end" if of.get("closed") else _moment(of.get("watermark"))
            state.add_row(name, shown_bytes(of["bytes"]), "—" if rows is None else f"{rows:,}", mark)
        for name, rows in element.get("sink_rows", {}).items():
            sinks.add_row(name, f"{rows:,}")
    return [table for table in (sources, state, sinks) if table.row_count]


def _moment(seconds: float | None) -> str:
    """An event time, to the second."""
    return "—" if seconds is None else utc(seconds)[:19].replace("T", " ")


def _budget(budget: Mapping[str, Any]) -> str:
    share = "" if budget["share"] is None else f" ({budget['share']:.3%})"
    back = f", {budget['seconds']:g} s of state" if budget["seconds"] else ""
    used = f"{budget['lost']:,} rows{share}{back} lost of {budget['may_lose']} that may be"
    return f"{used}: {budget['state']}"


def _log(log: Mapping[str, Any]) -> str:
    """How a log stands, and who holds its rows."""
    if "problem" in log:
        return str(log["problem"])
    end = log.get("end", 0)
    holders = [f"{who} from row {at:,} on{_behind(end - at)}" for who, at in sorted(log["held_by"].items())]
    waiting = "" if log["waiting"] is None else f", {log['waiting']:,} not read yet"
    return f"{log['rows']:,} rows{waiting}; held by {', '.join(holders) or 'nobody'} ({log['log']})"


def _behind(rows: int) -> str:
    return f" ({rows:,} behind)" if rows > 0 else ""


def _table(first: str, *columns: str, title: str | None = None) -> Table:
    """For 80 columns: the first one gives way, and the last one."""
    made = [Column(name, no_wrap=True) for name in columns[:-1]]
    ends = (Column(first, overflow="fold"), *made, Column(columns[-1], overflow="fold"))
    narrow = {"box": box.SIMPLE_HEAD, "pad_edge": False, "padding": (0, 1, 0, 0)}
    return Table(*ends, title=title, title_justify="left", **narrow)  # type: ignore[arg-type]


def _mode(region: Mapping[str, Any]) -> str:
    """`async`, or `async/aware`: epochs that do not come by the clock are said to."""
    mode, trigger = region.get("mode", "—"), region.get("trigger", "periodic")
    return str(mode) if trigger == "periodic" else f"{mode}/{trigger}"


def _phase(region: Mapping[str, Any]) -> str:
    return str(region["phase"]) if region.get("idle_since") is None else "idle"


def idle_line(region: Mapping[str, Any]) -> str | None:
    """Of a region without anything new: that its newest epoch is old is as it should be."""
    since = region.get("idle_since")
    if since is None:
        return None
    return f"idle since {_moment(since)} UTC: nothing is new since epoch {region['epoch']}"


def held_up(region: Mapping[str, Any]) -> list[str]:
    """Of a region's status, who holds up the epoch under way; nothing about one that has only begun."""
    under_way = region.get("under_way")
    if not under_way or under_way["seconds"] < HELD_UP_S:
        return []
    found = [f"epoch {under_way['epoch']} has been under way for {under_way['seconds']:.1f} s"]
    for each in under_way["held_up_by"]:
        who = f"{each['element']}: " if "element" in each else ""
        where = ", ".join(each.get("operators", []) + each.get("connections", []))
        since = f", for {each['seconds']:.1f} s" if "seconds" in each else ""
        found.append(f"  held up by {who}{each['what']}{f' ({where})' if where else ''}{since}")
    return found


def _changes(region: dict[str, Any]) -> list[str]:
    told = decode(TopologyChanged.kind, region.get("topology_changed", {}))
    return told.sentences() if isinstance(told, TopologyChanged) else []


@contextlib.contextmanager
def follow(enabled: bool) -> Iterator[Callable[[Job], None]]:
    """A live display that begins when a job is handed to the yielded function."""
    ended = threading.Event()
    threads: list[threading.Thread] = []

    def watch(job: Job) -> None:
        with Live(
            status_tables(job.status()), console=terminal.console(stderr=True), refresh_per_second=4
        ) as live:
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
