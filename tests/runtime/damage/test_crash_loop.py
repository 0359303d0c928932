"""A program that dies again and again: it gets further each time it can, and what it keeps on the disk stays bounded."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import pytest
from faults import DRIVER_KILLED, fired
from sampling import ASKED

import holdfast as hf
from holdfast import failpoints
from holdfast.ids import RegionName
from holdfast.store.urls import open_store
from holdfast.testing import run_local

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LIVES = 200 if ASKED.everything else 10
LIFE_ROWS = 40
POINTS = (
    "step.end",
    "ckpt.op.put_done",
    "ckpt.manifest.renamed",
    "sink.commit.begin",
    "gc.delete",
    "reset.op.loaded",
)


def topology(root: Path) -> hf.Topology:
    made = hf.Topology("loop")
    source = hf.Files(str(root / "in"), "json", "n long, k long", max_rows_per_step=10)
    rows = made.source(source, name="rows").consistent("r", period=0.005, keep=3)
    sums = rows.aggregate("k", n=hf.count(), s=hf.sum("n"), name="sums")
    sums.sink(hf.FileSink(str(root / "out"), "json"), name="out")
    return made


def life(root: Path, number: int, kind: str, is_last: bool) -> None:
    """Body of a child: one life, which ends by a kill unless it is the last. A child does not know how many there are."""
    os.environ["TMPDIR"] = tempfile.tempdir = str(root / "tmp")
    if not is_last:
        failpoints.arm(f"{POINTS[number % len(POINTS)]}=kill@{1 + number % 3}")
    run_local(topology(root), f"{kind}:{root / 'store'}")
    os._exit(0)


def weight(root: Path) -> tuple[int, int]:
    """(files, bytes) of the store and of what is hidden beside the output; visible output may grow."""
    places = [*root.glob("store*"), root / "out" / ".holdfast", root / "tmp"]
    files = [f for place in places for f in ([place] if place.is_file() else place.rglob("*")) if f.is_file()]
    return len(files), sum(f.stat().st_size for f in files)


@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("kind", ["file", "sqlite"])
@pytest.mark.fault("B09", "O11", "O07")
def test_a_crash_loop_goes_forward_and_stays_small(
    fast_directory: Path, kind: str, tell: Callable[..., None]
) -> None:
    root = Path(tempfile.mkdtemp(prefix="loop-", dir=fast_directory))
    (root / "in").mkdir()
    (root / "tmp").mkdir()
    rows: list[dict[str, int]] = []
    epochs: list[int] = []
    weights: list[tuple[int, int]] = []
    kills = 0
    for number in range(LIVES):
        new = [{"n": n, "k": n % 5} for n in range(len(rows), len(rows) + LIFE_ROWS)]
        rows += new
        text = "".join(f'{{"n": {row["n"]}, "k": {row["k"]}}}\n' for row in new)
        (root / "in" / f"{number:05}.json").write_text(text)
        code = forked.finish(forked.start(life, root, number, kind, number == LIVES - 1), 60)
        assert code in (0, -signal.SIGKILL), code
        kills += code == -signal.SIGKILL
        store = open_store(f"{kind}:{root / 'store'}")
        epochs.append(max(map(int, store.epochs(RegionName("r"))), default=0))
        store.close()
        weights.append(weight(root))
    fired(DRIVER_KILLED, kills)
    assert code == 0
    assert kills > LIVES // 2
    assert epochs == sorted(epochs)
    assert epochs[-1] >= LIVES // 4
    half = LIVES // 2
    files, size = (max(each) for each in zip(*weights[half:], strict=True))
    files_before, size_before = (max(each) for each in zip(*weights[:half], strict=True))
    tell(
        "crash loops", f"{kind}: {kills} kills, {epochs[-1]} epochs, at most {files} files and {size:,} bytes"
    )
    # Events and what is known of files that were read grow, within bounds of their own.
    assert files <= files_before + 70
    assert size <= 2 * size_before + 300_000
    found: dict[Any, tuple[int, int]] = {}
    for row in visible(root / "out"):
        found[row["k"]] = max(found.get(row["k"], (0, 0)), (row["n"], row["s"]))
    assert found == {
        k: (sum(r["k"] == k for r in rows), sum(r["n"] for r in rows if r["k"] == k)) for k in range(5)
    }


def visible(out: Path) -> list[dict[str, int]]:
    return [
        json.loads(line) for path in sorted(out.glob("part-*.json")) for line in path.read_text().splitlines()
    ]
