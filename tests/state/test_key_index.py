"""Where keys are, against a dict: of every type that keys have, also where all hashes are the same."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.state.columns import key_index
from holdfast.state.columns.key_index import KeyIndex

DAY = dt.date(2026, 1, 1)
VALUES: dict[pa.DataType, Any] = {
    pa.int64(): lambda n: n - 20,
    pa.int32(): lambda n: n,
    pa.string(): lambda n: "long " * 30 * (n % 2) + str(n),
    pa.binary(): lambda n: bytes([n]),
    pa.date32(): lambda n: DAY + dt.timedelta(days=n),
    pa.timestamp("us", tz="UTC"): lambda n: dt.datetime(2026, 1, 1, n % 24, n // 24, tzinfo=dt.UTC),
    pa.decimal128(20, 2): lambda n: Decimal(n) / 4,
    pa.bool_(): lambda n: bool(n % 2),
}


def keys(rows: list[tuple[Any, ...]], types: list[pa.DataType]) -> list[pa.ChunkedArray]:
    """In chunks, as a table of several files has them."""
    half = len(rows) // 2
    return [
        pa.chunked_array([[row[i] for row in rows[:half]], [row[i] for row in rows[half:]]], type_)
        for i, type_ in enumerate(types)
    ]


@pytest.mark.parametrize("same_hash", [False, True], ids=["hashes", "one hash"])
@pytest.mark.parametrize("count", [1, 2])
def test_every_key_is_found_where_it_is_and_no_other(
    same_hash: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if same_hash:
        monkeypatch.setattr(key_index, "key_hash", lambda columns: np.full(len(columns[0]), 7))
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    for type_ in VALUES:
        types = [type_, *chance.choices(list(VALUES), k=count - 1)]

        def key(types: list[pa.DataType] = types) -> tuple[Any, ...]:
            return tuple(VALUES[each](chance.randrange(40)) for each in types)

        stored = list({key() for _ in range(30)})
        asked = [key() if chance.random() < 0.8 else (*key()[:-1], None) for _ in range(100)]
        found = KeyIndex(keys(stored, types)).find(keys(asked, types)).to_pylist()
        places = {each: place for place, each in enumerate(stored)}
        assert found == [places.get(each) for each in asked], f"seed {seed}, {types}"


def test_of_nothing_nothing_is_found() -> None:
    empty = KeyIndex([pa.array([], pa.string())])
    assert empty.find([pa.array(["a", None])]).to_pylist() == [None, None]
    assert KeyIndex([pa.array(["a"])]).find([pa.array([], pa.string())]).to_pylist() == []
