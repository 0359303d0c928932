"""Logs before and behind an aggregate with eventual checkpoints let go of what no restore could need, also after kills."""

from __future__ import annotations

from pathlib import Path

import pytest
import retained_program as program
from killed import killed_at, lived
from sampling import Extent

import holdfast as hf
from holdfast.log.format.names import lay_out

WHATS = ("time", "rows", "sliding", "unchecked")
PROGRAM = Path(program.__file__)
KILLS = ("eventual.noted=kill@60", "eventual.note=kill@80", "persist.appended=kill@130", "eventual.pinned=kill@12", "log.consumer.written=kill@9",
         "log.trim.marked=kill@2", "eventual.replayed=kill", "eventual.scanned=kill")  # fmt: skip


def needed(path: Path) -> int:
    """The position from which on its holders need the log."""
    log = hf.Log(path)
    return min(each.positions[0] for each in (*log.consumers(), *log.pins()))


def check_bounded(here: Path, what: str) -> None:
    for name, limits in (("middle", {}), ("out", {"keep_bytes": 0})):
        with hf.Log(
            here / name, upkeep_every=None, **limits
        ) as log:  # upkeep may not have had its turn at the end
            log.retain()
    middle, out = hf.Log(here / "middle").bounds(), hf.Log(here / "out").bounds()
    assert middle.end == program.ROWS
    assert needed(here / "middle") > program.ROWS - 500
    # Whole segments go, and how many rows one holds depends on what was merged when.
    kept = lay_out(file.name for file in (here / "middle").glob("p*/*"))
    assert kept[0].end is None or kept[0].end > needed(here / "middle")
    assert middle.low == kept[0].start
    assert program.stored(here / "middle") < 5 * program.SEGMENT_BYTES
    if what != "unchecked":
        assert needed(here / "out") > out.end // 2
        assert program.stored(here / "out") < 8 * program.SEGMENT_BYTES


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """How many results there are."""
    found = {}
    for what in WHATS:
        here = tmp_path_factory.mktemp(what)
        program.run(here, what)
        check_bounded(here, what)
        found[what] = hf.Log(here / "out").bounds().end
    assert found["rows"] == found["unchecked"] > 500
    return found


@pytest.mark.parametrize("what", WHATS)
@pytest.mark.fault("I10")
def test_logs_stay_small_over_many_windows_and_kills(
    extent: Extent, what: str, golden: dict[str, int], tmp_path: Path
) -> None:
    kills = [
        kill for kill in KILLS if what != "unchecked" or "pinned" not in kill
    ]  # silent keys hold the notes
    for number, kill in enumerate(extent.of(kills)):
        here = tmp_path / str(number)
        here.mkdir()
        if kill in ("eventual.replayed=kill", "eventual.scanned=kill"):
            killed_at("eventual.noted=kill@40", PROGRAM, what, str(here))
        killed_at(kill, PROGRAM, what, str(here))
        assert lived(PROGRAM, here, "", what) == 0
        check_bounded(here, what)
        assert hf.Log(here / "out").bounds().end == golden[what], kill


def test_a_window_that_was_never_checked_holds_the_rows_from_its_first_on_and_none_before(
    tmp_path: Path,
) -> None:
    """Also after a kill, when all that is known of it is what the scan has found."""
    killed_at("eventual.noted=kill@120", PROGRAM, "held", str(tmp_path), PIN_S="1e9")
    assert needed(tmp_path / "middle") == 0
    program.run(tmp_path, "held")
    assert program.HELD - 50 <= needed(tmp_path / "middle") <= program.HELD
