"""`sink(…, on_error="stream")`: rows that a sink cannot write are told once, the others are written once."""

from __future__ import annotations

import datetime as dt
import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from killed import killed_and_finished, written

import holdfast as hf
from holdfast.errors import ConfigError, RegionParkedError, TopologyError
from holdfast.sinks.output.bad_rows import FileRowCheck
from holdfast.testing import compare_rows, run_local

PROGRAM = Path(__file__).with_name("bad_rows_program.py")
ROWS = runpy.run_path(str(PROGRAM))["ROWS"]


def as_rows(which: Any) -> list[dict[str, Any]]:
    return [{"n": n, "k": k, "x": x} for n, k, x in ROWS if which(n, k, x)]


def is_lost(n: int, k: str, x: float) -> bool:
    return k == "" or x != x


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that can be compared: NaN is not equal to itself."""
    return [{**row, "x": "NaN" if row["x"] != row["x"] else row["x"]} for row in rows]


@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize(
    "kills",
    [
        ["sink.write=kill@7", "ckpt.epoch.published=kill@2", "sink.commit.applied=kill@3"],
        [
            "sink.prepared=kill@4",
            "step.end=kill@9",
            "ckpt.manifest.renamed=kill@2",
            "sink.commit.begin=kill@5",
        ],
    ],
)
def test_after_kills_each_bad_row_is_told_once_and_each_other_written_once(
    tmp_path: Path, kills: list[str]
) -> None:
    killed_and_finished(PROGRAM, tmp_path, kills)
    letters = {name: written(tmp_path, f"{name}_bad") for name in ("files", "function", "lines")}
    found = {name: [json.loads(letter["row"]) for letter in these] for name, these in letters.items()}
    compare_rows(plain(as_rows(is_lost)), plain(found["files"]))
    compare_rows(plain(as_rows(lambda n, k, x: n % 2)), plain(found["function"]))
    compare_rows(plain(as_rows(lambda n, k, x: x != x)), plain(found["lines"]))
    shown = [
        {**json.loads(line), "k": path.parent.name.removeprefix("k=")}
        for path in (tmp_path / "files").glob("k=*/part-*.json")
        for line in path.read_text().splitlines()
    ]
    compare_rows(as_rows(lambda n, k, x: not is_lost(n, k, x)), shown)
    assert {letter["operator"] for letter in letters["lines"]} == {"lines"}
    for letter in letters["lines"]:
        assert letter["error"].startswith("ValueError: Out of range float values are not JSON compliant")
        assert f'File "{PROGRAM}"' in letter["traceback"]
    assert {letter["error"] for letter in letters["function"]} == {"odd"}


@pytest.fixture
def shelf(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.node.name
    hf.MemorySink.clear(request.node.name)


def stream(rows: list[Any], region: bool = True) -> tuple[hf.Topology, hf.Stream]:
    topology = hf.Topology("bad")
    source = topology.source(hf.Rows(rows, "n long, t string", rows_per_step=2), name="rows")
    return topology, source.consistent("r", period=0.02) if region else source


# --- what a file sink cannot write ---


def reasons(check: FileRowCheck, **columns: Any) -> list[str | None]:
    return check(pa.table(columns))


def test_csv_has_no_line_breaks_and_no_empty_rows() -> None:
    check = FileRowCheck("csv", ())
    found = reasons(check, t=["a", "a\nb", "a\rb", None, ""], n=[1, 2, 3, 4, 5])
    assert [bool(reason) for reason in found] == [False, True, True, False, False]
    found = reasons(check, t=["a", None, ""])
    assert [bool(reason) for reason in found] == [False, True, False]
    assert "empty line" in str(found[1])


def test_json_has_no_odd_numbers() -> None:
    found = reasons(
        FileRowCheck("json", ()), x=[1.0, float("nan"), float("inf"), None], t=["a\n", "", "", ""]
    )
    assert [bool(reason) for reason in found] == [False, True, True, False]


def test_partitions_are_names_of_directories_that_are_read_as_what_they_were() -> None:
    check = FileRowCheck("parquet", ("k", "n"))
    just, over = "ä" * 126, "ä" * 127  # two bytes each, behind "k="
    texts = ["a", "", None, "__HIVE_DEFAULT_PARTITION__", just, over, "/" * 84, "/" * 85]
    found = reasons(check, k=texts, n=list(range(8)), v=list(range(8)))
    assert [bool(reason) for reason in found] == [False, True, False, True, False, True, False, True]


def test_a_directory_of_the_longest_name_can_be_made(tmp_path: Path, shelf: str) -> None:
    topology, rows = stream([(1, "ä" * 126), (2, "ä" * 127), (3, "a/b")])
    out = hf.FileSink(str(tmp_path / "out"), "parquet", partition_by="t")
    rows.sink(out, name="out", on_error="stream").errors.sink(hf.MemorySink(shelf), name="bad")
    run_local(topology, f"file:{tmp_path}/store")
    assert [json.loads(letter["row"])["n"] for letter in hf.MemorySink.rows(shelf)] == [2]
    assert len(hf.FileSink.files(str(tmp_path / "out"))) == 2


# --- what sinks of one's own say ---


def test_a_function_refuses_rows_and_an_outage_is_no_matter_of_a_row(tmp_path: Path, shelf: str) -> None:
    tries, kept = 0, []

    def insert(table: pa.Table, step: int) -> None:
        nonlocal tries
        for row in table.to_pylist():
            tries += row["n"] == 3
            if row["n"] == 3 and tries < 3:
                out.refuse(row, ConnectionError("the database is away"))
            if row["n"] == 2:
                out.refuse(row, "twice")
            else:
                kept.append(row["n"])

    out = hf.ForeachBatch(insert)
    topology, rows = stream([(n, "a") for n in range(6)])
    rows.sink(out, name="out", on_error="stream").errors.sink(hf.MemorySink(shelf), name="bad")
    run_local(topology, f"file:{tmp_path}/store")
    (letter,) = hf.MemorySink.rows(shelf)
    assert (letter["error"], json.loads(letter["row"])) == ("twice", {"n": 2, "t": "a"})
    assert set(kept) == {0, 1, 3, 4, 5}
    assert tries == 3


def test_without_a_stream_a_refused_row_parks_the_region_and_names_the_sink(tmp_path: Path) -> None:
    def insert(table: pa.Table, step: int) -> None:
        out.refuse(table.to_pylist()[0], "too large")

    out = hf.ForeachBatch(insert)
    topology, rows = stream([(1, "a")])
    rows.sink(out, name="out")
    with pytest.raises(
        RegionParkedError, match=r"failed twice in the same way.*sink 'out' refused a row: too large"
    ):
        run_local(topology, f"file:{tmp_path}/store")


def test_a_function_that_raises_is_told_with_its_sink_and_its_lines(tmp_path: Path) -> None:
    def insert(table: pa.Table, step: int) -> None:
        raise KeyError("customer")  # what is shown

    topology, rows = stream([(1, "a")])
    rows.sink(hf.ForeachBatch(insert), name="out")
    with pytest.raises(RegionParkedError, match="sink 'out': KeyError: 'customer'") as caught:
        run_local(topology, f"file:{tmp_path}/store")
    assert "# what is shown" in str(caught.value)


def test_after_its_epoch_is_published_it_is_too_late_to_refuse_a_row(tmp_path: Path, shelf: str) -> None:
    def insert(table: pa.Table, epoch: int) -> None:
        out.refuse(table.to_pylist()[0], "too late")

    out = hf.ForeachBatch(insert, "epoch", staging=str(tmp_path / "staging"))
    topology, rows = stream([(1, "a")])
    rows.sink(out, name="out", on_error="stream").errors.sink(hf.MemorySink(shelf), name="bad")
    with pytest.raises((ConfigError, RegionParkedError), match="published already"):
        run_local(topology, f"file:{tmp_path}/store")
    assert not hf.MemorySink.rows(shelf)


@pytest.mark.parametrize("answers", [lambda table: [None], lambda table: [1.5] * table.num_rows])
def test_a_check_that_gives_no_answers_is_refused(tmp_path: Path, answers: Any) -> None:
    topology, rows = stream([(1, "a"), (2, "b")])
    sink = hf.ForeachBatch(lambda table, step: None, check=answers)
    rows.sink(sink, name="out", on_error="stream").errors.sink(hf.MemorySink(tmp_path.name), name="bad")
    with pytest.raises(TopologyError, match="the check of sink 'out' gave"):
        run_local(topology, f"file:{tmp_path}/store")


def test_outside_of_regions_bad_rows_are_told_at_once(shelf: str) -> None:
    topology, rows = stream([(n, "a") for n in range(7)], region=False)
    out = hf.ForeachBatch(
        lambda table, step: None,
        check=lambda table: ["no" if n > 4 else None for n in table["n"].to_pylist()],
    )
    bad = rows.sink(out, name="out", on_error="stream").errors
    bad.sink(hf.MemorySink(shelf), name="bad")
    run_local(topology)
    assert sorted(json.loads(letter["row"])["n"] for letter in hf.MemorySink.rows(shelf)) == [5, 6]


def test_behind_a_keyed_operator_and_with_values_of_all_kinds(tmp_path: Path, shelf: str) -> None:
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    topology = hf.Topology("bad")
    given = hf.Rows(
        [(1, at, b"\x00", "x\ny"), (2, at, b"a", "z")], "n long, at timestamp, b binary, t string"
    )
    rows = topology.source(given, name="rows").consistent("r", period=0.02)
    last = rows.aggregate("n", at=hf.last("at"), t=hf.last("t"), name="last")
    written = last.sink(hf.FileSink(str(tmp_path / "out"), "csv"), name="out", on_error="stream")
    written.errors.sink(hf.MemorySink(shelf), name="bad")
    run_local(topology, f"file:{tmp_path}/store")
    (letter,) = hf.MemorySink.rows(shelf)
    assert json.loads(letter["row"]) == {"n": 1, "at": at.isoformat(), "t": "x\ny"}


def test_errors_that_nobody_asked_for_are_refused() -> None:
    _, rows = stream([(1, "a")])
    written = rows.sink(hf.MemorySink("none"), name="out")
    with pytest.raises(TopologyError, match="has no errors of its own"):
        _ = written.errors
    with pytest.raises(TopologyError, match="on_error='drop' is not known"):
        rows.sink(hf.MemorySink("none"), name="other", on_error="drop")  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match=r"no attribute 'filter'. A sink ends its stream"):
        written.filter("a")  # type: ignore[attr-defined]


def test_bad_rows_that_nobody_reads_are_refused(tmp_path: Path) -> None:
    topology, rows = stream([(1, "a\n"), (2, "b")])
    rows.sink(hf.FileSink(str(tmp_path / "out"), "csv"), name="out", on_error="stream")
    with pytest.raises(
        TopologyError, match="'out' was told on_error=\"stream\", and nobody reads its errors"
    ):
        run_local(topology, f"file:{tmp_path}/store")
    assert not (tmp_path / "out").exists()
