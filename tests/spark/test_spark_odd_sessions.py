"""A session of the user's own with other settings than holdfast's: the same rows come out."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import OnSpark

import holdfast as hf
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology

pytestmark = pytest.mark.spark

ODD = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
}
SCHEMA = "id long, k string, at timestamp, w timestamp, s struct<t: timestamp>"
BEGIN = dt.datetime(2026, 3, 8, 4, tzinfo=dt.UTC)
"""Clocks in New York are put forward three hours later."""


def at(n: int) -> dt.datetime:
    return BEGIN + dt.timedelta(minutes=n)


@pytest.fixture
def odd(spark: Any) -> Iterator[Any]:
    before = {name: spark.conf.get(name) for name in ODD}
    for name, value in ODD.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture
def on_spark(odd: Any, tmp_path: Path, shuffled: bool) -> OnSpark:
    return OnSpark(odd, tmp_path)


def rows(topology: Topology, place: Path) -> Stream:
    """A row per minute, of two keys in turn; Spark reads them: for its options are meant."""
    place.mkdir(exist_ok=True)
    lines = [
        {"id": n, "k": "ab"[n % 2], "at": f"{at(n):%FT%TZ}", "w": f"{at(9 * n):%FT%TZ}", "s": {"t": f"{at(n):%FT%TZ}"}}
        for n in range(600)
    ]  # fmt: skip
    (place / "rows.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = hf.Files(place, "json", SCHEMA, options={"allowComments": True})
    return topology.source(source, name="rows").event_time("at", delay=0).consistent("r", period=1)


def test_times_of_another_zone_reach_every_keyed_operator(on_spark: OnSpark, tmp_path: Path) -> None:
    def build(topology: Topology) -> list[Stream]:
        read = rows(topology, tmp_path / "in")
        return [
            read.aggregate("k", first=hf.first("w"), most=hf.max("w"), all=hf.collect("s"), name="running"),
            read.aggregate("w", n=hf.count(), name="by_time"),
            read.aggregate("k", window=hf.tumbling("1 hour"), last=hf.last("w"), name="hours"),
            read.aggregate("k", window=hf.tumbling(rows=100), last=hf.max("w"), name="hundreds"),
            read.aggregate("k", window=hf.session("1 minute"), most=hf.max("w"), name="alone"),
            read.dedup("w", ttl=hf.ttl("1 hour"), name="once"),
            read.top_n(1, by="k", order="-w", name="newest"),
        ]

    running, by_time, hours, hundreds, alone, once, newest = on_spark.several(build, close=True)
    last = {row["k"]: row for row in running.to_pylist()}
    for number, key in enumerate("ab"):
        own = range(number, 600, 2)
        assert (last[key]["first"], last[key]["most"]) == (at(9 * own[0]), at(9 * own[-1]))
        assert [each["t"] for each in last[key]["all"]] == [at(n) for n in own]
    assert sorted(by_time["w"].to_pylist()) == [at(9 * n) for n in range(600)]
    assert sorted((row["window_start"], row["k"], row["last"]) for row in hours.to_pylist()) == [
        (at(hour), "ab"[k], at(9 * (hour + 58 + k))) for hour in range(0, 600, 60) for k in range(2)
    ]
    assert sorted(hundreds["last"].to_pylist()) == [at(9 * n) for n in (198, 199, 398, 399, 598, 599)]
    assert sorted(alone["most"].to_pylist()) == [at(9 * n) for n in range(600)]
    assert sorted(once["id"].to_pylist()) == list(range(600))
    assert {row["w"] for row in newest.to_pylist() if row["rank"] == 1} >= {at(9 * 598), at(9 * 599)}


def test_functions_over_tables_see_times_in_utc(on_spark: OnSpark, tmp_path: Path) -> None:
    def hours(table: Any) -> Any:
        return pa.table({"id": table["id"], "hour": pc.hour(table["at"]).cast(pa.int64())})

    found = on_spark(lambda topology: rows(topology, tmp_path / "in").map_arrow(hours, "id long, hour long"))
    assert {row["id"]: row["hour"] for row in found.to_pylist()} == {n: at(n).hour for n in range(600)}
