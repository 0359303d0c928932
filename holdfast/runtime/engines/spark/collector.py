"""Python's garbage collector in the worker processes of Spark.

PySpark has it look at every object of the process after each task: with pyarrow, NumPy and this package imported that takes some
twenty milliseconds, several times as long as a small task. What modules hold is never garbage, so it need not be looked at.
"""

from __future__ import annotations

import gc
import sys

_modules_seen = 0


def spare_modules() -> None:
    """Called as a task begins, when nothing of an earlier one is left: what is there now is not looked at again.

    Only when modules have come since the last time: whatever else is there then is looked at no more either, and it is
    not much, because the task before has ended and was collected.
    """
    global _modules_seen
    if len(sys.modules) != _modules_seen:
        gc.freeze()
        _modules_seen = len(sys.modules)
