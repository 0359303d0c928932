"""Tables of `holdfast checkpoints`: epochs, one epoch, files, damage, differences."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from rich.table import Column, Table

from holdfast.checkpoint.look.epoch_difference import OperatorDiff
from holdfast.checkpoint.look.epochs import EpochSummary
from holdfast.checkpoint.look.file_printer import Printed
from holdfast.checkpoint.look.verify import Verified
from holdfast.checkpoint.manifest import Manifest
from holdfast.cli.terminal import wide_console
from holdfast.operators.fingerprint import Fingerprint
from holdfast.operators.stored.variables_view import as_text

_LONGEST = 120
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def _table(title: str | None, *columns: str, fold: str) -> Table:
    """`fold`: the column whose values are never cut."""
    made = (Column(name, overflow="fold" if name == fold else "ellipsis") for name in columns)
    return Table(*made, title=title, title_justify="left")


def show_list(url: str, found: Sequence[EpochSummary]) -> None:
    console = wide_console()
    if not found:
        console.print(f"{url} has no published epoch yet.", soft_wrap=True)
        return
    names = ("region", "epoch", "age", "form", "bytes", "added", "segments", "operators", "savepoint")
    table = _table(url, *names, fold="savepoint")
    for each in found:
        table.add_row(
            each.region,
            f"{each.epoch} newest" if each.newest else str(each.epoch),
            _age(each.wall),
            _forms(each.forms),
            size(each.bytes),
            "—" if each.added_bytes is None else size(each.added_bytes),
            str(each.segments),
            str(each.operators),
            each.savepoint or "",
        )
    console.print(table)


def _forms(forms: Mapping[str, str]) -> str:
    """One word if all operators agree, else how many have which."""
    kinds = sorted(set(forms.values()))
    if len(kinds) < 2:
        return kinds[0] if kinds else "—"
    return ", ".join(f"{list(forms.values()).count(kind)} {kind}" for kind in kinds)


def show_epoch(found: Mapping[str, Any], in_detail: bool = False) -> None:
    """An epoch as `describe_epoch` gives it; `in_detail`: segment by segment."""
    console = wide_console()
    title = f"epoch {found['epoch']} of region {found['region']}"
    head = _table(title, "what", "value", fold="value")
    for name in ("topology", "job", "region", "epoch", "savepoint", "previous", "attempt", "token", "origin"):
        head.add_row(name, "—" if found[name] is None else str(found[name]))
    head.add_row("published", f"{_when(found['wall'])} ({_age(found['wall'])} ago)")
    console.print(head)
    console.print(_operators(found["operators"]))
    if any(each["value"] is not None for each in found["operators"]):
        console.print(_values(found["operators"], in_detail))
    if in_detail:
        console.print(_chains(found["operators"]))
    for what, order in (("kept", "first sent first"), ("captured", "first come first")):
        if found[what]:
            console.print(_kept(found[what], f"{what} batches, {order}"))
    if found["borders"]:
        console.print(f"counters of border connections: {text(found['borders'])}", soft_wrap=True)


def _operators(operators: Sequence[Mapping[str, Any]]) -> Table:
    names = ("operator", "element", "form", "bytes", "partitions", "segments", "what it is")
    table = _table("operators", *names, fold="what it is")
    for each in sorted(operators, key=lambda each: str(each["operator"])):
        chains = each["partitions"]
        table.add_row(
            each["operator"],
            each["element"],
            _form(each["form"], each["of_epoch"]),
            size(each["bytes"]),
            str(len(chains)) if chains else "",
            "+".join(str(len(chain)) for chain in chains) if len(chains) <= 8 else str(sum(map(len, chains))),
            str(Fingerprint.from_json(each["fingerprint"])) if each["fingerprint"] else "",
        )
    return table


def _form(form: Mapping[str, Any] | None, of_epoch: int | None) -> str:
    """`of_epoch`: of which earlier epoch it is, if it is."""
    deltas = f" ({form['deltas']} since the base)" if form and form["deltas"] else ""
    said = [f"{form['kind']}{deltas}"] if form else []
    return ", ".join([*said, f"of epoch {of_epoch}"] if of_epoch else said) or "—"


def _values(operators: Sequence[Mapping[str, Any]], in_detail: bool) -> Table:
    table = _table("values", "operator", "position or small state", fold="position or small state")
    for each in operators:
        if each["value"] is not None:
            table.add_row(each["operator"], as_text(each["value"]) if in_detail else text(each["value"]))
    return table


def _chains(operators: Sequence[Mapping[str, Any]]) -> Table:
    segment = "segment, oldest first"
    table = _table("segments", "operator", "partition", segment, "rows", "bytes", "crc", fold=segment)
    for each in operators:
        for number, chain in enumerate(each["partitions"]):
            for one in chain:
                rows = "—" if one["rows"] is None else f"{one['rows']:,}"
                name = f"{one['entry']}/{one['key']}"
                table.add_row(each["operator"], str(number), name, rows, f"{one['bytes']:,}", one["crc"])
    return table


def _kept(kept: Sequence[Mapping[str, Any]], title: str) -> Table:
    table = _table(title, "connection", "rows", "skipped", "files", "bytes", fold="files")
    for batch in kept:
        files = "\n".join(f"{file['entry']}/{file['key']}" for file in batch["files"])
        total = sum(file["bytes"] for file in batch["files"])
        table.add_row(batch["connection"], str(batch["rows"]), str(batch["skip"]), files, f"{total:,}")
    return table


def show_rows(found: Mapping[str, pa.Table]) -> None:
    console = wide_console()
    for name, table in found.items():
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        console.print(_rows(table.column_names, rows, name))


def _rows(columns: Sequence[str], rows: Any, title: str) -> Table:
    table = Table(*(Column(name, overflow="fold") for name in columns), title=title, title_justify="left")
    longest = max(24, 2 * _LONGEST // max(1, len(columns)))
    for row in rows:
        table.add_row(*(text(value, longest) for value in row))
    return table


def show_printed(found: Printed) -> None:
    console = wide_console()
    console.print(f"{found.file}: {found.format}", soft_wrap=True)
    if found.facts:
        facts = _table(None, "what", "value", fold="value")
        for name, value in found.facts.items():
            facts.add_row(name, value if isinstance(value, str) else as_text(value))
        console.print(facts)
    if found.columns:
        console.print(_rows(found.columns, found.rows, "rows"))


def show_verified(url: str, found: Verified) -> None:
    console = wide_console()
    for name in found.gone:
        console.print(f"epoch {name} was deleted by its owner meanwhile", soft_wrap=True)
    for problem in found.problems:
        needed = f" (needed by {', '.join(problem.needed_by)})" if problem.needed_by else ""
        console.print(f"damaged: {problem.name}: {problem.why}{needed}", soft_wrap=True)
    epochs = ", ".join(found.epochs)
    verdict = f"{len(found.problems)} damaged or missing" if found.problems else "all as written"
    console.print(f"{url}: {epochs}: {found.pieces} pieces, {size(found.bytes)}: {verdict}", soft_wrap=True)


# --- differences ------------------------------------------------------------------------------------------------------


def show_diff(before: Manifest, after: Manifest, found: Sequence[OperatorDiff]) -> None:
    console = wide_console()
    title = f"region {after.region}: from epoch {before.epoch} to {after.epoch}"
    state = "position or small state"
    table = _table(
        title, "operator", "part", "added", "changed", "removed", "bytes", "new bytes", state, fold=state
    )
    for each in (each for each in found if each.differs):
        counted = [
            (name, str(part.added), str(part.changed), str(part.removed)) for name, part in each.parts.items()
        ]
        for number, counts in enumerate(counted or [("", "", "", "")]):
            own = (f"{size(each.bytes[0])} → {size(each.bytes[1])}", size(each.new_bytes), _moved(each))
            table.add_row("" if number else each.operator, *counts, *(() if number else own))
    console.print(table)
    same = [each.operator for each in found if not each.differs]
    if same:
        console.print(f"unchanged: {', '.join(same)}", soft_wrap=True)
    for each in found:
        for name, part in each.parts.items():
            if part.samples:
                console.print(_samples(f"{each.operator}: {name}", part.samples))


def _moved(each: OperatorDiff) -> str:
    if each.present != (True, True):
        return "new operator" if each.present[1] else "operator is gone"
    return "" if each.value is None else f"{text(each.value[0])} → {text(each.value[1])}"


def _samples(title: str, samples: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """Changed rows with what happened to them."""
    columns = list(dict.fromkeys(name for _, row in samples for name in row))
    rows = [[what, *(row.get(name) for name in columns)] for what, row in samples]
    return _rows(["", *columns], rows, title)


def diff_data(before: Manifest, after: Manifest, found: Sequence[OperatorDiff]) -> dict[str, Any]:
    """The same for machines."""
    operators = [{**asdict(each), "differs": each.differs, "parts": _parts_data(each)} for each in found]
    return {"region": after.region, "before": before.epoch, "after": after.epoch, "operators": operators}


def _parts_data(each: OperatorDiff) -> dict[str, Any]:
    return {
        name: {
            **{count: getattr(part, count) for count in ("added", "changed", "removed")},
            "rows": [{"change": what, "row": row} for what, row in part.samples],
        }
        for name, part in each.parts.items()
    }


# --- words ------------------------------------------------------------------------------------------------------------


def text(value: Any, longest: int = _LONGEST) -> str:
    """A value in a cell: long ones are cut."""
    shown = "—" if value is None else as_text(value) if isinstance(value, list | dict | float) else str(value)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def size(number: float) -> str:
    """Bytes in the unit that suits them."""
    unit = 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number /= 1024
        unit += 1
    return f"{number:.0f} B" if not unit else f"{number:.1f} {_UNITS[unit]}"


def _when(wall: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall))


def _age(wall: float) -> str:
    seconds = max(0.0, time.time() - wall)
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
