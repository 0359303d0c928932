"""What helps to test topologies, operators and back ends: doubles, and conformance suites to inherit.

    golden = run(topology, feed={"orders": rows})                       # what its sinks got, without Spark where that is possible
    run(topology, feed={"orders": rows}, kill_at="step.end@3").same_as(golden)

    status = run_local(topology, store="memory:test", until="available")     # no Spark, this process
    compare_rows(golden, MemorySink.rows("orders"))
    arm("step.end=raise@3")                                             # the third step fails; disarm() afterwards

`run_local` runs sources, `map_arrow`, `union`, `aggregate`, Python operators and sinks by the same protocol and recovery
as on Spark. What it does not simulate: Spark expressions, task retries, and loss of an executor's live directory.

Names are imported when first used: the pytest plug-in lies here, and every pytest loads it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from holdfast.failpoints import NAMES

if TYPE_CHECKING:
    from holdfast.clock import ManualClock as ManualClock
    from holdfast.failpoints import FaultInjected as FaultInjected
    from holdfast.failpoints import arm as arm
    from holdfast.failpoints import disarm as disarm
    from holdfast.sinks.memory import MemorySink as MemorySink
    from holdfast.sources.lists import Rows as Rows
    from holdfast.testing.fed import Steps as Steps
    from holdfast.testing.golden import GoldenMismatch as GoldenMismatch
    from holdfast.testing.golden import compare as compare
    from holdfast.testing.golden import compare_changelog as compare_changelog
    from holdfast.testing.golden import compare_rows as compare_rows
    from holdfast.testing.golden import compare_sequence as compare_sequence
    from holdfast.testing.golden import merge_by_key as merge_by_key
    from holdfast.testing.local import run_local as run_local
    from holdfast.testing.local import submit_local as submit_local
    from holdfast.testing.ordeal.api import PromiseBroken as PromiseBroken
    from holdfast.testing.ordeal.api import chaos as chaos
    from holdfast.testing.trial import Trial as Trial
    from holdfast.testing.trial import run as run

FAILPOINTS = NAMES

_NAMES = {
    "clock": "ManualClock",
    "failpoints": "FaultInjected arm disarm",
    "sinks.memory": "MemorySink",
    "sources.lists": "Rows",
    "testing.fed": "Steps",
    "testing.golden": "GoldenMismatch compare compare_changelog compare_rows compare_sequence merge_by_key",
    "testing.local": "run_local submit_local",
    "testing.ordeal.api": "PromiseBroken chaos",
    "testing.trial": "Trial run",
}
"""By module."""
_HOMES = {name: f"holdfast.{home}" for home, names in _NAMES.items() for name in names.split()}

__all__ = sorted([*_HOMES, "FAILPOINTS"])


if not TYPE_CHECKING:  # a type checker would take every name for one that is there

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
