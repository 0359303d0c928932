"""A graph with operators of every kind that has a fingerprint, in all their forms, and with names that are hard to read.

What an earlier version wrote as text of each is in `old_fingerprints.json`."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

import holdfast as hf
from holdfast.language.topology import Topology
from tests.language.fakes import EpochSink, FakeSource, Python

UTC = pa.timestamp("us", tz="UTC")
TYPES = {
    "k": pa.string(),
    "at": UTC,
    "plain": pa.timestamp("us"),
    "n": pa.int64(),
    "small": pa.int16(),
    "x": pa.float64(),
    "money": pa.decimal128(12, 2),
    "day": pa.date32(),
    "flag": pa.bool_(),
    "tags": pa.list_(pa.field("element", pa.string())),
    "pair": pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int32()))]),
    "by name": pa.map_(pa.string(), pa.int64()),
    "odd, (name): [of] <a> column=": pa.string(),
    "with blank": UTC,
}
ROWS = pa.schema(list(TYPES.items()))
ODD = "odd, (name): [of] <a> column="


class Lasting(hf.KeyedOperator):
    n = hf.Value(int, default=0)
    late = hf.Value(int, ttl=5)
    seen = hf.Map(str, int)
    short = hf.Map(str, bytes, ttl=1.5)
    last = hf.List(float)
    rows = hf.Window(str, rows=7)
    recent = hf.Window(bool, seconds=9)

    def process(self, row: Any, key: Any) -> None: ...


class Stateless(hf.KeyedOperator):
    def process(self, row: Any, key: Any) -> None: ...


def topology() -> Topology:
    t = Topology("t")
    a, b, c = (t.source(FakeSource(ROWS), name) for name in "abc")
    a.sink(EpochSink(), name="sink")
    a.apply(Python, "n long", name="hosted")
    t.operator(Python, inputs=[a, b], control=[c], schemas=["n long", "m long"], name="hosted_ports")
    t.operator(Python, inputs=[a], name="hosted_no_output")
    _aggregates(a)
    _windows(a)
    _rows(a, b, c)
    _joins(a, b)
    a.keyed("k", Lasting, "n long", on="at", delay=2, name="keyed")
    a.keyed(["k", "n", "with blank"], Lasting, "n long", on="with blank", name="keyed_several", delay=0)
    a.keyed(ODD, Stateless, "n long", name="keyed_stateless")
    return t


def _aggregates(a: Any) -> None:
    every = {
        "count": hf.count(),
        "count_of": hf.count("n"),
        "sum": hf.sum("n"),
        "sum_small": hf.sum("small"),
        "sum_money": hf.sum("money"),
        "sum_x": hf.sum("x"),
        "avg": hf.avg("n"),
        "avg_money": hf.avg("money"),
        "min": hf.min("k"),
        "max": hf.max("at"),
        "variance": hf.variance("x"),
        "stddev": hf.stddev("n"),
        "first": hf.first("tags"),
        "last": hf.last("pair"),
        "last_map": hf.last("by name"),
        "collect": hf.collect("pair"),
        "collect_set": hf.collect_set("day"),
        "count_distinct": hf.count_distinct(ODD),
        "median": hf.quantile("n", 0.5),
        "own": hf.udaf(lambda n, x: 1, "n", "x", type="array<struct<a:int,b:string>>"),
    }
    a.aggregate("k", **every, name="aggregate")
    a.aggregate(["k", "n", "plain", ODD], "each", n_=hf.count(), name="aggregate_each")
    a.aggregate("k", ttl=hf.ttl(5), n=hf.count(), name="aggregate_clock")
    a.aggregate("k", ttl=hf.ttl(5, on="at", delay=0), n=hf.count(), name="aggregate_lifetime")
    a.aggregate("k", ttl=hf.ttl(5, on="with blank", delay=0), n=hf.count(), name="aggregate_blank_time")
    a.aggregate("k", **{"a, b: (c)": hf.count(), "d=e": hf.max(ODD)}, name="aggregate_odd")


def _windows(a: Any) -> None:
    of = {"n": hf.count(), "most": hf.max("x")}
    a.aggregate("k", window=hf.tumbling(60, on="at", delay=0), **of, name="window")
    a.aggregate([], window=hf.sliding(60, 0.5, on="with blank", delay=3), **of, name="window_sliding")
    a.aggregate("k", window=hf.tumbling(60, on="at", delay=0), late=True, **of, name="window_late")
    a.aggregate(["k", "day"], window=hf.tumbling(rows=10), **of, name="window_rows")
    a.aggregate("k", window=hf.sliding(rows=10, every=3), **of, name="window_rows_sliding")
    a.aggregate("k", window=hf.tumbling(delta=5, of="n"), **of, name="window_delta")
    a.aggregate("k", window=hf.tumbling(delta=2.5, of="x"), **of, name="window_delta_float")
    a.aggregate("k", window=hf.tumbling(delta=Decimal("0.10"), of="money"), **of, name="window_delta_decimal")
    a.aggregate(
        "k", window=hf.sliding(delta=dt.timedelta(days=2, seconds=1), of="at", every=2), **of, name="window_delta_days"
    )  # fmt: skip
    a.aggregate("k", window=hf.sliding(delta=dt.timedelta(1), of="with blank", every=4), **of, name="window_delta_blank")  # fmt: skip
    a.aggregate([], window=hf.tumbling(until="flag"), **of, name="window_until")


def _rows(a: Any, b: Any, c: Any) -> None:
    a.dedup("k", name="dedup")
    a.dedup(["k", "with blank"], ttl=hf.ttl(5), name="dedup_clock")
    a.dedup("k", ttl=hf.ttl(5, on="at", delay=0), name="dedup_lifetime")
    a.top_n(3, by="k", order="-n", name="top")
    a.top_n(1, by=[], order=["x", "-at", "with blank"], name="top_of_all")
    a.top_n(
        2,
        by=["k", "n"],
        order=["-x"],
        window=hf.sliding(60, 30, on="with blank", delay=0),
        name="top_of_windows",
    )
    a.sort("at", delay=5, name="sort")
    a.sort("with blank", name="sort_blank", delay=0)
    a.zip(b, name="barrier")
    a.select("k").zip(b, c, by=["k", "n"], name="barrier_keys")


def _joins(a: Any, b: Any) -> None:
    a.join(b, "k", within=5, on="at", name="interval", delay=0)
    a.join(
        b, {"k": ODD, "n": "n"}, within=5, on=("at", "with blank"), how="left", name="interval_names", delay=0
    )
    a.join(b, "k", keep=hf.latest(rows=5), name="arrival")
    a.join(b, [], keep=hf.latest(rows=5), other_keep=hf.latest(rows=2), name="arrival_no_keys")
    a.join(b, ["k", "day"], keep=hf.latest(5), on="at", name="windows", delay=0)
    a.asof_join(b, "k", on="at", name="asof", delay=0)
    a.asof_join(b, [], on=("plain", "plain"), tolerance=3, name="asof_no_keys", delay=0)
