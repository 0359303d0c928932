"""What `holdfast chaos` found, as tables for people, 80 columns wide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

_COLOURS = {"kept": "green", "broken": "bold red", "not judged": "yellow"}


def show(result: Mapping[str, Any], console: Console | None = None) -> None:
    console = console or Console()
    console.print(faults_table(result))
    console.print(sinks_table(result))
    compared = ", ".join(f"{each['sink']} by {each['compared']}" for each in result["sinks"])
    console.print(f"compared: {compared}" if compared else "", markup=False, highlight=False)
    for each in result["sinks"]:
        if each["first"]:
            console.print(f"sink {each['sink']}: {each['first']}", markup=False, highlight=False)
    if result["failure"]:
        console.print(result["failure"], markup=False, highlight=False, style="bold red")
    for note in result["not_judged"]:
        console.print(f"note: {note}", markup=False, highlight=False)
    if result.get("store"):
        console.print(f"stores and outputs: {result['store']}", markup=False, highlight=False, soft_wrap=True)
    verdict = result["verdict"]
    console.print(
        f"[{_COLOURS[verdict]}]{_VERDICTS[verdict]}[/]; the same schedule again: --seed {result['seed']}",
        highlight=False,
    )


_VERDICTS = {
    "kept": "every promise was kept",
    "broken": "a promise was broken",
    "not judged": "nothing was shown: no fault fired in the middle, or no sink could be judged",
}


def faults_table(result: Mapping[str, Any]) -> Table:
    table = Table(
        Column("fault", no_wrap=True), Column("how", min_width=8), _number("s"), _number("input"), _number("epoch"),
        Column("at", no_wrap=True, min_width=18), Column("then", min_width=12),
        title=f"{escape(result['topology'])}: {result['input_rows']:,} rows, undisturbed {result['golden_s']:g} s, "
        f"under faults {result['faulty_s']:g} s",
        title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True,
    )  # fmt: skip
    for each in result["faults"]:
        told = [
            each["fault"],
            each["how"],
            f"{each['at_s']:.0f}",
            f"{each['share']:.0%}",
            str(each["epoch"]),
            each["place"],
        ]
        mark = "" if each["in_middle"] else "does not count: "
        table.add_row(*map(escape, told), escape(mark + each["effect"]))
    return table


def _number(name: str) -> Column:
    return Column(name, justify="right", no_wrap=True)


def sinks_table(result: Mapping[str, Any]) -> Table:
    table = Table(
        Column("sink", overflow="fold"), Column("promise", min_width=13), *map(_number, ("rows", "missing", "counted", "doubled", "wrong")),
        Column("verdict", no_wrap=True), box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True,
    )  # fmt: skip
    for each in result["sinks"]:
        figures = [f"{each[name]:,}" for name in ("rows", "missing", "counted", "doubled", "wrong")]
        verdict = f"[{_COLOURS[each['verdict']]}]{each['verdict']}[/]"
        table.add_row(escape(each["sink"]), each["guarantee"], *figures, verdict)
    return table
