"""What to write here instead of a name that PySpark has, or of one that is misspelt."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Mapping

_CONSISTENT = (
    "Mark the source: .consistent(period='2 seconds'); the store is given to run(store=…) or submit(store=…)."
)
_SINK = "Write stream.sink(hf.FileSink('out'), name='out'); then topology.run(…) or topology.submit(…)."
_SOURCE = "Write topology.source(hf.Files('orders', format='json', schema=…), name='orders')."
_FUNCTIONS = (
    "Expressions are SQL text, 'amount > 10', or Spark's Columns: pyspark.sql.functions.col('amount') > 10."
)
_SORT = "Write sort('at', delay='5 seconds') for the order of event time, or top_n(10, by=…, order='-score')."
_SCHEMA = "Columns are known when the topology is compiled: topology.explain() shows them, and refuses what does not fit."
_LEFT_JOIN = "Write join(other, by='k', within='10 seconds', on='at', delay='1 minute', how='left')."
_NO_END = "A stream has no end at which it could be counted or shown: write .sink(hf.MemorySink('rows')), or hf.ConsoleSink()."

STREAM: Mapping[str, str] = {
    "groupBy": "Write group_by('k').agg(n=hf.count()), or aggregate('k', n=hf.count()).",
    "groupby": "Write group_by('k').agg(n=hf.count()), or aggregate('k', n=hf.count()).",
    "agg": "Write group_by('k').agg(n=hf.count()), or aggregate('k', n=hf.count()).",
    "withColumn": "Write with_columns(total='price * volume').",
    "with_column": "Write with_columns(total='price * volume').",
    "withColumns": "Write with_columns(total='price * volume').",
    "withColumnRenamed": "Write rename(old='new').",
    "withColumnsRenamed": "Write rename({'old': 'new'}).",
    "with_column_renamed": "Write rename(old='new').",
    "selectExpr": "Write select('a', 'b + 1 as c'): it takes SQL text.",
    "dropDuplicates": "Write dedup('id', ttl=hf.ttl('1 hour')).",
    "drop_duplicates": "Write dedup('id', ttl=hf.ttl('1 hour')).",
    "dropDuplicatesWithinWatermark": "Write dedup('id', ttl=hf.ttl('1 hour', on='at', delay='10 seconds')).",
    "distinct": "Write dedup(['a', 'b']) with the columns that make a row the same.",
    "withWatermark": "Write event_time('at', delay='10 minutes').",
    "unionByName": "Write union(other); columns in another order are brought into line with select(…) before.",
    "unionAll": "Write union(other).",
    "crossJoin": "Write join(other, by=[], keep=hf.latest(rows=1000)).",
    "joinLateral": "Write join(other, by='k', keep=hf.latest(rows=1000)).",
    "mapInArrow": "Write map_arrow(fn, schema).",
    "mapInPandas": "Write map_arrow(fn, schema); table.to_pandas() and pyarrow.Table.from_pandas(…) convert.",
    "map_batches": "Write map_arrow(fn, schema).",
    "applyInPandas": "Write keyed(by, Operator, schema) or map_state(by, fn, schema, variables).",
    "applyInPandasWithState": "Write keyed(by, Operator, schema) or map_state(by, fn, schema, variables).",
    "transformWithState": "Write keyed(by, Operator, schema): a class that derives from hf.KeyedOperator.",
    "transformWithStateInPandas": "Write keyed(by, Operator, schema): a class that derives from hf.KeyedOperator.",
    "writeStream": _SINK,
    "write": _SINK,
    "foreachBatch": "Write sink(hf.ForeachBatch(fn), name='out').",
    "foreach": "Write sink(hf.ForeachBatch(fn), name='out').",
    "orderBy": _SORT,
    "order_by": _SORT,
    "sortWithinPartitions": _SORT,
    "limit": "Write top_n(10, by=[], order='-score').",
    "repartition": "Say partitions=… to run(…) or submit(…).",
    "coalesce": "Say partitions=… to run(…) or submit(…).",
    "cache": "Nothing to write: every stream may have many readers.",
    "checkpointLocation": _CONSISTENT,
    "count": f"{_NO_END} A number that runs on is aggregate('k', n=hf.count()).",
    "sum": "Write group_by('k').agg(total=hf.sum('x')).",
    **dict.fromkeys(
        ("show", "collect", "take", "head", "first", "tail", "toPandas", "toArrow", "isEmpty"), _NO_END
    ),
    **dict.fromkeys(("schema", "columns", "dtypes", "printSchema"), _SCHEMA),
    "explain": "Write topology.explain(), or `holdfast explain FILE.py`: it tells of the whole graph.",
    "createOrReplaceTempView": "Write sql('select a from this'): the stream is the view `this`.",
    "randomSplit": "Write split('rand() < 0.1'); after a reset other rows may be chosen.",
    "sample": "Write filter('hash(id) % 10 = 0'), which chooses the same rows after a reset.",
    "toDF": "Write rename(old='new'), or select('a as b').",
    **dict.fromkeys(("outputMode", "queryName", "start", "toTable", "format", "partitionBy"), _SINK),
    **dict.fromkeys(("option", "trigger"), _CONSISTENT),
    **dict.fromkeys(
        ("keyBy", "key_by"), "Name the keys where they are needed: keyed('k', Operator, schema)."
    ),
    "flat_map": "Write sql('select explode(xs) as x from this'), or map_arrow(fn, schema).",
    "foreach_batch": "Write sink(hf.ForeachBatch(fn), name='out').",
    "window": "Write group_by('k').agg(n=hf.count(), window=hf.tumbling('1 minute', on='at', delay=0)).",
    "na": "Write with_columns(x='coalesce(x, 0)'), or filter('x is not null').",
    "observe": "Counts of operators are in run.status(), and in `holdfast status STORE`.",
    "fillna": "Write with_columns(x='coalesce(x, 0)').",
    "dropna": "Write filter('x is not null').",
    "alias": "Columns that both sides of a join have get a suffix: join(…, suffix='_right').",
    "left_join": _LEFT_JOIN,
    "leftJoin": _LEFT_JOIN,
    "flatMap": "Write sql('select explode(xs) as x from this'), or map_arrow(fn, schema).",
    "map": "Write with_columns(…), map_arrow(fn, schema), or apply(Operator, schema) for a Python operator.",
}
"""Of a `Stream`."""

GROUPED: Mapping[str, str] = {
    "count": "Write agg(n=hf.count()).",
    **{name: f"Write agg(x=hf.{name}('x'))." for name in ("sum", "avg", "max", "min")},
    "mean": "Write agg(x=hf.avg('x')).",
    "pivot": "Write agg(a=hf.sum('x')) over columns that with_columns(…) made, one for each value.",
    "aggregate": "Write agg(n=hf.count()).",
    **dict.fromkeys(
        ("apply", "applyInPandas", "applyInPandasWithState", "transformWithState", "cogroup"),
        "Write stream.keyed('k', Operator, schema): a class that derives from hf.KeyedOperator.",
    ),
}
"""Of what `group_by` returns."""

RUN: Mapping[str, str] = {
    "awaitTermination": "Write run.await_termination().",
    "processAllAvailable": "Write topology.run(store=…, until='available').",
    "lastProgress": "Write run.progress.",
    "recentProgress": "Write run.progress; what happened is in `holdfast status STORE`.",
    "isActive": "Write run.status().state == 'running'.",
    "exception": "Write run.await_termination(), which raises it.",
    "explain": "Write topology.explain().",
    "wait": "Write run.await_termination().",
    "join": "Write run.await_termination().",
}
"""Of what `submit` returns."""

TOPOLOGY: Mapping[str, str] = {
    "readStream": _SOURCE,
    "read": _SOURCE,
    "start": "Write topology.submit(store=…), or topology.run(store=…), which waits for the end.",
    "awaitTermination": "submit(…) returns a handle with await_termination(); run(…) waits by itself.",
    "stop": "submit(…) returns a handle with stop().",
    "status": "submit(…) returns a handle with status().",
    "writeStream": _SINK,
    "option": _CONSISTENT,
}
"""Of a `Topology`."""

MODULE: Mapping[str, str] = {
    "col": _FUNCTIONS,
    "lit": _FUNCTIONS,
    "expr": _FUNCTIONS,
    "when": _FUNCTIONS,
    "udf": "Use map_arrow(fn, schema) for rows, hf.udaf(fn, …) for aggregates.",
    "window": "Write window=hf.tumbling('10 minutes', on='at', delay='1 minute') in aggregate(…); or hf.sliding(…), hf.session(…).",
    "session_window": "Write window=hf.session('30 minutes') in aggregate(…).",
    "mean": "Write hf.avg('x').",
    "var_samp": "Write hf.variance('x').",
    "stddev_samp": "Write hf.stddev('x').",
    "countDistinct": "Write hf.count_distinct('x').",
    "approx_count_distinct": "Write hf.count_distinct('x'), which is exact.",
    "collect_list": "Write hf.collect('x').",
    "percentile": "Write hf.quantile('x', 0.99).",
    "percentile_approx": "Write hf.quantile('x', 0.99).",
    "approx_percentile": "Write hf.quantile('x', 0.99).",
    "readStream": _SOURCE,
    "StatefulProcessor": "Derive from hf.KeyedOperator.",
    "ValueState": "Write hf.Value(int, default=0) in a class that derives from hf.KeyedOperator.",
    "MapState": "Write hf.Map(…) in a class that derives from hf.KeyedOperator.",
    "ListState": "Write hf.List(…) in a class that derives from hf.KeyedOperator.",
}
"""Of the module `holdfast`."""


def no_such_name(owner: str, name: str, hints: Mapping[str, str], known: Iterable[str]) -> AttributeError:
    """The error for a name that is not there: with what to write instead, or with the nearest name there is."""
    message = f"{owner} has no attribute {name!r}."
    if name in hints:
        return AttributeError(f"{message} {hints[name]}")
    public = [one for one in known if not one.startswith("_")]
    near = difflib.get_close_matches(_plain(name), [_plain(one) for one in public], n=1, cutoff=0.7)
    if not near:
        return AttributeError(message)
    meant = next(one for one in public if _plain(one) == near[0])
    return AttributeError(f"{message} Did you mean {meant!r}?")


def renamed(old: str, new: str) -> None:
    """Warn the caller of a verb that what it was given is called otherwise now."""
    warnings.warn(f"{old} is called {new} now.", DeprecationWarning, stacklevel=3)


def _plain(name: str) -> str:
    """Without what only tells one way of writing from another: mapArrow, map_arrow."""
    return name.replace("_", "").lower()
