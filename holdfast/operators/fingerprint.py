"""What must not change of an operator between two runs on one store, and what may: its fingerprint, as data.

The *frame* (kind, keys, windows, ports) must stay as it is. Of the *entries* (aggregates, variables of a Python operator,
columns of whole rows that are kept) some may come and go, by name: an aggregate that is new begins with no rows, one that
is gone is dropped, rows from before have null in new columns. Entries that stay must be the same. What goes where is the
evolution rule of a kind of operator; expressions are in neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from holdfast.state.columns.hashing import KEY_GROUPS

Fields = Mapping[str, Any]
"""Strings, numbers and tuples of them, by name. A field without a value is left out."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Compared field by field; stored in manifests as JSON."""

    kind: str
    frame: Fields = field(default_factory=dict)
    entries: Mapping[str, Mapping[str, Fields]] = field(default_factory=dict)
    """Lists of entries: by the list's name, then by that of the entry."""

    def to_json(self) -> dict[str, Any]:
        """The entries of a list stay in their order."""
        entries = {name: [list(pair) for pair in these.items()] for name, these in self.entries.items()}
        return {"kind": self.kind, "frame": dict(self.frame), "entries": entries}

    @staticmethod
    def from_json(raw: Any) -> Fingerprint:
        entries = {name: {key: _frozen(of) for key, of in these} for name, these in raw["entries"].items()}
        return Fingerprint(raw["kind"], _frozen(raw["frame"]), entries)

    def __str__(self) -> str:
        """For people."""
        fields = [f"{name}={_text(value)}" for name, value in sorted(self.frame.items())]
        for name, these in self.entries.items():
            fields.append(f"{name}=({', '.join(f'{key} {_text(of)}' for key, of in these.items())})")
        return " ".join([self.kind, *fields])

    def named_entries(self) -> Iterator[tuple[str, Fields]]:
        """All entries, under names that tell lists apart where there are several."""
        for name, these in self.entries.items():
            for key, of in these.items():
                yield (key if len(self.entries) == 1 else f"{key} of {name}"), of


def misfit(then: Fingerprint, now: Fingerprint) -> str | None:
    """Why the state of an operator with fingerprint `then` cannot be taken over by one with `now`; None: it can."""
    if then.kind != now.kind:
        return f"it was {then.kind}, now it is {now.kind}"
    for field_name, change in _differences(then.frame, now.frame):
        return f"its {field_name} {change}"
    if then.entries.keys() != now.entries.keys():
        return f"it kept {', '.join(then.entries)}, now it keeps {', '.join(now.entries)}"
    after = dict(now.named_entries())
    for name, before in then.named_entries():
        for field_name, change in _differences(before, after.get(name, before)):
            return f"the {field_name} of {name!r} {change}"
    return None


def changes(then: Fingerprint, now: Fingerprint) -> tuple[list[str], list[str]]:
    """(what is new, what is gone), by name."""
    before, after = dict(then.named_entries()), dict(now.named_entries())
    return sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())


def _differences(then: Fields, now: Fields) -> Iterator[tuple[str, str]]:
    """The fields that differ, and how."""
    for name in sorted(then.keys() | now.keys()):
        if then.get(name) != now.get(name):
            yield name, f"was {_text(then.get(name))}, now it is {_text(now.get(name))}"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(_text(each) for _, each in sorted(value.items()))
    if isinstance(value, tuple):
        inside = (" ".join(map(str, each)) if isinstance(each, tuple) else str(each) for each in value)
        return f"({', '.join(inside)})"
    return "not there" if value is None else str(value)


def _frozen(value: Any) -> Any:
    """What JSON gave, with tuples where it knows only lists."""
    if isinstance(value, dict):
        return {name: _frozen(each) for name, each in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


# --- what kinds put into it -----------------------------------------------------------------------------------------


def keyed_frame(key: tuple[Any, ...], **more: Any) -> dict[str, Any]:
    """The frame of an operator with keys."""
    return {"key": key, "groups": KEY_GROUPS, **{name: of for name, of in more.items() if of is not None}}


def key_of(schema: pa.Schema, by: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Names and types of key columns, in their order."""
    return tuple((name, type_text(schema.field(name).type)) for name in by)


def columns_of(schema: pa.Schema) -> dict[str, Fields]:
    """Entries: columns of whole rows that are kept."""
    return {column.name: {"type": type_text(column.type)} for column in schema}


def type_text(kind: pa.DataType) -> str:
    return str(kind).replace(" ", "")
