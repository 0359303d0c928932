"""Names that PySpark has, and names that are misspelt, are answered with what to write here."""

from __future__ import annotations

import copy
import re
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.language import hints
from tests.language.fakes import FakeSink, FakeSource, compiled

TOPOLOGY = hf.Topology("t")
STREAM = TOPOLOGY.source(FakeSource(), "a")


def run_of_nothing() -> hf.Run:
    """A run that never began."""

    class Nothing(hf.Run):
        status = stop = await_termination = resume = trigger_epoch = savepoint = close = ui = None  # type: ignore[assignment]

    return Nothing()


OWNERS: list[tuple[Any, dict[str, str]]] = [
    (STREAM, dict(hints.STREAM)),
    (TOPOLOGY, dict(hints.TOPOLOGY)),
    (hf, dict(hints.MODULE)),
    (STREAM.group_by("a"), dict(hints.GROUPED)),
    (run_of_nothing(), dict(hints.RUN)),
]
NAMES = [(owner, name) for owner, told in OWNERS for name in told]


@pytest.mark.parametrize(("owner", "name"), NAMES)
def test_a_name_of_pyspark_is_answered_with_what_to_write(owner: Any, name: str) -> None:
    assert not hasattr(owner, name)
    with pytest.raises(AttributeError, match=re.escape(repr(name))) as caught:
        getattr(owner, name)
    assert re.search(r"'\. \w.*\.$", str(caught.value)), "something follows the refusal"


@pytest.mark.parametrize(
    "name",
    [
        "groupBy",
        "withColumn",
        "withColumns",
        "dropDuplicates",
        "drop_duplicates",
        "writeStream",
        "withWatermark",
        "unionByName",
        "withColumnRenamed",
        "foreachBatch",
    ],
)
def test_the_usual_names_of_a_stream_are_among_them(name: str) -> None:
    assert name in hints.STREAM


VERB = re.compile(r"(?:Write |stream\.|, or |\.)([a-z_]+)\(")


@pytest.mark.parametrize(("owner", "name"), NAMES)
def test_what_is_said_exists(owner: Any, name: str) -> None:
    """Every verb and every name of holdfast in a hint is one that there is."""
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    text = str(caught.value)
    for used in re.findall(r"hf\.(\w+)", text):
        assert hasattr(hf, used), used
    for verb in VERB.findall(re.sub(r"(pyspark|pyarrow|table|hf)\.[\w.]+\(", "", text)):
        found = (STREAM, TOPOLOGY, STREAM.group_by("a"), run_of_nothing())
        assert any(hasattr(one, verb) for one in found) or "handle" in text, verb


def written(text: str) -> str | None:
    """The program that a hint says to write, if it says all of it."""
    begin = re.search(r"Write (?=[a-z_]+\()", text)
    for end in (place + 1 for place, letter in enumerate(text) if letter == ")"):
        program = text[begin.end() : end] if begin else ""
        if program and program.count("(") == program.count(")"):
            return None if "…" in program or "Operator" in program or "by, fn" in program else program
    return None


PROGRAMS = {name: program for name, text in hints.STREAM.items() if (program := written(text))}


def test_most_hints_are_programs() -> None:
    assert len(PROGRAMS) > 20


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_said_compiles_as_it_is_written(name: str) -> None:
    """Whoever copies it is not refused for what the hint left out."""
    long, text, time = pa.int64(), pa.string(), pa.timestamp("us", tz="UTC")
    types = {"a": long, "b": long, "k": text, "id": text, "old": long, "x": long, "score": long, "at": time}
    columns = pa.schema(list(types.items()))
    topology = hf.Topology("hinted")
    given = {one: topology.source(FakeSource(columns), one) for one in ("stream", "other")}
    made = eval(f"stream.{PROGRAMS[name]}", {**given, "hf": hf, "fn": print, "schema": "a long"})
    if isinstance(made, hf.Stream):
        made.sink(FakeSink(), "out")
        compiled(topology)


@pytest.mark.parametrize(
    ("owner", "name", "meant"),
    [
        (STREAM, "fliter", "filter"),
        (STREAM, "mapArrow", "map_arrow"),
        (STREAM, "eventTime", "event_time"),
        (TOPOLOGY, "sourse", "source"),
        (hf, "tumblin", "tumbling"),
        (hf, "Tumbling", "tumbling"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(owner: Any, name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"Did you mean '{meant}'"):
        getattr(owner, name)


def test_a_name_that_is_like_no_other_is_only_refused() -> None:
    for owner, _ in OWNERS:
        with pytest.raises(AttributeError, match=r"has no attribute 'qqqq'\.$"):
            _ = owner.qqqq


def test_streams_can_still_be_copied() -> None:
    assert copy.copy(STREAM).ref == STREAM.ref
