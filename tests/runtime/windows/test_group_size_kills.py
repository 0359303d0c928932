"""The driver is killed in the middle of a change of the size of groups: rows are those of a run in which it never changed."""

from __future__ import annotations

import signal
from pathlib import Path

import group_size_program as program
from killed import lived, written

from holdfast.testing import run_local

FILE = Path(program.__file__)
STAGES = ("chosen", "ckpt.op.put", "step.end", "drain.all_acked", "ckpt.epoch.published")
"""At once; when groups of the new size are stored; in a step with both sizes; before and after the epoch counts that has both."""


def found(here: Path) -> list[tuple[int, int, int]]:
    return sorted((row["k"], row["a"], row["b"]) for row in written(here, "rows"))


def test_a_death_at_any_moment_of_the_change_costs_and_doubles_nothing(tmp_path: Path) -> None:
    for stage in STAGES:
        # A failpoint that never comes lets the life be a fork: most of a short life is imports.
        code = lived(FILE, tmp_path, "gc.delete=kill@100000", stage)
        assert code == -signal.SIGKILL, f"there was no change of size, or no {stage} behind it"
    assert lived(FILE, tmp_path, "", "none") == 0
    golden = tmp_path / "golden"
    golden.mkdir()
    run_local(program.build(str(golden), groups=512), f"file:{golden}/store")
    assert found(tmp_path) == found(golden)
    assert len(found(golden)) > program.ROWS
