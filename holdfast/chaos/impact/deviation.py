"""How far the rows of a sink are from the golden ones. Pure: tables in, figures out.

Rows of both runs are paired, then compared. Pairs are those with the same key, if the key says which row is which; where a key comes
again and again (a changelog), those of the same key and the same moment, or, if moments are not comparable, the same number among the
rows of their key. Without a key it is the place among the rows of the same moment.

    missing   golden rows without a counterpart        extra   found rows without one
    wrong     pairs that differ in some column, numbers by more than a billionth
    deviation per numeric column: root mean square of the differences over that of the golden values, over all pairs
              behind the kill; the difference itself if the golden values are all zero
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

AT = "__hf_impact_at"
"""Column with the moment at which a row was written."""
SAME = 1e-9

Row = Mapping[str, Any]
Place = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Pairing:
    """How rows of one sink find their counterparts."""

    key: tuple[str, ...] = ()
    by_moment: bool = False
    """A key comes again: rows are paired within a moment."""

    @property
    def told(self) -> str:
        how = ", ".join(self.key) or "place"
        return f"{how} and moment" if self.by_moment else how


@dataclass(frozen=True, slots=True)
class Deviation:
    """What a kill did to one sink. Rows before the kill do not count."""

    rows: int
    """Golden rows behind the kill."""
    missing: int = 0
    extra: int = 0
    wrong: int = 0
    columns: Mapping[str, float] = field(default_factory=dict)
    """Relative deviation of each numeric column."""
    differs: int = 0
    """Pairs that differ in a column that is no number."""
    agrees_after_rows: int | None = 0
    """Golden rows behind the kill until all that follow agree, within the tolerance; None: they never did again."""
    agrees_after_s: float | None = 0.0

    @property
    def effect(self) -> float:
        """One figure from 0 (none) on: the worst of what is missing or too much, what is off, what is different."""
        rows = max(self.rows, 1)
        return max((self.missing + self.extra) / rows, self.differs / rows, *self.columns.values(), 0.0)


def pairing_of(
    golden: pa.Table, wanted: Sequence[str], hinted: Iterable[Sequence[str]], exact: bool
) -> Pairing:
    """`wanted`: the key that the user named. Else the first of `hinted` (keys of operators before the sink) whose columns are there,
    with times of windows if it needs them; else the first column that tells all rows apart and is no fraction. `exact`: moments
    are not comparable, since rows may come again."""
    names = [name for name in golden.column_names if name != AT]
    keys = [tuple(wanted)] if wanted else [tuple(each) for each in hinted if each and set(each) <= set(names)]
    for key in keys:
        whole = (
            key
            if wanted
            else (*key, *(n for n in _times(golden) if n not in key and not _is_one(golden, key)))
        )
        return Pairing(whole, not exact and not _is_one(golden, whole))
    for name in names:
        if not pa.types.is_floating(golden.schema.field(name).type) and _is_one(golden, (name,)):
            return Pairing((name,))
    texts = tuple(name for name in names if not _is_number(golden.schema.field(name).type))
    return Pairing(texts, not exact)


def _is_one(table: pa.Table, key: Sequence[str]) -> bool:
    """True if no two rows have the same key."""
    places = [
        tuple(map(_plain, values)) for values in zip(*(table[name].to_pylist() for name in key), strict=True)
    ]
    return len(set(places)) == len(places)


def _times(table: pa.Table) -> list[str]:
    return [field.name for field in table.schema if pa.types.is_temporal(field.type)]


def _is_number(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type))


def compared(
    golden: pa.Table, found: pa.Table | None, pairing: Pairing, killed_at: float, tolerance: float = SAME
) -> Deviation:
    """`killed_at`: the moment of the kill; rows that golden had written before count only if they are missing now. `tolerance`:
    a number that is off by no more than this share agrees again, though it is wrong."""
    wanted, got = _placed(golden, pairing), _placed(found, pairing)
    behind = [place for place, row in wanted.items() if row[AT] >= killed_at]
    missing = [place for place in wanted if place not in got]
    extra = [place for place in got if place not in wanted]
    numbers = [f.name for f in golden.schema if f.name not in (AT, *pairing.key) and _is_number(f.type)]
    others = [n for n in golden.column_names if n not in (AT, *pairing.key, *numbers)]
    pairs = [(place, wanted[place], got[place]) for place in wanted if place in got]
    odd = {place for place, one, two in pairs if any(_plain(one[n]) != _plain(two.get(n)) for n in others)}
    off = {place for place, one, two in pairs if not all(_close(one[n], two.get(n)) for n in numbers)}
    far = {
        place for place, one, two in pairs if not all(_close(one[n], two.get(n), tolerance) for n in numbers)
    }
    scope = set(behind)
    columns = {
        name: _relative([(one[name], two.get(name)) for place, one, two in pairs if place in scope])
        for name in numbers
    }
    moments = [wanted[place][AT] for place in (*missing, *odd, *far)] + [got[place][AT] for place in extra]
    rows_s = _until(moments, [wanted[place][AT] for place in behind], killed_at, golden)
    return Deviation(
        max(len(behind), 1 if missing else 0),
        len(missing),
        len(extra),
        len(odd | off),
        columns,
        len(odd),
        *rows_s,
    )


def _until(
    wrong: Sequence[float], behind: Sequence[float], killed_at: float, golden: pa.Table
) -> tuple[int | None, float | None]:
    """Rows and seconds from the kill until everything agrees."""
    if not wrong:
        return 0, 0.0
    last, end = max(wrong), max(golden[AT].to_pylist(), default=killed_at)
    if last >= end:
        return None, None
    return sum(at <= last for at in behind), max(last - killed_at, 0.0)


def _placed(table: pa.Table | None, pairing: Pairing) -> dict[Place, Row]:
    """Rows by what pairs them."""
    placed: dict[Place, Row] = {}
    seen: Counter[Place] = Counter()
    for row in [] if table is None else table.to_pylist():
        place: Place = tuple(_plain(row.get(name)) for name in pairing.key)
        if pairing.by_moment:
            place = (*place, row[AT])
        seen[place] += 1
        placed[(*place, seen[place])] = row
    return placed


def _plain(value: Any) -> Any:
    """Something that can be looked up and compared: lists and maps too, and a NaN that equals itself."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return value if isinstance(value, str | int | float | bool | bytes | None) else repr(value)


def _close(one: Any, two: Any, tolerance: float = SAME) -> bool:
    if one is None or two is None or _plain(one) == "NaN" or _plain(two) == "NaN":
        return bool(_plain(one) == _plain(two))
    return math.isclose(one, two, rel_tol=tolerance, abs_tol=SAME)


def _relative(pairs: Sequence[tuple[Any, Any]]) -> float:
    numbers = [(float(one), float(two)) for one, two in pairs if one is not None and two is not None]
    numbers = [pair for pair in numbers if not any(map(math.isnan, pair))]
    if not numbers:
        return 0.0
    squares = sum((one - two) ** 2 for one, two in numbers)
    whole = sum(one * one for one, _ in numbers)
    return math.sqrt(squares / (whole or len(numbers)))
