"""`Rows` made of pandas DataFrames and Arrow tables; `MemorySink` read as both."""

from __future__ import annotations

import datetime
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.errors import HoldfastError
from holdfast.testing.local import run_local

AT = [datetime.datetime(2026, 1, 1, 0, 0, n, tzinfo=datetime.UTC) for n in range(3)]
COLUMNS = {"word": ["to", None, "be"], "n": [1, 2, 3], "at": AT}
WANTED = pa.table(
    COLUMNS,
    schema=pa.schema([("word", pa.string()), ("n", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))]),
)


def through(source: hf.Source) -> hf.MemorySink:
    topology, sink = hf.Topology("tables"), hf.MemorySink("tables")
    hf.MemorySink.clear("tables")
    topology.source(source, name="rows").sink(sink, name="out")
    run_local(topology)
    return sink


@pytest.mark.parametrize(
    "data",
    [
        pd.DataFrame(COLUMNS, index=["a", "b", "c"]),
        pd.DataFrame({**COLUMNS, "word": pd.Categorical(COLUMNS["word"])}),
        pa.table(COLUMNS),
        pa.table(COLUMNS).cast(
            pa.schema(
                [
                    ("word", pa.large_string()),
                    ("n", pa.int64()),
                    ("at", pa.timestamp("ns", tz="Europe/Berlin")),
                ]
            )
        ),
        pa.RecordBatch.from_pydict(COLUMNS),
    ],
    ids=["pandas", "pandas with categories", "Arrow", "Arrow of other types", "a record batch"],
)
def test_rows_of_a_table_come_out_as_they_are(data: Any) -> None:
    sink = through(hf.Rows(data, rows_per_step=2))
    assert sink.to_arrow().schema == WANTED.schema
    assert sink.to_arrow().to_pylist() == WANTED.to_pylist()
    pd.testing.assert_frame_equal(sink.to_pandas(), WANTED.to_pandas())


def test_a_schema_chooses_and_converts_columns() -> None:
    assert through(hf.Rows(pd.DataFrame(COLUMNS), "n int, word string")).to_arrow().to_pylist() == [
        {"n": n, "word": word} for n, word in zip([1, 2, 3], ["to", None, "be"], strict=True)
    ]


def test_a_sink_without_rows_is_an_empty_table() -> None:
    hf.MemorySink.clear("never")
    assert hf.MemorySink("never").to_arrow().num_rows == len(hf.MemorySink("never").to_pandas()) == 0


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: hf.Rows([(1,)]), "rows need a schema"),
        (lambda: hf.Rows(pd.DataFrame({"a": [1]}), "b long"), "has no column 'b'"),
        (lambda: hf.Rows(pd.DataFrame({"a": ["x"]}), "a long"), "does not fit the schema"),
        (lambda: hf.Rows(pa.table({"__hf_a": [1]})), "beginning with '__hf_'"),
    ],
)
def test_tables_that_do_not_fit_are_refused(make: Any, why: str) -> None:
    with pytest.raises(HoldfastError, match=why) as caught:
        make()
    assert caught.value.cure
