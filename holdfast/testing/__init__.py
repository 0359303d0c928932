"""What helps to test topologies, operators and back ends: doubles, and conformance suites to inherit.

    status = run_local(topology, store="memory:", until="available")     # no Spark, this process
    compare_rows(golden, MemorySink.rows("orders"))
    arm("step.end=raise@3")                                             # the third step fails; disarm() afterwards

`run_local` runs sources, `map_arrow`, `union`, `aggregate`, Python operators and sinks by the same protocol and recovery
as on Spark. What it does not simulate: Spark expressions, task retries, and loss of an executor's live directory.
"""

from __future__ import annotations

from holdfast.clock import ManualClock
from holdfast.failpoints import NAMES as FAILPOINTS
from holdfast.failpoints import FaultInjected, arm, disarm
from holdfast.sinks.memory import MemorySink
from holdfast.sources.lists import Rows
from holdfast.testing.golden import (
    GoldenMismatch,
    compare,
    compare_changelog,
    compare_rows,
    compare_sequence,
    merge_by_key,
)
from holdfast.testing.local import run_local, submit_local

__all__ = [
    "FAILPOINTS",
    "FaultInjected",
    "GoldenMismatch",
    "ManualClock",
    "MemorySink",
    "Rows",
    "arm",
    "compare",
    "compare_changelog",
    "compare_rows",
    "compare_sequence",
    "disarm",
    "merge_by_key",
    "run_local",
    "submit_local",
]
