"""Errors of the user's code: they name the operator, show the user's own lines, and are not tried again and again."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import OperatorFailed, RegionParkedError, StateError, TopologyError
from holdfast.runtime.failures import is_fatal, may_pass, own_failure, story_of
from holdfast.runtime.worker_errors import from_worker
from holdfast.store.urls import open_store
from holdfast.testing import run_local

ROWS = [("a", 1), ("b", 2), ("c", 0), ("d", 4)]


def ratio(value: int) -> float:
    return 1 / value  # what is shown


class Hosted(hf.Operator):
    def process(self, row: Any, port: int) -> Any:
        return {"k": row.k, "r": ratio(row.v)}


class Keyed(hf.KeyedOperator):
    def process(self, row: Any, key: Any) -> Any:
        return {"k": key, "r": ratio(row.v)}


def topology_of(through: Any, **settings: Any) -> hf.Topology:
    topology = hf.Topology("errors")
    rows = topology.source(hf.Rows(ROWS, "k string, v long"), name="rows")
    through(rows.consistent("r", period=0.02, **settings)).sink(hf.MemorySink("errors"), name="out")
    return topology


WAYS = {
    "hosted": lambda rows: rows.apply(Hosted, "k string, r double", name="ratios"),
    "keyed": lambda rows: rows.keyed("k", Keyed, "k string, r double", name="ratios"),
    "map_arrow": lambda rows: rows.map_arrow(lambda t: ratio(0), "k string, r double", name="ratios"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_failure_names_the_operator_and_shows_the_users_lines_alone(way: str, tmp_path: Path) -> None:
    store = f"file:{tmp_path}/store"
    with pytest.raises(RegionParkedError, match=r"operator 'ratios'.*ZeroDivisionError") as caught:
        run_local(topology_of(WAYS[way]), store)
    told = str(caught.value)
    line = inspect.getsourcelines(ratio)[1] + 1
    assert f'File "{__file__}", line {line}, in ratio\n    return 1 / value  # what is shown' in told
    frames = [line for line in told.splitlines() if line.startswith("  File ")]
    assert len(frames) == 2
    assert all(__file__ in frame for frame in frames)
    if way != "map_arrow":
        assert "at Row(k='c', v=0)" in told
    assert isinstance(caught.value.__cause__, OperatorFailed)
    assert isinstance(caught.value.__cause__.__cause__, ZeroDivisionError)
    resets = [event for event in open_store(store).events() if event.kind == "reset.begin"]
    assert len(resets) == 2, "the beginning, and one more try"
    assert "failed twice in the same way" in told


def test_a_number_of_resets_that_was_given_holds_for_the_users_errors_too(tmp_path: Path) -> None:
    store = f"file:{tmp_path}/store"
    with pytest.raises(RegionParkedError, match="after 3 resets"):
        run_local(topology_of(WAYS["hosted"], max_consecutive_resets=3), store)


class Away(hf.Operator):
    tries = 0

    def process(self, row: Any, port: int) -> Any:
        Away.tries += 1
        if Away.tries < 4:
            raise ConnectionError("the service is away")
        return {"k": row.k, "r": 1.0}


def test_an_outage_is_tried_again_though_it_looks_the_same(tmp_path: Path) -> None:
    Away.tries = 0
    run_local(
        topology_of(lambda rows: rows.apply(Away, "k string, r double", name="away")), f"file:{tmp_path}/s"
    )
    assert len(hf.MemorySink.rows("errors")) == len(ROWS)
    hf.MemorySink.clear("errors")


class Elsewhere(hf.Operator):
    """Fails at another row each time."""

    seen = 0

    def process(self, row: Any, port: int) -> Any:
        if row.v == Elsewhere.seen and row.v < 4:
            Elsewhere.seen += 1
            raise ValueError("oh")
        return {"k": row.k, "r": 1.0}


def test_the_same_error_at_other_rows_is_another_failure(tmp_path: Path) -> None:
    Elsewhere.seen = 1
    run_local(
        topology_of(lambda rows: rows.apply(Elsewhere, "k string, r double", name="op")), f"file:{tmp_path}/s"
    )
    assert Elsewhere.seen == 3
    hf.MemorySink.clear("errors")


# --- what Spark brings back from executors ---

WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/env/lib/python3.11/site-packages/pyspark/worker.py", line 12, in main
    process()
  File "{ours}/runtime/engines/spark/stateless.py", line 46, in run
    yield from fn(batch)
               ^^^^^^^^^
  File "/home/ann/job.py", line 11, in double
    return table.column("nope")
           ^^^^^^^^^^^^^^^^^^^^
  File "pyarrow/table.pxi", line 1803, in pyarrow.lib._Tabular.column
{last}
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:1)
"""


def worker_error(last: str) -> RuntimeError:
    return RuntimeError(WORKER.format(ours=Path(hf.__file__).parent, last=last))


def test_a_workers_traceback_is_reduced_to_the_users_frames() -> None:
    error = from_worker(worker_error("KeyError: 'nope'"), "rows")
    assert isinstance(error, OperatorFailed)
    assert error.message == (
        "a function in element 'rows': KeyError: 'nope'\n"
        '  File "/home/ann/job.py", line 11, in double\n    return table.column("nope")'
    )
    assert own_failure(error)


def test_an_error_of_ours_is_the_same_error_again() -> None:
    told = "operator 'op', key 'b': variable 'n' of Op holds int, not str 'x'. Convert it: int(…)."
    error = from_worker(worker_error(f"holdfast.errors.StateError: {told}"), "rows")
    assert type(error) is StateError
    assert str(error) == told
    lines = "operator 'op', key 'b': ConnectionError: gone\n  File \"job.py\", line 1, in process\n    ask()"
    error = from_worker(worker_error(f"holdfast.errors.OperatorFailed: {lines}"), "rows")
    assert type(error) is OperatorFailed
    assert str(error) == lines
    assert may_pass(error)
    assert not own_failure(error)


def test_what_is_no_workers_error_stays_as_it_is() -> None:
    for error in (ValueError("x"), OperatorFailed("x"), RuntimeError("Traceback (most recent call last):")):
        assert from_worker(error, "rows") is error


LOADING = [
    "ModuleNotFoundError: No module named 'mine'",
    "ImportError: cannot import name 'Op' from 'mine' (/opt/mine.py)",
    "SyntaxError: invalid syntax (mine.py, line 3)",
    "AttributeError: Can't get attribute 'Op' on <module 'mine' from '/opt/mine.py'>",
]


def raised_in(frame: str, message: str) -> Exception:
    lines = ['  File "/spark/python/lib/pyspark.zip/pyspark/worker.py", line 1, in main', frame, message]
    return RuntimeError(
        "\n".join(["Job aborted.", "Traceback (most recent call last):", *filter(None, lines)])
    )


@pytest.mark.parametrize("message", LOADING)
@pytest.mark.parametrize("frame", ["", '  File "/opt/mine.py", line 3, in <module>\n    import more'])
def test_what_workers_cannot_load_ends_the_run_with_the_cure(frame: str, message: str) -> None:
    error = from_worker(raised_in(frame, message), "rows")
    assert isinstance(error, TopologyError)
    assert error.message.startswith(f"workers cannot load what element 'rows' works with: {message}")
    assert "--py-files" in error.cure
    assert is_fatal(error)


@pytest.mark.parametrize("message", LOADING)
def test_the_same_in_the_users_function_is_an_error_of_that_function(message: str) -> None:
    """A row may have a text that is no program."""
    frame = '  File "/opt/mine.py", line 30, in process\n    ast.parse(row.text)'
    error = from_worker(raised_in(frame, message), "rows")
    assert isinstance(error, OperatorFailed)
    assert not is_fatal(error)


def test_what_cannot_be_sent_to_workers_ends_the_run_with_the_cure() -> None:
    said = "Could not serialize object: TypeError: cannot pickle '_thread.lock' object"
    error = from_worker(pickle.PicklingError(said), "rows")
    assert isinstance(error, TopologyError)
    assert "cannot be sent to workers: TypeError: cannot pickle '_thread.lock' object." in error.message
    assert "open()" in error.cure


@pytest.mark.parametrize(
    ("told", "story", "passes"),
    [
        (
            ": org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows.\n\tat org.A.b(A.scala:1)\n"
            "Caused by: org.apache.hadoop.fs.FileAlreadyExistsException: File already exists: file:/out/a\n\tat org.A.b(A.java:1)",
            "FileAlreadyExistsException: File already exists: file:/out/a",
            False,
        ),
        (
            ": org.apache.spark.SparkException: Job aborted due to stage failure: ExecutorLostFailure (executor 1 exited)\n\tat a.B.c(B:1)",
            "SparkException: Job aborted due to stage failure: ExecutorLostFailure (executor 1 exited)",
            True,
        ),
        ("", "Py4JJavaError: An error occurred while calling o461.save.", False),
    ],
)
def test_what_java_raised_is_told_by_its_innermost_cause(told: str, story: str, passes: bool) -> None:
    error = type("Py4JJavaError", (Exception,), {})(f"An error occurred while calling o461.save.\n{told}")
    assert story_of(error) == story
    assert may_pass(error) is passes
