"""holdfast: stream graphs on Spark in which you say, per subgraph, what a failure may cost.

    import holdfast as hf

    shop = hf.Topology("shop")
    orders = shop.source(hf.Files("orders", format="json"), name="orders").consistent(period=2)
    orders.aggregate("customer", spent=hf.sum("cents"), name="spent").sink(hf.FileSink("out"), name="out")
    shop.run(store="store", until="available")

The packages, in the order data flows:

    errors ids clock durations durable failpoints    words everyone shares
    language/     what users write: Topology, Stream, operators, annotations, Source and Sink
    operators/    what there is to each kind of operator: checks, columns, fingerprint, logic of tasks, stored rows
    compiler/     graph → regions → elements → plan; explain
    protocol/     pure: establish, publish, reset
    state/        exact encoding of Python values; keyed maps of Arrow segments
    store/        where epochs live: files, SQLite, memory
    log/          persistent streams: append, read from any place, catch up
    checkpoint/   where state meets store: blobs, manifest, retention
    sources/ sinks/                        the outside world
    runtime/      loops, regions, recovery; engines/ (Spark, and in-process)
    testing/      run without Spark, conformance suites, golden comparison
    chaos/        the protocol under simulated failures
    demo/ bench/ cli/                      faces

Names are imported when first used: a Spark worker that needs one function does not load the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.errors import HoldfastError as HoldfastError
    from holdfast.errors import RegionParkedError as RegionParkedError
    from holdfast.language.checkpoint_form import eventual as eventual
    from holdfast.language.checkpoint_form import full as full
    from holdfast.language.checkpoint_form import groups as groups
    from holdfast.language.checkpoint_form import incremental as incremental
    from holdfast.language.composite import composite as composite
    from holdfast.language.connectors import Lag as Lag
    from holdfast.language.connectors import Sink as Sink
    from holdfast.language.connectors import SinkContext as SinkContext
    from holdfast.language.connectors import Slice as Slice
    from holdfast.language.connectors import Source as Source
    from holdfast.language.connectors import Stamp as Stamp
    from holdfast.language.connectors import StepId as StepId
    from holdfast.language.context import Context as Context
    from holdfast.language.hosted import Operator as Operator
    from holdfast.language.hosted import Poison as Poison
    from holdfast.language.operators.aggregates import avg as avg
    from holdfast.language.operators.aggregates import collect as collect
    from holdfast.language.operators.aggregates import collect_set as collect_set
    from holdfast.language.operators.aggregates import count as count
    from holdfast.language.operators.aggregates import count_distinct as count_distinct
    from holdfast.language.operators.aggregates import first as first
    from holdfast.language.operators.aggregates import last as last
    from holdfast.language.operators.aggregates import max as max
    from holdfast.language.operators.aggregates import min as min
    from holdfast.language.operators.aggregates import quantile as quantile
    from holdfast.language.operators.aggregates import stddev as stddev
    from holdfast.language.operators.aggregates import sum as sum
    from holdfast.language.operators.aggregates import udaf as udaf
    from holdfast.language.operators.aggregates import variance as variance
    from holdfast.language.operators.joins import latest as latest
    from holdfast.language.operators.keyed_python import KeyedOperator as KeyedOperator
    from holdfast.language.operators.rows import ttl as ttl
    from holdfast.language.operators.windows import session as session
    from holdfast.language.operators.windows import sliding as sliding
    from holdfast.language.operators.windows import tumbling as tumbling
    from holdfast.language.progress import Progress as Progress
    from holdfast.language.run import ElementStatus as ElementStatus
    from holdfast.language.run import RegionStatus as RegionStatus
    from holdfast.language.run import Run as Run
    from holdfast.language.run import RunStatus as RunStatus
    from holdfast.language.stream import Stream as Stream
    from holdfast.language.topology import Topology as Topology
    from holdfast.log.log import Log as Log
    from holdfast.runtime.engines.spark.state_reader import read_state as read_state
    from holdfast.runtime.replay.replay import Replayed as Replayed
    from holdfast.runtime.replay.replay import ReplayProgress as ReplayProgress
    from holdfast.runtime.replay.replay import replay as replay
    from holdfast.runtime.telling.listener import Listener as Listener
    from holdfast.sinks import ConsoleSink as ConsoleSink
    from holdfast.sinks import DatabaseSink as DatabaseSink
    from holdfast.sinks import FileSink as FileSink
    from holdfast.sinks import ForeachBatch as ForeachBatch
    from holdfast.sinks import LogSink as LogSink
    from holdfast.sinks import MemorySink as MemorySink
    from holdfast.sources import Beacon as Beacon
    from holdfast.sources import Files as Files
    from holdfast.sources import HttpLines as HttpLines
    from holdfast.sources import LogSource as LogSource
    from holdfast.sources import Preserved as Preserved
    from holdfast.sources import Rows as Rows
    from holdfast.sources import TcpLines as TcpLines
    from holdfast.sources import UdpLines as UdpLines
    from holdfast.sources.logs.from_spark import from_spark as from_spark
    from holdfast.sources.logs.spark_format import register_log_format as register_log_format
    from holdfast.state.values.user_classes import register_dataclass as register_dataclass
    from holdfast.state.values.user_classes import register_enum as register_enum
    from holdfast.state.variables.variables import List as List
    from holdfast.state.variables.variables import Map as Map
    from holdfast.state.variables.variables import Value as Value
    from holdfast.state.variables.variables import Window as Window

__version__ = "0.1.0"

_NAMES = {
    "language.topology": "Topology",
    "language.stream": "Stream",
    "language.hosted": "Operator Poison",
    "language.context": "Context",
    "language.composite": "composite",
    "language.operators.keyed_python": "KeyedOperator",
    "state.variables.variables": "Value Map List Window",
    "language.operators.aggregates": "count sum min max avg variance stddev first"
    " last count_distinct collect collect_set quantile udaf",
    "language.operators.windows": "tumbling sliding session",
    "language.operators.joins": "latest",
    "language.operators.rows": "ttl",
    "language.checkpoint_form": "eventual full groups incremental",
    "runtime.engines.spark.state_reader": "read_state",
    "log.log": "Log",
    "runtime.replay.replay": "replay Replayed ReplayProgress",
    "language.connectors": "Source Slice Stamp Lag Sink SinkContext StepId",
    "language.run": "Run RunStatus RegionStatus ElementStatus",
    "language.progress": "Progress",
    "runtime.telling.listener": "Listener",
    "sources": "Files Beacon Rows TcpLines UdpLines HttpLines LogSource Preserved",
    "sources.logs.from_spark": "from_spark",
    "sources.logs.spark_format": "register_log_format",
    "sinks": "FileSink DatabaseSink LogSink MemorySink ConsoleSink ForeachBatch",
    "state.values.user_classes": "register_dataclass register_enum",
    "errors": "HoldfastError RegionParkedError",
}
"""By module."""
_HOMES = {name: f"holdfast.{home}" for home, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)


if not TYPE_CHECKING:  # a type checker would take every name for one that is there

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if name == "testing":
            return importlib.import_module("holdfast.testing")
        if home is None:
            from holdfast.language.hints import MODULE, no_such_name

            raise no_such_name("module 'holdfast'", name, MODULE, __all__)
        value = getattr(importlib.import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
