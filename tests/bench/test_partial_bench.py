"""The benchmark of partial fault tolerance: real kills of a small run, and what its figures are made of."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from holdfast.bench.checkpoints.plots import draw
from holdfast.bench.losses.partial import Killed, bench_partial, compared, report, rmse
from holdfast.bench.registry import BENCHES
from holdfast.errors import HoldfastError

SHARED = Path(os.environ.get("HOLDFAST_SHARED", Path(__file__).parents[3] / "shared"))
DATA = SHARED / "data" / "fab-yield"


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"needs {DATA}; HOLDFAST_SHARED may name another shared/")
def test_a_killed_model_is_less_far_off_with_a_checkpoint(tmp_path: Path) -> None:
    found = bench_partial(kills=1, on_spark=0, units_max=240, quiet=True)
    assert found["before_the_kill_equal"]
    assert found["units"] == 240
    assert found["rmse_without"] > 0
    assert found["rmse_ratio"] < 1.0
    # Whatever is missing was counted by the runs themselves.
    for side in ("with", "without"):
        assert 0 < found["missing_rows"][side][0] <= found["counted_as_lost"][side][0]
    assert draw(found, tmp_path) == [tmp_path / "partial.png"]


def test_errors_count_from_the_killed_unit_on_and_lost_units_are_missing() -> None:
    golden = {0: 90.0, 1: 91.0, 2: 92.0, 3: 93.0}
    assert compared(golden, {0: 90.0, 1: 91.0, 3: 90.0}, 2, 1) == Killed(2, (-3.0,), 1, 1)


def test_the_ratio_is_over_all_kills() -> None:
    found = report(
        {"with": [Killed(1, (3.0,), 0, 0), Killed(2, (4.0,), 0, 0)], "without": [Killed(1, (5.0, 5.0), 0, 0)]}
    )
    assert found["rmse_ratio"] == round(math.sqrt(12.5) / 5.0, 4)
    assert found["rmse_of_each_kill"] == {"with": [3.0, 4.0], "without": [5.0]}
    assert rmse(()) == 0.0


def test_kills_that_do_nothing_are_no_result() -> None:
    with pytest.raises(HoldfastError, match="the kills did nothing"):
        report({"with": [Killed(1, (0.0,), 0, 0)], "without": [Killed(1, (0.0,), 0, 0)]})


def test_it_is_in_the_list() -> None:
    assert "partial" in BENCHES
