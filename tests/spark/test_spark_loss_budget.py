"""A loss budget on Spark: rows that are not counted beforehand, a share, and a stream that becomes consistent in the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

import holdfast as hf
from holdfast.testing import MemorySink

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]

LINES, FILES = 50, 6


class Fails:
    """At one row, the first time that it comes."""

    bad: ClassVar[set[int]] = set()

    def process(self, row: Any, port: int) -> Any:
        if row.n in self.bad:
            self.bad.discard(row.n)
            raise ValueError("not this row")
        return (row.n,)


def loose(here: Path, shelf: str, **budget: Any) -> hf.Topology:
    made = hf.Topology("loose")
    lines = made.source(
        hf.Files(str(here / "in"), "csv", schema="n long", max_files_per_step=1, header=False), name="lines"
    )
    lines.apply(Fails, "n long", name="fails").may_lose(**budget).sink(MemorySink(shelf), name="out")
    return made


def test_a_stream_that_lost_a_share_becomes_consistent(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        rows = range(number * LINES, (number + 1) * LINES)
        (tmp_path / "in" / f"{number}.csv").write_text("\n".join(map(str, rows)) + "\n")
    Fails.bad, shelf = {LINES + 3, 4 * LINES}, "spark-loss-budget"
    starts: list[Any] = []
    status = loose(tmp_path, shelf, share=0.001, then="consistent").run(
        spark=spark, store=f"file:{tmp_path}/store", until="available", on_start=starts.append
    )
    found = [row["n"] for row in MemorySink.rows(shelf)]
    MemorySink.clear(shelf)
    lost = status["lost_rows"]["out"]
    assert len(starts) == 2
    assert list(status.regions) == ["lines"]
    assert lost > 0
    assert len(found) == len(set(found)) == LINES * FILES - lost
    budget = status["loss_budgets"]["fails"]
    assert (budget["state"], budget["lost"]) == ("consistent", lost)
