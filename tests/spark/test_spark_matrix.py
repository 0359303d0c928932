"""The matrix of tests/runtime/regions/test_matrix.py on Spark: topology × mode × failure, every cell against a loop over the rows.

All in `make chaos`; `make test` draws a few.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matrix_program as program
import pytest
from faults import fired

from holdfast.failpoints import arm, disarm

CHOSEN = ["an element, after its step", "the store, at a part"]
CELLS = program.cells(CHOSEN)


@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize(("topology", "mode", "failure"), CELLS)
def test_a_failure_changes_no_result_on_spark(
    topology: str, mode: Any, failure: str, spark: Any, tmp_path: Path
) -> None:
    made = program.build(topology, mode, str(tmp_path))
    arm(program.FAILURES[failure])
    try:
        status = made.run(spark, store=f"file:{tmp_path}/store", until="available").as_dict()
    finally:
        hits = disarm()
    assert all(hits.values()), f"{hits}: not every fault fired"
    assert sum(region["resets"] for region in status["regions"].values()) >= 1
    assert program.found(topology, tmp_path) == program.golden(topology)
    fired("exception at a failpoint", sum(hits.values()))


def test_the_matrix_is_large_enough() -> None:
    assert len(CELLS) >= 60
