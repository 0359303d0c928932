"""What `holdfast impact` found, as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Column, Table

from holdfast.cli.terminal import console as plain_console


def show(result: Mapping[str, Any], console: Console | None = None) -> None:
    console = console or plain_console()
    console.print(effects_table(result))
    console.print(advice_table(result))
    for sink, told in result["sinks"].items():
        console.print(
            f"sink {sink}: {told['rows']:,} rows, paired by {told['paired_by']}",
            highlight=False,
            markup=False,
        )
    if result.get("stores"):
        console.print(
            f"stores of the runs: {result['stores']}", highlight=False, markup=False, soft_wrap=True
        )


def effects_table(result: Mapping[str, Any]) -> Table:
    table = Table(
        Column("killed", no_wrap=True), "sink", "rows", "missing", "extra", "wrong", "deviation", "agrees after",
        title=f"{result['topology']}: what a kill in the middle of {result['source_rows']:,} rows does",
        title_justify="left", box=box.SIMPLE_HEAD,
    )  # fmt: skip
    for each in result["operators"]:
        for sink, told in each["sinks"].items():
            table.add_row(each["operator"], sink, *_figures(told))
        for sink, told in (each["sinks_the_other_way"] or {}).items():
            how = "with a checkpoint" if each["checkpoint_every_s"] is None else "without"
            table.add_row(f"  {how}", sink, *_figures(told))
    return table


def _figures(told: Mapping[str, Any]) -> list[str]:
    worst = max(told["deviation"].items(), key=lambda item: item[1], default=("", 0.0))
    deviation = f"{worst[1]:.1%} of {worst[0]}" if worst[1] else "none"
    rows, seconds = told["agrees_after_rows"], told["agrees_after_s"]
    after = "never" if rows is None else f"{rows:,} rows, {seconds:g} s" if rows else "at once"
    return [
        f"{told['rows']:,}", f"{told['missing']:,}", f"{told['extra']:,}", f"{told['wrong']:,}", deviation, after
    ]  # fmt: skip


def advice_table(result: Mapping[str, Any]) -> Table:
    table = Table(
        "operator", "state", "effect", "the other way", "saved per kB", "advice",
        title="what a checkpoint of its own is worth, the most per byte first",
        title_justify="left", box=box.SIMPLE_HEAD,
    )  # fmt: skip
    for each in result["operators"]:
        size, other = each["state_bytes"], each["effect_the_other_way"]
        table.add_row(
            each["operator"],
            "-" if size is None else f"{size:,} bytes",
            f"{each['effect']:.1%}",
            "-" if other is None else f"{other:.1%}",
            f"{each['saved_per_kb']:.2%}" if other is not None else "-",
            each["advice"],
        )
    return table
