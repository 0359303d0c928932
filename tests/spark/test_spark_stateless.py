"""Every stateless operator on Spark gives what plain PySpark gives over the same input."""

from __future__ import annotations

import datetime
import logging
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import holdfast as hf
from holdfast import Operator
from holdfast.errors import TopologyError
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from holdfast.runtime.engines.spark.engine import HAS_UNIX_SOCKETS, SparkEngine
from holdfast.sources import Rows
from holdfast.testing import compare_rows

pytestmark = pytest.mark.spark

SCHEMA = "id long, user string, amount decimal(10,2), score double, at timestamp"
ROWS = [
    (
        number,
        None if number % 11 == 0 else f"u{number % 4}",
        None if number % 7 == 0 else Decimal(number * 13 % 97) / 4,
        number / 8,
        datetime.datetime(2026, 1, 1, 0, number % 60, tzinfo=datetime.UTC),
    )
    for number in range(50)
]


def source(topology: Topology) -> Stream:
    """Several steps, epochs in between."""
    return topology.source(Rows(ROWS, SCHEMA, rows_per_step=17), name="rows").consistent(period=0.05)


@pytest.fixture(scope="module")
def frame(spark: Any) -> Any:
    return spark.createDataFrame(ROWS, SCHEMA).cache()


def busy_users(df: Any) -> Any:
    return df.where("user is not null").selectExpr("id * 2 as id", "user", "at + interval 1 day as at")


USERS = pa.table({"id": ["u1", None, "u3", "u9"], "at": ["Rome", "Oslo", None, "Bonn"], "n": [1, 2, 3, 4]})


def _users(frame: Any) -> Any:
    return frame.sparkSession.createDataFrame(
        [(row["id"], row["at"], row["n"]) for row in USERS.to_pylist()], "key string, at_right string, n long"
    )


CASES = {
    "filter with SQL": (lambda s: s.filter("amount > 5"), lambda f: f.filter("amount > 5")),
    "filter with a Column": (
        lambda s: s.filter((F.col("amount") > 5) & F.col("user").isNotNull()),
        lambda f: f.filter((F.col("amount") > 5) & F.col("user").isNotNull()),
    ),
    "select with SQL": (
        lambda s: s.select("id", "upper(user) as name", "amount * 2 as twice", "cast(score as int) s"),
        lambda f: f.selectExpr("id", "upper(user) as name", "amount * 2 as twice", "cast(score as int) s"),
    ),
    "select with Columns": (
        lambda s: s.select(F.col("id"), (F.col("score") / 3).alias("third"), F.struct("id", "user").alias("s")),
        lambda f: f.select(F.col("id"), (F.col("score") / 3).alias("third"), F.struct("id", "user").alias("s")),
    ),
    "select everything": (
        lambda s: s.select("*", "id + 1 as next"),
        lambda f: f.selectExpr("*", "id + 1 as next"),
    ),
    "with_columns": (
        lambda s: s.with_columns({"id": "id + 1"}, late=F.date_trunc("hour", "at"), both="array(id, 7)"),
        lambda f: f.withColumns(
            {"id": F.expr("id + 1"), "late": F.date_trunc("hour", "at"), "both": F.expr("array(id, 7)")}
        ),
    ),
    "drop": (lambda s: s.drop("user", "at"), lambda f: f.drop("user", "at")),
    "rename": (
        lambda s: s.rename(id="score", score="id", user="who"),
        lambda f: f.selectExpr("id as score", "user as who", "amount", "score as id", "at"),
    ),
    "where": (lambda s: s.where("amount > 5"), lambda f: f.where("amount > 5")),
    "lookup": (
        lambda s: s.lookup(USERS, {"user": "id"}),
        lambda f: f.join(_users(f), F.col("user") == F.col("key"), "left").drop("key"),
    ),
    "lookup, inner": (
        lambda s: s.lookup(lambda: USERS.to_pandas(), {"user": "id"}, how="inner"),
        lambda f: f.join(_users(f), F.col("user") == F.col("key"), "inner").drop("key"),
    ),
    "lookup, rename and drop keep positions": (
        lambda s: (
            s.lookup(USERS, {"user": "id"}).rename(id="i").drop("score", "at").dedup("user", name="once")
        ),
        lambda f: (
            f.filter("id in (0, 1, 2, 3, 4)")
            .join(_users(f), F.col("user") == F.col("key"), "left")
            .selectExpr("id as i", "user", "amount", "at_right", "n")
        ),
    ),
    "transform": (lambda s: s.transform(busy_users), busy_users),
    "sql": (
        lambda s: s.sql("select id, explode(array(user, 'x')) as w from this where id % 2 = 0"),
        lambda f: f.where("id % 2 = 0").selectExpr("id", "explode(array(user, 'x')) as w"),
    ),
    "union with itself": (lambda s: s.filter("id < 9").union(s.filter("id < 5")), lambda f: f.filter("id < 9").union(f.filter("id < 5"))),
    "a chain of all": (
        lambda s: s.filter("id > 3")
        .with_columns(x="id * score")
        .sql("select *, x + 1 as y from this")
        .transform(lambda df: df.drop("at"))
        .select("user", "y", "amount"),
        lambda f: f.filter("id > 3").selectExpr("user", "id * score + 1 as y", "amount"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_operator_gives_what_pyspark_gives(case: str, on_spark: Any, frame: Any) -> None:
    ours, plain = CASES[case]
    found, wanted = on_spark(lambda topology: ours(source(topology))), plain(frame).toArrow()
    assert found.schema == wanted.schema
    compare_rows(wanted, found, case)


def test_split_sends_every_row_the_first_way_that_holds(on_spark: Any, frame: Any) -> None:
    conditions = ["amount > 15", F.col("user") == "u1", "score < 3"]
    found = on_spark.several(lambda topology: source(topology).split(*conditions, otherwise=True))
    way = F.when(F.expr("amount > 15"), 0).when(F.col("user") == "u1", 1).when(F.expr("score < 3"), 2)
    marked = frame.withColumn("way", way.otherwise(3))
    for number, table in enumerate(found):
        compare_rows(marked.filter(f"way = {number}").drop("way").toArrow(), table, f"way {number}")
    assert sum(table.num_rows for table in found) == len(ROWS)


class Numbered(Operator):
    """Numbers the rows in the order in which they come."""

    def __init__(self) -> None:
        self.seen = 0

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        return (self.seen, row.id)


def numbered(stream: Stream) -> Stream:
    return stream.apply(Numbered, "n long, id long", name="numbered")


STAMPED = {
    "select everything": lambda s: s.select("*"),
    "select": lambda s: s.select("id", "amount"),
    "with_columns": lambda s: s.with_columns(x="id * 2"),
    "filter": lambda s: s.filter("id >= 0"),
    "several elements": lambda s: s.select("*").isolate().filter("id >= 0"),
}


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("case", STAMPED)
def test_rows_reach_a_python_operator_in_the_order_of_their_source(case: str, on_spark: Any) -> None:
    found = on_spark(lambda topology: numbered(STAMPED[case](source(topology))))
    assert found.to_pylist() == [{"n": number + 1, "id": number} for number in range(len(ROWS))]


def test_positions_are_nothing_a_user_ever_sees(on_spark: Any) -> None:
    def build(topology: Topology) -> list[Stream]:
        rows = source(topology).select("*")
        return [rows, rows.sql("select * from this"), rows.transform(lambda df: df), numbered(rows)]

    plain, queried, transformed, _ = on_spark.several(build)
    for table in (plain, queried, transformed):
        assert table.column_names == ["id", "user", "amount", "score", "at"]
        assert table.num_rows == len(ROWS)


def test_one_branch_of_a_split_may_be_ordered_and_the_other_not(on_spark: Any, frame: Any) -> None:
    def build(topology: Topology) -> list[Stream]:
        even, odd = source(topology).split("id % 2 = 0", otherwise=True)
        return [numbered(even), odd, odd.aggregate("user", n=_count(), name="odd_users")]

    ordered, plain, counted = on_spark.several(build)
    assert ordered.to_pylist() == [{"n": n + 1, "id": n * 2} for n in range(25)]
    compare_rows(frame.filter("id % 2 = 1").toArrow(), plain)
    last = {row["user"]: row["n"] for row in sorted(counted.to_pylist(), key=lambda row: row["n"])}
    wanted = frame.filter("id % 2 = 1").groupBy("user").count().collect()
    assert last == {row["user"]: row["count"] for row in wanted}


def _count() -> Any:
    from holdfast import count

    return count()


def test_map_arrow_runs_beside_the_data(on_spark: Any, frame: Any) -> None:
    def shout(table: pa.Table) -> pa.Table:
        return pa.table({"name": [None if u is None else u.upper() for u in table["user"].to_pylist()]})

    found = on_spark(lambda topology: source(topology).map_arrow(shout, "name string"))
    compare_rows(frame.selectExpr("upper(user) as name").toArrow(), found)


@pytest.mark.parametrize(
    ("operator", "build"),
    [
        ("few", lambda s: s.filter("amout > 3", name="few")),
        ("some", lambda s: s.select("id", "usr", name="some")),
        ("more", lambda s: s.with_columns({"x": F.col("idd") + 1}, name="more")),
        ("asked", lambda s: s.sql("select nothing from this", name="asked")),
        ("ways", lambda s: s.split("amout > 3", name="ways")[0]),
        ("sums", lambda s: s.aggregate("usr", n=_count(), name="sums")),
    ],
)
def test_an_unknown_column_is_refused_before_anything_runs(
    operator: str, build: Any, on_spark: Any, tmp_path: Any
) -> None:
    with pytest.raises(TopologyError) as refused:
        on_spark(lambda topology: build(source(topology)))
    said = str(refused.value)
    assert operator in said
    assert "amount" in said, "the columns there are"
    assert not list(tmp_path.glob("store-1/epochs/*/*"))


@pytest.mark.parametrize(
    ("name", "query", "meant"),
    [
        ("counts", "select word, count(*) as n from this group by word", "aggregate(…)"),
        ("once", "select distinct word from this", "dedup(…)"),
        ("few", "select word from this limit 1", "top_n(…)"),
        ("ranked", "select rank() over (partition by word order by n) as r from this", "top_n(…)"),
        ("plain", "select word, 'Aggregate' as x from this where word is not null", None),
    ],
)
def test_what_a_step_does_by_itself_is_warned_of(
    spark: Any, name: str, query: str, meant: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    topology = hf.Topology("steps")
    rows = topology.source(hf.Rows([("a", 1)], "word string, n long"), name="rows")
    rows.sql(query, name=name).sink(hf.MemorySink("steps"), name="out")
    with caplog.at_level(logging.WARNING, "holdfast"):
        topology.explain(spark=spark)
    told = [
        record.getMessage() for record in caplog.records if "in each step by itself" in record.getMessage()
    ]
    assert len(told) == (meant is not None)
    assert meant is None or (repr(name) in told[0] and meant in told[0])


def test_what_would_help_a_session_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    context = SimpleNamespace(applicationId="an application", getConf=dict)
    with caplog.at_level(logging.INFO, "holdfast"):
        for _ in range(2):
            SparkEngine._hint_once(SimpleNamespace(_context=context))  # type: ignore[arg-type]
    assert [record.levelname for record in caplog.records] == ["INFO"] * HAS_UNIX_SOCKETS
