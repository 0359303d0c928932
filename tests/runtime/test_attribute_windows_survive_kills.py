"""Windows by an attribute and by marks under kill -9: nothing is lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pytest
from killed import killed_and_finished, lived, written

from holdfast.testing import compare_rows

PROGRAM = Path(__file__).with_name("attribute_program.py")
OUTPUTS = ("tumbling", "sliding", "marked")
KILLS = [
    # An epoch is published first, so that there surely is something to load.
    ["ckpt.epoch.published=kill@1", "ckpt.op.put_done=kill@2", "reset.op.loaded=kill@1"],
    ["sink.commit.applied=kill@4", "step.begin=kill@6"],
]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("golden")
    assert lived(PROGRAM, here) == 0
    return here


@pytest.mark.parametrize("kills", KILLS, ids=lambda kills: kills[0].partition("=")[0])
def test_windows_are_what_they_are_without_failures(kills: list[str], golden: Path, tmp_path: Path) -> None:
    killed_and_finished(PROGRAM, tmp_path, kills)
    for name in OUTPUTS:
        rows = written(golden, name)
        assert rows, f"{name} has no rows: nothing is learnt about it"
        compare_rows(rows, written(tmp_path, name), name)
