"""What people see: an introduction, a live display on stderr, a table per guarantee at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from holdfast.demo.feeder import Feeder
from holdfast.demo.nemesis import Kill
from holdfast.demo.watch import Watch

PLAIN_LINE_EVERY_S = 5.0
WIDTH = 100
"""Columns of tables that go to a file."""


class Display:
    """Says what happens. With a terminal on stderr progress is live, else a line every few seconds; `quiet` says
    nothing unless there is a terminal."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._out = Console(width=None if sys.stdout.isatty() else WIDTH)
        self._err = Console(stderr=True)
        self._live: Live | None = None
        self._next_line = 0.0

    def say(self, text: str) -> None:
        """A sentence between the parts."""
        if not self._quiet:
            self._err.print(text, highlight=False)

    def complain(self, text: str) -> None:
        """Something is wrong: said even if quiet."""
        self._err.print(text, highlight=False, soft_wrap=True)

    def explain(self, text: str) -> None:
        """The part of `explain()` that matters here: who promises what, and why."""
        if not self._quiet:
            self._out.print(
                _part(text, "region ") + "\n\n" + _part(text, "sinks"), highlight=False, soft_wrap=True
            )

    def progress(self, watch: Watch, feeder: Feeder, kills: Sequence[Kill], wanted: int, text: str) -> None:
        """Called often; shows where the run is."""
        if sys.stderr.isatty():
            if self._live is None:
                self._live = Live(console=self._err, refresh_per_second=4, transient=True)
                self._live.start()
            self._live.update(_progress_table(watch, feeder, kills, wanted, text))
        elif not self._quiet and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + PLAIN_LINE_EVERY_S
            self._err.print(_progress_line(watch, feeder, kills, wanted), highlight=False, soft_wrap=True)

    def end_progress(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def result(self, result: dict[str, Any]) -> None:
        if not self._quiet:
            self._out.print(kill_table(result))
            self._out.print(guarantee_table(result))
            self._out.print(closing_words(result), highlight=False)


def _part(text: str, heading: str) -> str:
    """A paragraph of explain(): from the line that begins with `heading` to the next empty line."""
    paragraphs = text.split("\n\n")
    return next((p for p in paragraphs if p.startswith(heading)), "").rstrip()


def _progress_table(watch: Watch, feeder: Feeder, kills: Sequence[Kill], wanted: int, text: str) -> Table:
    table = Table(
        "rows", "rows/s", "epoch", "state age", "resets", "restarts", "lost", "kills", "input",
        title=f"shop: {text}", title_justify="left", padding=(0, 0, 0, 0),
    )  # fmt: skip
    age = "—" if watch.age_s is None else f"{watch.age_s:.1f} s"
    table.add_row(
        f"{watch.rows:,}", f"{watch.rows_per_s:,}", str(watch.epoch), age, str(len(watch.resets)),
        str(watch.restores), f"{watch.lost_rows:,}", f"{len(kills)}/{wanted}", f"{feeder.released}/{feeder.ticks}",
    )  # fmt: skip
    return table


def _progress_line(watch: Watch, feeder: Feeder, kills: Sequence[Kill], wanted: int) -> str:
    age = "—" if watch.age_s is None else f"{watch.age_s:.1f} s ago"
    return (
        f"input {feeder.released}/{feeder.ticks}, {watch.rows:,} rows, {watch.rows_per_s:,} rows/s, "
        f"epoch {watch.epoch} ({age}), {len(watch.resets)} resets, {watch.restores} restarts, "
        f"kills {len(kills)}/{wanted}"
    )


def kill_table(result: dict[str, Any]) -> Table:
    """Every kill, and what it cost."""
    table = Table(
        "#",
        "SIGKILL to",
        "epoch",
        "what followed",
        "sent again",
        "next epoch",
        title="kills",
        title_justify="left",
    )
    who = {"worker": "Python worker", "driver": "driver and JVM"}
    for number, kill in enumerate(result["kill_log"], 1):
        recovered = "—" if kill["recovered_s"] is None else f"after {kill['recovered_s']:.1f} s"
        table.add_row(
            str(number), who[kill["kind"]], str(kill["epoch"]), kill["effect"],
            f"{kill['rows_replayed']:,} rows", recovered,
        )  # fmt: skip
    return table


def guarantee_table(result: dict[str, Any]) -> Table:
    """Golden run against killed run, per guarantee."""
    table = Table(
        "guarantee", "sink", "golden", "killed", "missing", "twice", "wrong", "kept",
        title="rows: golden run against killed run", title_justify="left", padding=(0, 0, 0, 0),
    )  # fmt: skip
    golden, kept = result["golden"], result["kept"]
    for sink in ("payments", "accounts"):
        here = result["exactly_once"][sink]
        table.add_row(
            "exactly-once", sink, f"{golden[sink]['rows']:,}", f"{here['rows']:,}",
            str(here["missing"]), str(here["duplicated"]), str(here["different"]), _tick(kept["exactly_once"]),
        )  # fmt: skip
    twice, lost = result["at_least_once"], result["best_effort"]
    table.add_row(
        "at-least-once", "notifications", f"{golden['notifications']['rows']:,}", f"{twice['rows']:,}",
        str(twice["missing"]), f"{twice['duplicates']:,}", str(twice["strange"]), _tick(kept["at_least_once"]),
    )  # fmt: skip
    table.add_row(
        "best effort", "clicks", f"{golden['clicks']['rows']:,}", f"{lost['rows']:,}",
        f"{lost['lost']:,}\n({lost['counted']:,} counted)", str(lost["duplicates"]), str(lost["strange"]),
        _tick(kept["best_effort"]),
    )  # fmt: skip
    return table


def _tick(kept: bool) -> str:
    return "yes" if kept else "NO"


def closing_words(result: dict[str, Any]) -> str:
    """What the tables do not say."""
    lines = [
        f"{result['kills']} kills, {result['resets']} resets ({result['restarts']} of them by a restarted driver), "
        f"{result['epochs']} epochs published, {result['seconds']:.0f} s. "
        "Accounts are a changelog: merged by customer before they are compared.",
    ]
    lost = result["best_effort"]
    if lost["counted"] > lost["lost"]:
        lines.append(
            f"Of {lost['counted']:,} clicks counted as lost, {lost['counted'] - lost['lost']:,} had been written when "
            "their process died; nobody was left who could prove it, so they were counted."
        )
    for sink, here in result["exactly_once"].items():
        if here["first"]:
            lines.append(f"First difference in {sink}: {here['first']}")
    verdict = "Every promise was kept." if result["golden_equal"] else "A PROMISE WAS BROKEN."
    return "\n".join([*lines, f"{verdict} Repeat this run with --seed {result['seed']}."])
