"""The key hash equals Spark's xxhash64, by pinned vectors and against a live session."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import StateError
from holdfast.state.columns.hashing import (
    key_group,
    key_hash,
    owned,
    partition_of_group,
)

GOLDEN_INPUT = pa.table(
    {
        "k": ["", "a", "holdfast", "x" * 32, "ümläut-€-𝄞-longer-than-thirty-two-bytes", None],
        "n": pa.array([0, 1, -1, 2**63 - 1, None, None], pa.int64()),
        "d": pa.array(
            [
                Decimal(t) if t else None
                for t in ("0.00", "1.50", "-1.28", "99999999999999999999.99", "", "-0.01")
            ],
            pa.decimal128(30, 2),
        ),
        "f": pa.array([0.0, -0.0, math.nan, 1.5, -math.inf, None]),
    }
)
NULL = -6698625589789238999
# Computed by Spark 4.3.0: never to be changed.
GOLDEN: dict[tuple[str, ...], list[int]] = {
    ("k",): [-6955412699463271691, 8801252947673251782, -5979053000219705984, 8346466930215358248, 2126789780404987625,
             NULL],
    ("n",): [-2984540310115537990, 3991688660284491372, 5740949786098319654, -3248340776187632604, NULL, NULL],
    ("d",): [7798590094370722443, 4245497869243609004, 8730540277081116713, -2114182341596831627, NULL,
             -2732743038229704577],
    ("f",): [-2984540310115537990, -2984540310115537990, -1575494597170258239, 629924457955329920,
             -8760164720074431227, NULL],
    ("k", "n", "d", "f"): [-6955041200446370467, -6689423693077342191, -5284508565418868407, 4527360934482267464,
                           5717381558530918595, 8474798227756090510],
}  # fmt: skip


@pytest.mark.parametrize("columns", GOLDEN, ids="-".join)
@pytest.mark.fault("I06")
def test_the_hash_is_what_spark_gave_when_it_was_pinned(columns: tuple[str, ...]) -> None:
    assert key_hash([GOLDEN_INPUT[name] for name in columns]).tolist() == GOLDEN[columns]


@pytest.mark.fault("I06")
def test_other_seeds_of_pythons_hashes_change_no_hash_and_no_stored_byte() -> None:
    """Two interpreters: what Python's own hash decides differs between them, what is stored does not."""
    script = (
        "import pyarrow as pa\n"
        "from holdfast.state.columns.hashing import key_hash\n"
        "from holdfast.state.values.codec import encode\n"
        "names = [f'key {n}' for n in range(50)]\n"
        "print(list(set(names)))\n"
        "print(key_hash([pa.array(names)]).tolist(), encode({'a': set(names), 'b': frozenset(names)}))"
    )
    told = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        told.append(done.stdout.splitlines())
    (order, stored), (another_order, stored_again) = told
    assert order != another_order, "both have the same seed"
    assert stored == stored_again


def test_layout_does_not_matter() -> None:
    plain = pa.array(["a", None, "holdfast", ""])
    expected = key_hash([plain]).tolist()
    for other in (
        plain.cast(pa.large_string()),
        plain.dictionary_encode(),
        pa.chunked_array([plain[:1], plain[1:1], plain[1:]]),
        pa.array(["zzz", "a", None, "holdfast", ""])[1:],
    ):
        assert key_hash([other]).tolist() == expected
    digits = pa.array([Decimal(1), None, Decimal(-5)], pa.decimal128(20, 0))
    assert key_hash([digits[1:]]).tolist() == key_hash([digits]).tolist()[1:]


def test_null_flags_keep_shifted_keys_apart() -> None:
    a, b = pa.array(["x", None]), pa.array([None, "x"])
    first, second = key_hash([a, b]).tolist()
    assert first != second


def test_empty_input_and_unsupported_types() -> None:
    assert key_hash([pa.array([], pa.string())]).tolist() == []
    with pytest.raises(StateError, match="list"):
        key_hash([pa.array([[1]])])
    with pytest.raises(StateError, match="at least one"):
        key_hash([])


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 64, 127, 128])
def test_partitions_own_contiguous_ranges_of_groups(partitions: int) -> None:
    owners = partition_of_group(np.arange(128), partitions)
    assert (np.diff(owners) >= 0).all()
    assert set(owners.tolist()) == set(range(partitions))
    sizes = np.bincount(owners)
    assert sizes.max() - sizes.min() <= 1


def test_groups_are_never_negative() -> None:
    assert key_group(np.array([-1, -128, 5, -(2**63)])).tolist() == [127, 0, 5, 0]


def random_table(rows: int) -> pa.Table:
    rng = random.Random(1)
    wide = Context(prec=60)

    def column(kind: pa.DataType, make: Any, stored: pa.DataType | None = None) -> pa.Array:
        values = [None if rng.random() < 0.1 else make() for _ in range(rows)]
        return pa.array(values, stored or kind).cast(kind) if stored else pa.array(values, kind)

    def number() -> float:
        return rng.choice([0.0, -0.0, math.nan, math.inf, -1.5, rng.gauss(0, 1e5)])

    return pa.table(
        {
            "b": column(pa.bool_(), lambda: rng.random() < 0.5),
            "i8": column(pa.int8(), lambda: rng.randint(-128, 127)),
            "i16": column(pa.int16(), lambda: rng.randint(-(2**15), 2**15 - 1)),
            "i32": column(pa.int32(), lambda: rng.randint(-(2**31), 2**31 - 1)),
            "i64": column(pa.int64(), lambda: rng.randint(-(2**63), 2**63 - 1)),
            "f32": column(pa.float32(), number),
            "f64": column(pa.float64(), number),
            "s": column(pa.string(), lambda: "".join(rng.choices("aäß€𝄞z0", k=rng.randint(0, 40)))),
            "bin": column(pa.binary(), lambda: rng.randbytes(rng.randint(0, 70))),
            "d": column(pa.date32(), lambda: rng.randint(-(10**5), 10**5), pa.int32()),
            "ts": column(pa.timestamp("us", tz="UTC"), lambda: rng.randint(-(10**15), 10**15), pa.int64()),
            "tn": column(pa.timestamp("us"), lambda: rng.randint(-(10**15), 10**15), pa.int64()),
            "d18": column(
                pa.decimal128(18, 6), lambda: wide.scaleb(Decimal(rng.randint(-(10**18) + 1, 10**18 - 1)), -6)
            ),
            "d38": column(
                pa.decimal128(38, 10),
                lambda: wide.scaleb(
                    Decimal(rng.choice([-1, 1]) * rng.randint(0, 10 ** rng.randint(1, 37))), -10
                ),
            ),
            "d20": column(
                pa.decimal128(20, 0), lambda: Decimal(rng.choice([-1, 1]) * 2 ** rng.randint(0, 63) - 1)
            ),
        }
    )


def in_spark(key: list[str]) -> str:
    """The hash of a key in Spark's words."""
    return "xxhash64(" + ", ".join(f"isnull(`{name}`), `{name}`" for name in key) + ")"


@pytest.mark.spark
@pytest.mark.slow
def test_the_hash_is_what_spark_gives_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession, functions

    existing = SparkSession.getActiveSession()
    session = existing or (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    )
    try:
        table = random_table(300)
        keys = [[name] for name in table.column_names] + [table.column_names, ["s", "bin", "s"]]
        expressions = [functions.expr(in_spark(key)).alias(str(i)) for i, key in enumerate(keys)]
        theirs = session.createDataFrame(table).select(*expressions).toArrow()
        for i, key in enumerate(keys):
            assert key_hash([table[name] for name in key]).tolist() == theirs[str(i)].to_pylist(), key
    finally:
        if existing is None:
            session.stop()


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 127, 128, 200])
def test_a_partition_knows_what_it_owns_without_asking_for_the_owner(partitions: int) -> None:
    hashes = np.random.default_rng(partitions).integers(-(2**63), 2**63 - 1, 5000)
    owner = partition_of_group(key_group(hashes), partitions)
    for partition in range(partitions):
        assert (owned(hashes, partition, partitions) == (owner == partition)).all()
