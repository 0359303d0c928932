"""Tasks may read Parquet files stretch by stretch: together they are what is read at once, wherever a slice begins and ends."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import examples

from holdfast.language.connectors import POSITION_COLUMNS, Stamp
from holdfast.language.tables import tables_of
from holdfast.sources import parquet_tasks
from holdfast.sources.file_plan import FilePiece
from holdfast.sources.lines import BEGINNING
from holdfast.sources.parquet_tasks import ParquetReader

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, int]]:
    """Files with their rows: many small groups, one group, none."""
    place, found = tmp_path_factory.mktemp("parquet"), []
    for rows, group in ((100, 7), (30, 100), (0, 10), (64, 16)):
        table = pa.table({"n": range(rows), "s": [str(n) for n in range(rows)]}, schema=SCHEMA)
        path = Path(place, f"{rows}.parquet")
        pq.write_table(table, path, row_group_size=group)
        found.append((str(path), rows))
    return found


@examples(40)
@given(data=st.data())
def test_stretches_are_the_slice(files: list[tuple[str, int]], data: st.DataObject) -> None:
    pieces = []
    for ordinal, (path, rows) in enumerate(data.draw(st.lists(st.sampled_from(files), max_size=3))):
        begin = data.draw(st.integers(0, rows))
        end = data.draw(st.none() | st.integers(begin, rows))
        until = None if end is None else BEGINNING._replace(row=end)
        pieces.append(FilePiece(path, ordinal, 0, BEGINNING._replace(row=begin), until))
    stamp = Stamp(1) if data.draw(st.booleans()) else None
    reader = ParquetReader(tuple(pieces), SCHEMA, stamp)
    columns = ["s", "n", *(POSITION_COLUMNS if stamp else ())]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_tasks, "STRETCH_ROWS", data.draw(st.integers(1, 40)))
        tables = list(tables_of(reader, columns))
    assert tables
    assert pa.concat_tables(tables).to_pylist() == reader(columns).to_pylist()
