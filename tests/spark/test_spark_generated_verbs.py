"""Verbs made of Spark's expressions, in every configuration of theirs, with failures in the middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import generated_verbs as generated
from faults import fired
from killed import written
from sampling import Extent

from holdfast.failpoints import arm, disarm
from holdfast.testing import compare_rows

FAILURES = "step.end=raise@4;ckpt.op.put=raise@2;sink.commit.begin=raise@1"


def test_failures_change_no_result(spark: Any, tmp_path: Path, extent: Extent) -> None:
    chosen = [one for verb in sorted(generated.SPARK) for one in generated.configurations(verb)]
    assert len(chosen) >= len(generated.SPARK)
    chosen = extent.of(chosen, keep=1, per=lambda one: one.verb)
    golden, here = tmp_path / "golden", tmp_path / "failing"
    generated.topology(chosen, str(golden)).run(spark, store=f"file:{golden}/store", until="available")
    arm(FAILURES)
    try:
        generated.topology(chosen, str(here)).run(spark, store=f"file:{here}/store", until="available")
    finally:
        hits = disarm()
    assert all(hits.values()), f"{hits}: not every fault fired"
    fired("exception at a failpoint", sum(hits.values()))
    for place in sorted(golden.glob("op*-*")):
        rows = written(golden, place.name)
        number = int(place.name.removeprefix("op").partition("-")[0])
        assert rows, f"{chosen[number]} wrote nothing: nothing is learnt"
        compare_rows(rows, written(here, place.name), str(chosen[number]))
