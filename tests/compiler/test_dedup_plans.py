"""Dedup and lifetimes in plans: they need an order, hand it on, and say what is wrong."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.compiler.explain import explain_text
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.operators.values import Ttl
from holdfast.language.topology import Topology
from holdfast.operators.fingerprint import Fingerprint
from tests.language.fakes import FakeSource, compiled

EVENTS = pa.schema(
    [("id", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("tags", pa.list_(pa.string()))]
)


def events(t: Topology, name: str = "a") -> Any:
    return t.source(FakeSource(EVENTS), name)


def stamped(t: Topology) -> set[str]:
    return {str(stream) for stream in compiled(t).stamped}


def test_rows_that_pass_keep_their_positions_if_somebody_needs_them() -> None:
    t = Topology("t")
    events(t).dedup("id", name="once").aggregate("id", emit="each", n=hf.count(), name="n")
    events(t, "b").dedup("id", name="alone")
    assert stamped(t) == {"a", "once", "b"}


def test_rows_leave_with_the_columns_they_came_with() -> None:
    t = Topology("t")
    made = events(t).dedup(["id", "at"], name="once")
    assert compiled(t).schemas[made.ref] == EVENTS


def test_a_lifetime_by_event_time_needs_positions_and_one_by_the_clock_does_not() -> None:
    t = Topology("t")
    events(t).aggregate("id", ttl=hf.ttl(60, on="at", delay=0), n=hf.count(), name="timed")
    both = events(t, "b").union(events(t, "c"), name="u")
    both.aggregate("id", ttl=hf.ttl(60), n=hf.count(), name="clocked")
    assert stamped(t) == {"a"}


def test_durations_become_microseconds() -> None:
    assert hf.ttl(0.5) == Ttl(500_000)
    assert hf.ttl(60, on="at", delay=2) == Ttl(60_000_000, "at", 2_000_000)


MISTAKES: list[tuple[Any, str]] = [
    (lambda a: a.dedup([]), "needs the names of its key columns"),
    (lambda a: a.dedup(["id", 3]), "needs the names of its key columns"),
    (lambda a: a.dedup("id", ttl=3600), "ttl=3600 is no lifetime"),
    (lambda a: a.dedup("nothing"), "There is no column 'nothing'"),
    (lambda a: a.dedup("tags"), "'tags' of type .* cannot be a key"),
    (lambda a: a.dedup("id", ttl=hf.ttl(1, on="id", delay=0)), "by 'id', which is of type string"),
    (lambda a: a.dedup("id", ttl=hf.ttl(1, on="when", delay=0)), "by 'when', which is not there"),
    (
        lambda a: a.aggregate("id", n=hf.count(), ttl=hf.ttl(1, on="id", delay=0)),
        "by 'id', which is of type string",
    ),
    (lambda a: a.aggregate("id", n=hf.count(), ttl="1h"), "ttl='1h' is no lifetime"),
    (
        lambda a: a.aggregate("id", n=hf.count(), window=hf.tumbling(rows=2), ttl=hf.ttl(1)),
        "ttl= does not go with a window",
    ),
    (lambda a: hf.ttl(0), "length"),
    (lambda a: hf.ttl(1, on="", delay=0), "on='' is no column name"),
    (lambda a: hf.ttl(1, delay=3), "delay= needs event time"),
    (lambda a: a.sql("select * from this", name="lost").dedup("id"), "its input has no order: sql 'lost'"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_mistakes_are_refused_with_a_cure(mistake: Any, message: str) -> None:
    t = Topology("t")
    with pytest.raises(TopologyError, match=message) as caught:
        mistake(events(t))
        compiled(t)
    assert caught.value.cure


def test_the_first_of_several_sources_rows_is_not_defined() -> None:
    t = Topology("t")
    events(t).union(events(t, "b")).dedup("id", name="once")
    with pytest.raises(
        TopologyError, match=r"'once' lets the first row .* several places: 'a', 'b'"
    ) as caught:
        compiled(t)
    assert "each source by itself" in caught.value.cure


def test_several_sources_do_not_agree_on_who_is_forgotten() -> None:
    t = Topology("t")
    both = events(t).union(events(t, "b"))
    both.aggregate("id", ttl=hf.ttl(1, on="at", delay=0), n=hf.count(), name="n")
    with pytest.raises(TopologyError, match=r"'n' forgets keys by event time, but .* several") as caught:
        compiled(t)
    assert "processing time" in caught.value.cure


def test_fingerprints_tell_lifetimes_apart_but_not_their_length() -> None:
    found = {}
    for name, ttl in (
        ("none", None),
        ("clock", hf.ttl(1)),
        ("at", hf.ttl(1, on="at", delay=0)),
        ("longer", hf.ttl(2, on="at", delay=0)),
    ):
        t = Topology("t")
        events(t).dedup("id", ttl=ttl, name="once")
        events(t, "b").aggregate("id", ttl=ttl, n=hf.count(), name="n")
        plan = compiled(t)
        found[name] = [plan.fingerprint[OperatorName(op)] for op in ("once", "n")]
    frame = {"key": (("id", "string"),), "groups": 128}
    counted = {"aggregates": {"n": {"function": "count", "type": "int64"}}}
    assert found["none"] == [Fingerprint("dedup", frame), Fingerprint("aggregate", frame, counted)]
    assert found["clock"][0] == Fingerprint("dedup", {**frame, "lifetime": "clock"})
    assert found["at"][1] == Fingerprint("aggregate", {**frame, "lifetime": "at"}, counted)
    assert found["longer"] == found["at"]


def test_explain_says_what_is_kept_for_how_long() -> None:
    t = Topology("t")
    events(t).dedup("id", ttl=hf.ttl(3600, on="at", delay=0), name="once")
    assert "first row by id, forgotten after 3600 s of at" in explain_text(compiled(t))
