"""The source and the sink of docs/language.md run, also over a failure, and the source passes the suite for sources."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.ids import Attempt, Epoch
from holdfast.language.connectors import StepId
from holdfast.testing.local import run_local
from holdfast.testing.sink_conformance import context
from holdfast.testing.source_conformance import SourceConformance

PAGE = Path(__file__).resolve().parents[2] / "docs" / "language.md"
SCHEMA = pa.schema([("word", pa.string()), ("n", pa.int64())])
ROWS = [(f"w{number % 7}", number) for number in range(100)]


def from_the_page(what: str) -> Any:
    (text,) = re.findall(rf"```python {what}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {"hf": hf, "pa": pa, "sqlite3": sqlite3, "closing": closing}
    exec(text, names)
    return names[f"Table{what.capitalize()}"]


def base(path: Path) -> str:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("create table words (word text, n integer)")
        db.executemany("insert into words values (?, ?)", ROWS)
        db.execute("delete from words where n % 10 = 3")
        db.execute("create table result (word text, n integer, last integer)")
    return str(path)


WANTED = [row for row in ROWS if row[1] % 10 != 3]


class TestTheSource(SourceConformance):
    @pytest.fixture(autouse=True)
    def _base(self, tmp_path: Path) -> None:
        self.path = base(tmp_path / "words.db")

    def make(self, rows_per_step: int | None) -> hf.Source:
        source = from_the_page("source")(self.path, "words", SCHEMA, rows_per_step or 1000)
        assert isinstance(source, hf.Source)
        return source

    def expected(self) -> list[tuple[Any, ...]]:
        return WANTED


def result(path: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("select * from result").fetchall()


def topology(path: str) -> hf.Topology:
    made = hf.Topology("words")
    words = made.source(from_the_page("source")(path, "words", SCHEMA, 10), name="words")
    counted = words.consistent(period=0.02).aggregate(
        "word", "each", n=hf.count(), last=hf.last("n"), name="count"
    )
    counted.sink(from_the_page("sink")(path, "result"), name="out")
    return made


def test_rows_go_from_the_one_to_the_other_and_no_row_twice(tmp_path: Path) -> None:
    path = base(tmp_path / "words.db")
    for _ in range(2):
        run_local(topology(path), store=f"file:{tmp_path}/store")
        found = result(path)
        assert sorted(last for _, _, last in found) == [n for _, n in WANTED]
        for word in {word for word, _ in WANTED}:
            assert sorted(n for w, n, _ in found if w == word) == list(
                range(1, 1 + sum(w == word for w, _ in WANTED))
            )


def test_an_epoch_that_is_committed_again_changes_nothing(tmp_path: Path) -> None:
    path = base(tmp_path / "words.db")
    sink = from_the_page("sink")(path, "result")
    sink.open(context())
    sink.restore(Epoch(0), None)
    sink.write_arrow(pa.table({"word": ["a"], "n": [1], "last": [7]}), StepId(Attempt(1), 1))
    prepared = sink.prepare(Epoch(1), sink.seal(Epoch(1)))
    assert result(path) == []
    sink.write_arrow(pa.table({"word": ["b"], "n": [1], "last": [8]}), StepId(Attempt(1), 2))
    sink.restore(Epoch(1), prepared)
    sink.commit(Epoch(1), prepared)
    sink.commit(Epoch(2), sink.prepare(Epoch(2), sink.seal(Epoch(2))))
    assert result(path) == [("a", 1, 7)]


MARKS = {
    "consistent",
    "checkpoint",
    "autonomous",
    "isolate",
    "may_lose",
    "malformed",
    "late",
    "errors",
    "ref",
    "barrier",
}


def test_the_page_says_of_every_verb_where_it_runs() -> None:
    """But of marks, borders and what only names a stream."""
    text = PAGE.read_text("utf-8")
    table = text[text.index("## What runs where") :]
    told = {
        name
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    verbs = {name for name in dir(hf.Stream) if not name.startswith("_")} - MARKS
    assert told - {"Topology"} == verbs
