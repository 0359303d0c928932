"""A program as it can be told and compared: what each operator was told, and behind whom it stands. Pure.

Stored with the job, so that a run can say how its program differs from that of the run before. What must fit stored state is
not decided here (`operators/fingerprint.py`): this is for people.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from holdfast.ids import OperatorName, RegionName
from holdfast.language.graph import Graph, Operator, SinkSpec, SourceSpec
from holdfast.operators.kinds import kind_of
from holdfast.operators.told_texts import DIGEST, field_text

VERSION = 1
"""Of the texts: those of another version are not compared."""
_LONGEST = 120
_NOWHERE = "none"
_LABELS = {"make": "class", "fn": "function", "on_error": "on_error="}


@dataclass(frozen=True, slots=True)
class Said:
    """What one operator was told."""

    kind: str
    named: bool
    fields: Mapping[str, str]
    behind: tuple[str, ...] = ()
    """The nearest operators before it that have names of their own."""
    stored: bool = False
    """It is in a region, and its epochs know it: whether it is new or gone is told there."""


@dataclass(frozen=True, slots=True)
class Description:
    """A whole program."""

    operators: Mapping[str, Said] = field(default_factory=dict)
    version: int = VERSION
    python: str = ".".join(platform.python_version_tuple()[:2])

    def to_json(self) -> dict[str, Any]:
        operators = {
            name: {each.name: getattr(said, each.name) for each in fields(Said)}
            for name, said in self.operators.items()
        }
        return {"version": self.version, "python": self.python, "operators": operators}

    @staticmethod
    def from_json(raw: Any) -> Description:
        """Of another version only that it is one."""
        if raw.get("version") != VERSION:
            return Description(version=raw.get("version", 0))
        operators = {
            name: Said(**{**said, "behind": tuple(said["behind"])}) for name, said in raw["operators"].items()
        }
        return Description(operators, python=raw["python"])


def describe(graph: Graph, region_of: Mapping[OperatorName, RegionName]) -> Description:
    """What the operators of a graph were told by its author."""
    return Description(
        {
            str(op.name): Said(
                op.kind,
                op.named,
                dict(_fields(op, region_of.get(op.name))),
                _behind(graph, op),
                op.name in region_of and kind_of(op).role != "stateless",
            )
            for op in graph.operators.values()
        }
    )


def _fields(op: Operator, region: RegionName | None) -> Iterator[tuple[str, str]]:
    yield "region", _NOWHERE if region is None else repr(str(region))
    for each in fields(op.spec):  # type: ignore[arg-type]
        value = getattr(op.spec, each.name)
        if isinstance(op.spec, SourceSpec | SinkSpec) and each.name in ("source", "sink"):
            yield "place", value.describe()
        else:
            yield field_text(each.name, value)
    marks = op.annotations
    if marks.consistent is not None:
        for each in fields(marks.consistent):
            if each.name != "name":
                yield field_text(each.name, getattr(marks.consistent, each.name))
    yield field_text("checkpoint_every_s", marks.checkpoint_every_s)


def _behind(graph: Graph, op: Operator) -> tuple[str, ...]:
    found: set[str] = set()
    seen: set[OperatorName] = set()
    todo = [stream.operator for port in op.inputs for stream in port.streams]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        before = graph.operators[name]
        if before.named:
            found.add(str(name))
        else:
            todo += [stream.operator for port in before.inputs for stream in port.streams]
    return tuple(sorted(found))


# --- two programs ---------------------------------------------------------------------------------------------------


def differences(then: Description, now: Description, elsewhere: Iterable[str] = ()) -> list[str]:
    """What is another than it was, a sentence each. `elsewhere`: operators whose changes are told there."""
    if then.version != now.version:
        return []
    pairs, new, gone = _matched(then.operators, now.operators)
    known, codes = set(elsewhere), then.python == now.python
    said: list[str] = []
    for name, (before, after) in pairs.items():
        if name not in known:
            said += [f"{_who(name, after)}: {change}" for change in _changes(before, after, codes)]
    said += [f"{_who(name, now.operators[name])} is new" for name in new if not now.operators[name].stored]
    said += [
        f"{_who(name, then.operators[name])} is gone" for name in gone if not then.operators[name].stored
    ]
    return said


Pairs = Mapping[str, tuple[Said, Said]]


def _matched(then: Mapping[str, Said], now: Mapping[str, Said]) -> tuple[Pairs, list[str], list[str]]:
    """Operators of both, by name; those without a name of their own by what they were told, else by where they stand: names
    that are made up move when one comes or goes."""
    left = dict(then)
    pairs: dict[str, tuple[Said, Said]] = {}
    for name, said in now.items():
        if not said.named:
            same = next((old for old, before in left.items() if before == said), None)
            if same is not None:
                pairs[name] = (left.pop(same), said)
    for name, said in now.items():
        if not said.named and name not in pairs:
            near = (
                old
                for old, b in left.items()
                if not b.named and (b.kind, b.behind) == (said.kind, said.behind)
            )
            if (same := next(near, None)) is not None:
                pairs[name] = (left.pop(same), said)
    for name, said in now.items():
        if name not in pairs and name in left and left[name].kind == said.kind:
            pairs[name] = (left.pop(name), said)
    return pairs, [name for name in now if name not in pairs], list(left)


def _changes(before: Said, after: Said, codes: bool) -> Iterator[str]:
    for name in sorted((before.fields.keys() & after.fields.keys()) - {"label"}):  # the class tells the same
        was, is_now = before.fields[name], after.fields[name]
        plain_was, plain_now = DIGEST.sub("", was), DIGEST.sub("", is_now)
        label = _LABELS.get(name, name.replace("_", " "))
        if plain_was != plain_now:
            were, are = ("were", "they are") if re.search("[^s]s$", label) else ("was", "it is")
            yield f"its {label} {were} {_shown(plain_was)}, now {are} {_shown(plain_now)}"
        elif codes and was != is_now:
            yield f"the code of its {label} ({_shown(plain_now)}) has changed"
    if before.behind != after.behind:
        yield f"it was behind {_names(before.behind)}, now it is behind {_names(after.behind)}"


def _shown(text: str) -> str:
    return (text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…") or "nothing"


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def _who(name: str, said: Said) -> str:
    behind = f" behind {_names(said.behind)}" if said.behind and not said.named else ""
    kind = "operator" if said.kind == "hosted" else said.kind
    return f"{kind} {name!r}{behind}"
