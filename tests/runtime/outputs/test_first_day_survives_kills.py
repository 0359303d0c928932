"""Grown files, malformed lines, named outputs, errors, look-ups and calls to services: killed in the middle, each row once."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from first_day_program import LINES
from killed import lived, written

from holdfast.testing import compare_rows, compare_sequence

PROGRAM = Path(__file__).with_name("first_day_program.py")
GOOD = [(n, f"k{n % 3}") for n in range(LINES) if n % 9 != 5]


def golden() -> dict[str, list[dict[str, Any]]]:
    """What an undisturbed run gives, computed from the rows alone."""
    found: dict[str, list[dict[str, Any]]] = {"main": [], "odd": [], "totals": []}
    seen, totals = 0, {"k0": 0, "k1": 0, "k2": 0}
    for n, k in GOOD:
        if n % 10 != 3:
            seen += 1
            if n % 4 == 1:
                found["odd"].append({"n": n, "seen": seen})
            else:
                found["main"].append({"n": n, "k": k, "seen": seen})
        if n % 10 != 7:
            totals[k] += n
            found["totals"].append({"k": k, "n": n, "total": totals[k]})
    names = {"k0": "zero", "k1": "one"}
    found["looked_up"] = [{"n": n, "k": k, "name": names.get(k)} for n, k in GOOD]
    found["answers"] = found["some"] = [{"n": n, "answer": n * n} for n, _ in GOOD]
    return found


@pytest.mark.sampled
@pytest.mark.parametrize(
    "kills",
    [
        ["sink.write=kill@20", "ckpt.manifest.renamed=kill@2", "step.end=kill@9"],
        ["ckpt.op.put_done=kill@2", "sink.commit.applied=kill@5", "ckpt.epoch.published=kill@2"],
        ["sink.commit.begin=kill@3", "reset.op.loaded=kill@4", "sink.prepared=kill@7"],
    ],
    ids=["writing", "publishing", "restoring"],
)
def test_each_row_is_there_once(tmp_path: Path, kills: list[str]) -> None:
    for kill in kills:
        assert lived(PROGRAM, tmp_path, kill, "grow") == -signal.SIGKILL, f"{kill} did not fire"
    assert lived(PROGRAM, tmp_path, "", "end") == 0
    for name, rows in golden().items():
        compare_rows(rows, written(tmp_path, name))
    malformed = written(tmp_path, "malformed")
    compare_sequence(
        [n for n in range(LINES) if n % 9 == 5], sorted(int(row["text"].split()[-1]) for row in malformed)
    )
    assert all(row["line"] == int(row["text"].split()[-1]) + 1 for row in malformed)
    for name, digit in (("failed", 3), ("totals_failed", 7)):
        bad = [json.loads(letter["row"]) for letter in written(tmp_path, name)]
        compare_rows([{"n": n, "k": k} for n, k in GOOD if n % 10 == digit], bad)
