"""Compare what a run gave with what it should have given: as multisets of rows, in order, or merged by key.

Rows are tuples, mappings or a `pyarrow.Table`. A difference raises `GoldenMismatch`, an AssertionError whose message
begins with the first differing row, so that a failing test shows the row and not two long lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

AnyRows = Iterable[Any]
"""A `pyarrow.Table`, or rows as tuples or mappings."""


class GoldenMismatch(AssertionError):
    """The rows are not the golden ones."""


def compare_rows(golden: AnyRows, found: AnyRows, what: str = "rows") -> None:
    """The same rows, each as often as in `golden`, in any order."""
    wanted, got = Counter(map(frozen, _rows(golden))), Counter(map(frozen, _rows(found)))
    missing, extra = wanted - got, got - wanted
    if not missing and not extra:
        return
    lines = []
    if missing:
        lines.append(f"{missing.total()} missing, first {_show(min(missing, key=repr))}")
    if extra:
        first = min(extra, key=repr)
        twice = f" ({got[first]} times instead of {wanted[first]})" if first in wanted else ""
        lines.append(f"{extra.total()} too many, first {_show(first)}{twice}")
    raise GoldenMismatch(f"{what}: {'; '.join(lines)} (golden {wanted.total()}, found {got.total()})")


def compare_sequence(golden: AnyRows, found: AnyRows, what: str = "rows") -> None:
    wanted, got = [frozen(row) for row in _rows(golden)], [frozen(row) for row in _rows(found)]
    for number, (a, b) in enumerate(zip(wanted, got, strict=False)):
        if a != b:
            raise GoldenMismatch(f"{what}: row {number} is {_show(b)} instead of {_show(a)}")
    if len(wanted) != len(got):
        longer, which = (wanted, "missing") if len(wanted) > len(got) else (got, "too many")
        at = min(len(wanted), len(got))
        raise GoldenMismatch(
            f"{what}: {len(longer) - at} rows {which} from row {at} on, first {_show(longer[at])}"
        )


def merge_by_key(rows: AnyRows, by: str | Sequence[str], version: str | None = None) -> dict[Any, Any]:
    """A changelog merged: the last row of each key, or the one with the highest `version` column if given.

    Use `version` where rows of several files have no order among them, and a count or sequence number only grows.
    """
    keys = (by,) if isinstance(by, str) else tuple(by)
    merged: dict[Any, Mapping[str, Any]] = {}
    for row in _rows(rows):
        if not isinstance(row, Mapping):
            raise TypeError("a changelog is merged from rows with column names (mappings or a pyarrow.Table)")
        key = tuple(row[name] for name in keys)
        if version is None or key not in merged or row[version] >= merged[key][version]:
            merged[key] = row
    return merged


def compare_changelog(
    golden: AnyRows,
    found: AnyRows,
    by: str | Sequence[str],
    version: str | None = None,
    what: str = "changelog",
) -> None:
    """Two changelogs that say the same once merged by key, however often they say it on the way."""
    wanted, got = merge_by_key(golden, by, version), merge_by_key(found, by, version)
    compare_rows(wanted.values(), got.values(), f"{what} merged by {by}")


def compare(
    golden: AnyRows, found: AnyRows, check: Callable[[AnyRows, AnyRows], None] = compare_rows
) -> bool:
    """True if `check` finds no difference. For reports; tests rather call the check itself."""
    try:
        check(golden, found)
    except GoldenMismatch:
        return False
    return True


def frozen(value: Any) -> Any:
    """A value that can be counted: mappings, lists and sets become tuples and frozen sets, all else stays."""
    if isinstance(value, Mapping):
        return tuple((name, frozen(value[name])) for name in sorted(value, key=str))
    if isinstance(value, list | tuple):
        return tuple(frozen(item) for item in value)
    if isinstance(value, set | frozenset):
        return frozenset(frozen(item) for item in value)
    return value


def _rows(rows: AnyRows) -> Iterable[Any]:
    return list(rows.to_pylist()) if isinstance(rows, pa.Table) else rows


def _show(row: Any) -> str:
    text = repr(row)
    return text if len(text) <= 300 else text[:300] + " …"
