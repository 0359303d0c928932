"""Tables of any types compared by key and row by row, against plain Python."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from holdfast.checkpoint.look.table_matching import codes, match_by_key, match_rows
from holdfast.state.columns.hashing import HASH_COLUMN, key_hash

POINT = pa.struct([("x", pa.int64()), ("names", pa.list_(pa.string()))])


def some(kind: pa.DataType, chance: random.Random) -> Any:
    """A value; few different ones, so that many are equal."""
    if chance.random() < 0.15:
        return None
    few = chance.randrange(3)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [some(kind.value_type, chance) for _ in range(few)]
    if pa.types.is_struct(kind):
        return {field.name: some(field.type, chance) for field in kind}
    if pa.types.is_map(kind):
        return [(f"k{number}", some(kind.item_type, chance)) for number in range(few)]
    made: dict[str, Any] = {
        "string": f"s{few}",
        "double": [0.0, float("nan"), 1.5][few],
        "float": [0.5, float("inf"), -2.0][few],
        "bool": few > 1,
        "binary": bytes([few]),
        "large_binary": bytes([few, 0]),
        "date32[day]": dt.date(2026, 1, 1 + few),
        "null": None,
    }
    if pa.types.is_timestamp(kind):
        return dt.datetime(2026, 1, 1, 0, few)
    if pa.types.is_decimal(kind):
        return decimal.Decimal(few)
    return made.get(str(kind), few)


KINDS = [
    pa.int64(), pa.string(), pa.float64(), pa.float32(), pa.bool_(), pa.binary(), pa.large_binary(), pa.date32(),
    pa.timestamp("us"), pa.decimal128(38, 0), pa.null(), POINT, pa.list_(pa.int64()), pa.large_list(POINT),
    pa.list_(pa.list_(pa.float64())), pa.map_(pa.string(), pa.int64()),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_equal_values_have_equal_codes_and_others_do_not(kind: pa.DataType) -> None:
    seed = 7
    print("seed", seed)
    chance = random.Random(seed)
    column = pa.array([some(kind, chance) for _ in range(120)], kind).slice(7)  # offsets must not matter
    found = codes(column).tolist()
    values = [repr(value) for value in column.to_pylist()]
    for first in range(len(values)):
        for second in range(first):
            assert (found[first] == found[second]) == (values[first] == values[second]), (
                values[first],
                values[second],
            )


def table(rows: dict[str | None, Any]) -> pa.Table:
    keys = pa.array(list(rows), pa.string())
    return pa.table(
        [pa.array(key_hash([keys])), keys, pa.array(list(rows.values()), POINT)],
        schema=pa.schema([(HASH_COLUMN, pa.int64()), ("k", pa.string()), ("v", POINT)]),
    )


@pytest.mark.parametrize("seed", range(6))
def test_rows_are_matched_by_key(seed: int) -> None:
    chance = random.Random(seed)
    keys = [None, *(f"k{number}" for number in range(40))]
    old, new = (
        {key: some(POINT, chance) for key in chance.sample(keys, chance.choice([0, 1, 20, 40]))} for _ in "ab"
    )
    matched = match_by_key(table(old), table(new), ["k"])
    names = list(new)
    assert {names[row] for row in matched.added} == new.keys() - old.keys()
    assert {list(old)[row] for row in matched.removed} == old.keys() - new.keys()
    assert {names[row] for row in matched.changed_after} == {
        key for key in old.keys() & new.keys() if old[key] != new[key]
    }
    assert [list(old)[row] for row in matched.changed_before] == [names[row] for row in matched.changed_after]


@pytest.mark.parametrize("seed", range(6))
def test_rows_without_keys_are_matched_as_often_as_they_occur(seed: int) -> None:
    chance = random.Random(seed)
    schema = pa.schema([("a", pa.int64()), ("v", POINT)])
    old, new = (
        pa.Table.from_pylist(
            [
                {"a": some(pa.int64(), chance), "v": some(POINT, chance)}
                for _ in range(chance.choice([0, 30, 60]))
            ],
            schema,
        )
        for _ in "ab"
    )
    matched = match_rows(old, new)
    before, after = (Counter(map(repr, each.to_pylist())) for each in (old, new))
    assert Counter(repr(row) for row in new.take(pa.array(matched.added)).to_pylist()) == after - before
    assert Counter(repr(row) for row in old.take(pa.array(matched.removed)).to_pylist()) == before - after


def test_keys_that_share_a_hash_are_told_apart() -> None:
    old, new = table({"a": None, "b": None}), table({"b": None, "c": None})
    same = pa.array([5, 5], pa.int64())
    old, new = (each.set_column(0, each.schema.field(0), same) for each in (old, new))
    matched = match_by_key(old, new, ["k"])
    assert (matched.added.tolist(), matched.removed.tolist(), len(matched.changed_after)) == ([1], [0], 0)
