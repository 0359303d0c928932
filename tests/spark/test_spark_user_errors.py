"""Errors of the user's code in tasks: they come back with the operator's name and the user's own lines."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import OperatorFailed, RegionParkedError, TopologyError

ROWS = [("a", 1), ("b", 0)]


def operator(gives: str) -> type[hf.KeyedOperator]:
    def ratio(value: int) -> float:
        return 1 / value  # what is shown

    class Ratios(hf.KeyedOperator):
        def process(self, row: Any, key: Any) -> Any:
            return {"k": key, gives: ratio(row.v)}

    return Ratios


def rows_of(topology: hf.Topology) -> Any:
    source = hf.Rows(ROWS, "k string, v long")
    return topology.source(source, name="rows").consistent("r", period=0.3)


def halving() -> Any:
    def halves(table: Any) -> Any:
        return table.set_column(1, "v", table.column("nope"))  # what is shown

    return halves


def spread() -> Any:
    def mean(values: Any) -> Any:
        return values.sum() / 0  # what is shown

    return mean


@pytest.mark.parametrize("way", ["keyed", "map_arrow", "udaf"])
def test_the_users_lines_come_back_from_a_task(on_spark: Any, way: str) -> None:
    def build(topology: hf.Topology) -> Any:
        if way == "udaf":
            mean = hf.udaf(spread(), "v", type="double")
            return rows_of(topology).aggregate("k", window=hf.tumbling(rows=1), m=mean, name="ratios")
        if way == "keyed":
            return rows_of(topology).keyed("k", operator("r"), "k string, r double", name="ratios")
        return rows_of(topology).map_arrow(halving(), "k string, v long", name="ratios")

    with pytest.raises(RegionParkedError, match=r"failed twice in the same way.*operator 'ratios'") as caught:
        on_spark(build)
    told = str(caught.value)
    frames = [line for line in told.splitlines() if line.startswith("  File ")]
    assert frames
    assert all(__file__ in frame for frame in frames)
    assert "# what is shown" in told
    assert ("  at Row(k='b', v=0)" in told) == (way == "keyed"), "the row, where it is known"
    assert isinstance(caught.value.__cause__, OperatorFailed)
    assert caught.value.__cause__.__cause__ is not None


def not_there(table: Any) -> Any:
    """Tasks look for it in this module, which they do not have."""
    return table


def test_a_module_that_executors_do_not_have_is_the_programs_own_failure(on_spark: Any) -> None:
    def build(topology: hf.Topology) -> Any:
        return rows_of(topology).map_arrow(not_there, "k string, v long", name="same")

    with pytest.raises(TopologyError, match=r"workers cannot load(.|\n)*No module named(.|\n)*addPyFile"):
        on_spark(build)


def test_a_misspelt_column_in_a_task_ends_the_run_at_once(on_spark: Any) -> None:
    def build(topology: hf.Topology) -> Any:
        made = rows_of(topology).filter("v > 0")
        return made.keyed("k", operator("ratoi"), "k string, ratio double", name="ratios")

    with pytest.raises(TopologyError, match=r"operator 'ratios', key 'a': .*'ratoi'.*Did you mean 'ratio'\?"):
        on_spark(build)


@pytest.mark.sampled
def test_rows_that_fail_in_a_task_are_in_a_stream_of_their_own(on_spark: Any, shuffled: bool) -> None:
    def build(topology: hf.Topology) -> Any:
        made = rows_of(topology).keyed(
            "k", operator("r"), "k string, r double", name="ratios", on_error="stream"
        )
        return made.errors

    (letter,) = on_spark(build).to_pylist()
    assert letter["row"] == '{"k": "b", "v": 0}'
    assert letter["error"] == "ZeroDivisionError: division by zero"
    assert "# what is shown" in letter["traceback"]
