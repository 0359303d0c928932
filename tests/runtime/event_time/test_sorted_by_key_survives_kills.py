"""`sort(by=)`, killed in the middle: what reads behind it sees each key's rows once, in the order of event time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from by_key_program import ROWS
from killed import killed_and_finished, written

from holdfast.testing import compare_rows

PROGRAM = Path(__file__).with_name("by_key_program.py")


def golden() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for key in {k for _, k, _ in ROWS}:
        rows = sorted((at, n) for n, k, at in ROWS if k == key)
        found += [{"k": key, "nth": nth, "n": n, "at": at} for nth, (at, n) in enumerate(rows, 1)]
    return found


@pytest.mark.parametrize(
    "kills",
    [
        ["ckpt.manifest.renamed=kill@2", "reset.op.loaded=kill@2", "step.end=kill@9"],
        ["sink.commit.begin=kill@2", "sink.write=kill@6", "ckpt.op.put=kill@2"],
    ],
)
def test_each_row_comes_once_and_in_order(tmp_path: Path, kills: list[str]) -> None:
    killed_and_finished(PROGRAM, tmp_path, kills)
    compare_rows(golden(), written(tmp_path, "out"))
