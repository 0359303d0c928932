"""Tables of `holdfast logs`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.table import Column, Table

from holdfast.cli.status.sizes import shown_bytes
from holdfast.cli.terminal import wide_console
from holdfast.log.look.verify import Verified
from holdfast.log.rows import LogBatch


def _table(title: str, *columns: str) -> Table:
    return Table(*(Column(name, overflow="fold") for name in columns), title=title, title_justify="left")


def show_list(directory: Path, found: Sequence[Mapping[str, Any]]) -> None:
    console = wide_console()
    if not found:
        console.print(f"there is no log in {directory}", soft_wrap=True)
        return
    table = _table(str(directory), "log", "partitions", "rows", "bytes", "newest", "writer", "held by")
    for each in found:
        parts = each["partitions"]
        table.add_row(
            each["path"],
            str(len(parts)),
            f"{sum(p['rows'] for p in parts):,}",
            shown_bytes(sum(p["bytes"] for p in parts)),
            max((p["time"] or "" for p in parts), default="") or "—",
            _writer(each),
            ", ".join(sorted({p["held_by"] for p in parts if p["held_by"]})) or "—",
        )
    console.print(table)


def show_log(found: Mapping[str, Any]) -> None:
    console = wide_console()
    head = _table(found["path"], "what", "value")
    head.add_row("id", found["id"])
    origin = [text for text in found["origin"].values() if text]
    head.add_row("output of", " / ".join(origin) or "—")
    head.add_row("columns", ", ".join(f"{name} {kind}" for name, kind in found["columns"].items()))
    head.add_row("time", found["time"] or "when a row was appended")
    head.add_row("written by", _writer(found))
    console.print(head)
    parts = _table(
        "partitions", "partition", "from", "to", "counts up to", "sealed", "segments", "bytes", "newest", "held by", "writers"
    )  # fmt: skip
    for each in found["partitions"]:
        sealed = "—" if each["sealed"] < 0 else str(each["sealed"])
        writers = ", ".join(f"{name} {sequence}" for name, sequence in each["writers"].items())
        numbers = (each["partition"], each["low"], each["next"], each["committed"], sealed, each["segments"])
        shown = (shown_bytes(each["bytes"]), each["time"] or "—", each["held_by"] or "—", writers or "—")
        parts.add_row(*map(str, numbers), *shown)
    console.print(parts)
    table = _table("segments", "partition", "segment", "form", "from", "to", "bytes", "newest up to there")
    for each in found["segments"]:
        table.add_row(
            str(each["partition"]), each["name"], each["form"], str(each["first"]), str(each["end"]),
            shown_bytes(each["bytes"]), each["time"] or "—",
        )  # fmt: skip
    console.print(table)


def _writer(found: Mapping[str, Any]) -> str:
    writer = found["writer"]
    return "nobody" if writer is None else f"process {writer['pid']} on {writer['host']}"


def show_file(found: Mapping[str, Any]) -> None:
    console = wide_console()
    head = _table(found["path"], "what", "value")
    for name, value in found["head"].items():
        head.add_row(name, value if isinstance(value, str) else json.dumps(value, default=str))
    console.print(head)
    if found["frames"]:
        table = _table("frames", *found["frames"][0])
        for each in found["frames"]:
            table.add_row(*("—" if value is None else str(value) for value in each.values()))
        console.print(table)
    for line in found.get("notes", ()):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    console.print(found["end"], soft_wrap=True)


def show_rows(batch: LogBatch, as_json: bool) -> None:
    """One line per row."""
    for number, (row, at) in enumerate(zip(batch.rows.to_pylist(), batch.times.to_pylist(), strict=True)):
        position = batch.position + number
        when = None if at is None else at.isoformat()
        if as_json:
            line = {"partition": batch.partition, "position": position, "time": when, "row": row}
            print(json.dumps(line, default=_text), flush=True)
        else:
            print(batch.partition, position, when or "—", json.dumps(row, default=_text), flush=True)


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def show_answer(found: pa.Table, is_cut: bool) -> None:
    """What a query answered."""
    console = wide_console()
    table = _table("", *found.column_names)
    table.title = None
    for row in zip(*(column.to_pylist() for column in found.columns), strict=True):
        table.add_row(*map(_cell, row))
    console.print(table)
    rows = f"{found.num_rows:,} row{'' if found.num_rows == 1 else 's'}"
    console.print(f"{rows}, and there are more: --limit" if is_cut else rows)


def _cell(value: Any) -> str:
    if value is None:
        return "—"
    if isinstance(value, dict | list):
        return json.dumps(value, default=_text)
    return _text(value)


def show_verified(path: Path, found: Verified) -> None:
    console = wide_console()
    size = shown_bytes(found.bytes)
    console.print(f"{path}: {found.segments} segments, {found.rows:,} rows, {size} read", soft_wrap=True)
    for problem in found.problems:
        console.print(f"damaged: {problem}", soft_wrap=True)
    if not found.problems:
        console.print("all of it is what was written")


def show_consumers(path: Path, found: Sequence[Mapping[str, Any]], now: float) -> None:
    console = wide_console()
    if not found:
        console.print(f"nobody has registered with {path}: limits alone decide what stays", soft_wrap=True)
        return
    table = _table(str(path), "kind", "name", "positions", "rows behind", "epoch", "last heard of", "expires")
    for each in found:
        positions = ", ".join(f"{partition}: {at}" for partition, at in each["positions"].items())
        expires = each["expires_s"]
        table.add_row(
            each["kind"],
            each["name"],
            positions,
            f"{each['behind']:,}",
            "—" if each["epoch"] is None else str(each["epoch"]),
            f"{max(0.0, now - each['updated']):.0f} s ago",
            "never" if expires is None else f"{expires:g} s after that",
        )
    console.print(table)
