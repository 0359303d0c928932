"""The as-of joins that pandas publishes with its tests: trades and quotes of a second of May 2016."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from asof_program import WAYS, moment, rows
from killed import killed_and_finished, written

SHARED = Path(os.environ.get("HOLDFAST_SHARED", Path(__file__).parents[4] / "shared"))
DATA = SHARED / "data" / "pandas-asof-golden"
PROGRAM = Path(__file__).with_name("asof_program.py")
COLUMNS = ("ticker", "price", "quantity", "marketCenter", "bid", "ask")

pytestmark = pytest.mark.skipif(
    not DATA.exists(), reason=f"needs {DATA}; HOLDFAST_SHARED may name another shared/"
)


@pytest.mark.parametrize(
    "kills",
    [[], ["ckpt.epoch.published=kill@2", "reset.op.loaded=kill@1", "step.begin=kill@3"]],
    ids=["no failure", "killed"],
)
def test_trades_get_the_quotes_that_pandas_gives_them(kills: list[str], tmp_path: Path) -> None:
    killed_and_finished(PROGRAM, tmp_path, kills, str(DATA))
    for way in WAYS:
        golden: list[Any] = rows(DATA / f"{way}.csv")
        wanted = Counter(
            (moment(r["time"]), r["ticker"], float(r["price"]), int(r["quantity"]), r["marketCenter"],
             *(float(r[name]) if r[name] else None for name in ("bid", "ask")))
            for r in golden
        )  # fmt: skip
        found = Counter((r["time"], *(r[name] for name in COLUMNS)) for r in written(tmp_path, way))
        assert found == wanted, way
        assert len(golden) == 27
