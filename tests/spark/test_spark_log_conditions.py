"""Conditions on the time column of a log: the same rows whoever hears of them; in `holdfast logs query` what cannot have rows is not read."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull, LessThan, LessThanOrEqual, Not
from random_logs import BEGIN, TIMES, RandomLog
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli.main import app
from holdfast.log.query.wanted import Wanted
from holdfast.log.rows import microseconds
from holdfast.sources.logs.asked_times import PUSHDOWN
from holdfast.sources.logs.pushed import narrower, wanted_by
from holdfast.sources.logs.spark_versions import HAS_PUSHDOWN

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not HAS_PUSHDOWN, reason="conditions are told since Spark 4.1"),
]
KINDS = [kind for kind in TIMES if kind != "appended"]


@pytest.fixture
def on_spark(spark: Any) -> Any:
    hf.register_log_format(spark)
    return spark


def asked(path: Path, sql: str) -> Any:
    """What the command answers."""
    done = CliRunner().invoke(app, ["logs", "query", str(path), sql, "--json", "--limit", "999"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def literal(kind: str, at: datetime) -> str:
    if kind == "date":
        return f"date'{at:%Y-%m-%d}'"
    return (
        f"timestamp_ntz'{at:%Y-%m-%d %H:%M:%S}'"
        if kind in ("s", "us")
        else f"timestamp'{at:%Y-%m-%d %H:%M:%S}Z'"
    )


def conditions(kind: str, dice: random.Random) -> Iterator[str]:
    def at() -> str:
        step = timedelta(days=1) if kind == "date" else timedelta(seconds=1)
        return literal(kind, BEGIN + step * dice.randrange(-5, 60))

    for sign in ("<", "<=", ">", ">=", "=", "<=>", "<>"):
        yield f"at {sign} {at()}"
    yield f"at in ({at()}, {at()})"
    yield f"at >= {at()} and at < {at()} and n % 3 = 1"
    yield f"at >= {at()} or at < {at()}"
    yield f"not (at >= {at()})"
    yield f"at >= {at()} and (at is null or n > 5)"
    yield f"at is null or at = {at()}"
    yield f"n in (select n from log where at > {at()}) and at < {at()}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled(keep=2)
def test_a_condition_lets_the_same_rows_pass_whoever_hears_of_it(
    on_spark: Any, tmp_path: Path, kind: str
) -> None:
    dice = random.Random(f"conditions {kind}")
    made = RandomLog(tmp_path / "log", f"conditions {kind}", kind)
    made.fill(appends=30)
    rows = on_spark.read.format("holdfast-log").load(str(made.path))
    rows.createOrReplaceTempView("heard")  # the command has a view of its own in this session
    on_spark.createDataFrame(rows.collect(), rows.schema).createOrReplaceTempView("plain")
    for condition in conditions(kind, dice):
        found = on_spark.sql(
            f"select n from heard where {condition.replace('log', 'heard')} order by n"
        ).collect()
        expected = on_spark.sql(
            f"select n from plain where {condition.replace('log', 'plain')} order by n"
        ).collect()
        assert found == expected, condition
        told = asked(made.path, f"select n from log where {condition} order by n")
        assert [row["n"] for row in told] == [row.n for row in expected], condition


def minutes(path: Path) -> None:
    """Twenty tails, each with ten rows of a minute; those of the minutes 1 and 17 are damaged."""
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    for minute in range(20):
        with hf.Log(path, schema=schema, time="at", upkeep_every=None) as log:
            log.append([{"n": 10 * minute + k, "at": BEGIN + timedelta(minutes=minute)} for k in range(10)])
    tails = {int(each.name[:20]) // 10: each for each in sorted((path / "p00000").glob("*.tail"))}
    for minute in (1, 17):
        data = bytearray(tails[minute].read_bytes())
        at = data.rindex(b"HFLB", 0, data.rindex(b"HFLB"))  # the frame before the one that ends it
        data[at + 200] ^= 255
        tails[minute].write_bytes(bytes(data))


def stretch(first: int, behind: int) -> str:
    return (
        f"at >= timestamp'2024-01-01 00:{first:02d}:00Z' and at < timestamp'2024-01-01 00:{behind:02d}:00Z'"
    )


def test_a_query_does_not_read_segments_that_cannot_have_its_rows(on_spark: Any, tmp_path: Path) -> None:
    minutes(tmp_path)
    assert asked(tmp_path, f"select min(n) as low, count(*) as c from log where {stretch(3, 15)}") == [
        {"low": 30, "c": 120}
    ]
    within = f"with x as (select * from log where {stretch(3, 19)}) select count(*) as c from x where {stretch(0, 9)}"
    assert asked(tmp_path, within) == [{"c": 60}]
    assert asked(tmp_path, "select n from log where at > timestamp'2030-01-01 00:00:00Z'") == []
    done = CliRunner().invoke(app, ["logs", "query", str(tmp_path), "select count(*) from log"])
    assert done.exit_code != 0, "the damage is there"


@pytest.mark.parametrize(
    "query",
    [
        f"select (select count(*) from log where {stretch(3, 5)}) as a, (select count(*) from log) as b",
        f"select (select count(*) from log) as b, (select count(*) from log where {stretch(3, 5)}) as a",
        f"with x as (select * from log) select (select count(*) from x where {stretch(3, 5)}) as a, (select count(*) from x) as b",
        f"select sum(if(c < 100, c, 0)) as a, sum(if(c < 100, 0, c)) as b from (select count(*) c from log where {stretch(3, 5)} union all select count(*) from log)",
        f"select (select count(*) from log where {stretch(3, 5)}) as a, (select count(*) from log where n >= 0 or {stretch(7, 8)}) as b",
    ],
)  # fmt: skip
def test_a_query_that_reads_the_log_twice_has_all_rows_of_both(
    on_spark: Any, tmp_path: Path, query: str
) -> None:
    """Spark does not tell of a scan without conditions beside one that has some."""
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    with hf.Log(tmp_path, schema=schema, time="at") as log:
        for minute in range(20):
            log.append([{"n": 10 * minute + k, "at": BEGIN + timedelta(minutes=minute)} for k in range(10)])
    assert asked(tmp_path, query) == [{key: {"a": 20, "b": 200}[key] for key in (asked(tmp_path, query)[0])}]


def test_a_frame_that_is_asked_again_has_all_its_rows(on_spark: Any, tmp_path: Path) -> None:
    """Whatever Spark keeps of an earlier question."""
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    with hf.Log(tmp_path, schema=schema, time="at") as log:
        log.append([{"n": n, "at": BEGIN + timedelta(minutes=n)} for n in range(60)])
    for told in ("false", "true"):
        on_spark.conf.set(PUSHDOWN, told)
        try:
            rows = on_spark.read.format("holdfast-log").load(str(tmp_path))
            assert rows.filter(stretch(3, 5)).count() == 2
            assert rows.count() == 60
            assert rows.filter(f"{stretch(3, 5)} or n > 50").count() == 11
        finally:
            on_spark.conf.set(PUSHDOWN, "false")


def test_an_empty_log_has_no_rows(on_spark: Any, tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    hf.Log(tmp_path, schema=schema, time="at").close()
    assert on_spark.read.format("holdfast-log").load(str(tmp_path)).collect() == []
    assert asked(tmp_path, f"select n from log where {stretch(1, 2)}") == []


def test_what_conditions_say_about_times() -> None:
    at = datetime(2024, 5, 1, 12, tzinfo=UTC)
    us = microseconds(at)
    day = date(2024, 5, 1)
    assert wanted_by([GreaterThan(("at",), at), IsNotNull(("at",))], "at") == Wanted(us + 1, None)
    assert wanted_by(
        [LessThanOrEqual(("at",), at.replace(tzinfo=None)), LessThan(("n",), 3)], "at"
    ) == Wanted(None, us + 1)
    assert wanted_by([EqualTo(("at",), day)], "at") == Wanted(
        us - 12 * 3600 * 10**6, us - 12 * 3600 * 10**6 + 1
    )
    assert wanted_by([In(("at",), (at, at + timedelta(seconds=1))), LessThan(("at",), at)], "at") == Wanted(
        us, us
    )
    for unheard in (
        Not(EqualTo(("at",), at)),
        EqualTo(("at", "x"), at),
        EqualTo(("other",), at),
        EqualTo(("at",), 5),
        In(("at",), (at, None)),
    ):
        assert not wanted_by([unheard], "at").is_timed
    assert not wanted_by([EqualTo(("at",), at)], None).is_timed
    assert narrower(Wanted(1, 9, {0: 4}), Wanted(3, None)) == Wanted(3, 9, {0: 4})
