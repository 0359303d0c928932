"""What a Python operator submits, as numbered tables."""

from __future__ import annotations

import pyarrow as pa
import pytest

from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.language.graph import HostedSpec
from holdfast.runtime.runs.hosted.hosted_output import HostedOutput

NUMBERS = pa.schema([("n", pa.int64())])
SPEC = HostedSpec(object, (NUMBERS, NUMBERS), on_error="stream")


def output() -> HostedOutput:
    return HostedOutput(OperatorName("op"), SPEC, 7, (True, False, False))


def test_rows_are_numbered_over_steps_where_somebody_orders_by_them() -> None:
    made = output()
    for rows in ([1, 2], [3]):
        made.outbox.submit([{"n": n} for n in rows], 0)
        made.outbox.submit({"n": 9}, 1)
        stamped, plain, errors = made.take()
        assert plain.to_pydict() == {"n": [9]}
        assert errors.num_rows == 0
    assert stamped.column_names == ["n", *POSITION_COLUMNS]
    assert stamped.select(POSITION_COLUMNS).to_pylist() == [
        dict(zip(POSITION_COLUMNS, (7, 0, 2), strict=True))
    ]
    assert (made.counts, made.errors) == ([3, 2, 0], 0)


def test_what_was_submitted_before_a_reset_does_not_leave() -> None:
    made = output()
    made.outbox.submit({"n": 1}, 0)
    made.clear()
    assert [table.num_rows for table in made.take()] == [0, 0, 0]


@pytest.mark.parametrize(
    ("stored", "counts"), [((), [0, 0, 0]), ([5, 6], [5, 6, 0]), ([5, 6, 7, 8], [5, 6, 7])]
)
def test_counts_fit_the_ports_that_there_are_now(stored: list[int], counts: list[int]) -> None:
    made = output()
    made.go_to(stored)
    assert made.counts == counts


def test_a_row_from_an_unknown_thread_fails_the_step_until_the_state_is_restored() -> None:
    made = output()
    for fail in (made.refuse_stray, made.take, made.take):
        with pytest.raises(TopologyError, match="a thread of its own"):
            fail()
    made.go_to(())
    assert [table.num_rows for table in made.take()] == [0, 0, 0]
