"""Can Spark's workers run what holdfast sends them? Tiny tasks, one for each core, find out before a run writes anything."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from typing import Any

from pyspark import SparkContext

from holdfast.errors import ConfigError

NEEDED = ("pyarrow", "numpy", "holdfast", "holdfast.runtime.engines.spark.stage")
"""What tasks import; the last one imports all the rest."""
MADE_WITH = "spark.holdfast.python"
"""Setting of sessions that holdfast made: the interpreter that made them."""
USE = "set PYSPARK_PYTHON (or, with spark-submit, spark.pyspark.python) before the session starts."

TASKS_MAX = 1_000
"""So many cores are looked at, at most."""

Found = tuple[str, str, str, str, str]
"""Interpreter, its version, the module that cannot be imported (empty: none), why, and the host."""

_fine: set[str] = set()
"""Applications whose workers were found to be fine."""

logger = logging.getLogger("holdfast")


def check_workers(context: SparkContext) -> None:
    """ConfigError if Python on the workers lacks something or is another one. Runs one small job per application, none
    in local mode on a session that holdfast made: its workers are this interpreter.

    The job has a task for every core that there is now: Spark offers all of them at once, so every executor gets one."""
    is_local = re.match(r"local(\[|$)", str(context.master)) is not None
    if context.applicationId in _fine or (is_local and context.getConf().get(MADE_WITH) == sys.executable):
        return
    try:
        tasks = max(1, min(context.defaultParallelism, TASKS_MAX))
        found = context.parallelize(range(tasks), tasks).map(_probe(NEEDED)).collect()
    except Exception as error:
        problem = _problem_of(str(error), context.pythonExec)
        if problem is None:  # nothing is known about Python there; whatever it was, the run meets it too
            logger.debug("Python on the workers could not be looked at", exc_info=True)
            return
    else:
        problem = next((told for told in map(missing, sorted(set(found))) if told is not None), None)
    if problem is not None:
        raise problem
    _fine.add(context.applicationId)


def _probe(names: tuple[str, ...]) -> Callable[[int], Found]:
    """What a worker runs. A function inside of a function travels by value: it needs no holdfast there."""

    def look(_: int) -> Found:
        import importlib
        import platform
        import socket
        import sys

        where = sys.executable, platform.python_version()
        for name in names:
            try:
                importlib.import_module(name)
            except Exception as error:
                lacks = getattr(error, "name", None) or name
                return *where, lacks, f"{type(error).__name__}: {error}", socket.gethostname()
        return *where, "", "", ""

    return look


def missing(found: Found) -> ConfigError | None:
    """What is wrong with the workers that gave this answer."""
    python, version, module, why, host = found
    if not module:
        return None
    package = module.partition(".")[0]
    ship = " or ship it with spark.sparkContext.addPyFile(…)," if package == "holdfast" else ""
    return ConfigError(
        f"Python on Spark's workers ({python}, {version}, on {host}) cannot import {package!r}: {why}.",
        cure=f"Install {package} for it,{ship} or let the workers use a Python that has it: {USE}",
    )


def _problem_of(text: str, python: Any) -> ConfigError | None:
    """What is wrong, if a failed job says so."""
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if "PYTHON_VERSION_MISMATCH" in text:
        there = re.search(r"different version: (\d+\.\d+)", text)
        return ConfigError(
            f"Spark's workers run Python {there[1] if there else 'of another version'} ({python}), the driver {here}: "
            "both must be of the same minor version.",
            cure=f"Let the workers use a Python {here} with holdfast: {USE}",
        )
    if "Cannot run program" in text:
        return ConfigError(
            f"Spark's workers cannot start Python: there is no {python} where they run.",
            cure=f"Name a Python {here} with holdfast that is there: {USE}",
        )
    if "pyspark.daemon" in text or "Python worker failed to connect back" in text:
        return ConfigError(
            f"Spark's workers cannot start Python: {python} ends before it runs anything.",
            cure=f"Name a Python {here} with holdfast: {USE}",
        )
    return None
