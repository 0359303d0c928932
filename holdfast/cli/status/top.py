"""`holdfast top`: how a run stands, again and again, in the terminal. It may run in another process, or have ended."""

from __future__ import annotations

import sys
import time

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from holdfast.cli import terminal
from holdfast.cli.status.show import status_tables
from holdfast.dashboard.at_rest import at_rest
from holdfast.dashboard.watched import Watched

MOMENTS = 8
STYLES = {"bad": "bold red", "costs": "yellow", "plain": ""}
STATE_STYLES = {"running": "green", "ended": "green", "parked": "bold red", "failed": "bold red"}


def watch(store: str, seconds: float) -> None:
    """Until somebody interrupts it. Where no terminal is, once."""
    watched, console = Watched(store), terminal.console()
    watched.look(first=True)
    if not sys.stdout.isatty():
        console.print(picture(watched, console.width))
        return
    try:
        with Live(picture(watched, console.width), console=console, screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(seconds)
                watched.look()
                live.update(picture(watched, console.width), refresh=True)
    except KeyboardInterrupt:
        return


def picture(watched: Watched, width: int) -> RenderableType:
    """All that is seen of a store at once."""
    parts: list[RenderableType] = [headline(watched)]
    status = watched.story.status
    if status is not None:
        shown = status if watched.alive else at_rest(status)
        parts.append(status_tables({**shown, "state": watched.state}))
    moments = list(watched.story.moments)[-MOMENTS:]
    if moments:
        parts.append(moments_table(moments, width))
    return Group(*parts)


def headline(watched: Watched) -> Text:
    """Which store, and whether anybody runs."""
    owner = watched.owner or {}
    who = f" (pid {owner.get('pid')} on {owner.get('host')})" if watched.alive else ""
    line = Text(f"{watched.store.url}: ", overflow="fold")
    line.append(watched.state, STATE_STYLES.get(watched.state, "bold yellow"))
    line.append(who)
    if watched.problem is not None:
        line.append(f"  {watched.problem}", "red")
    return line


def moments_table(moments: list[dict[str, object]], width: int) -> Table:
    """The newest first; one line each, cut at the terminal's width."""
    table = Table(
        Column("when", no_wrap=True),
        Column("what happened", no_wrap=True, overflow="ellipsis", max_width=max(20, width - 12)),
        box=None,
        pad_edge=False,
    )
    for moment in reversed(moments):
        at = time.strftime("%H:%M:%S", time.localtime(float(str(moment["wall"]))))
        text = " ".join(str(moment["text"]).split())
        table.add_row(at, Text(text, STYLES[str(moment["level"])]))
    return table
