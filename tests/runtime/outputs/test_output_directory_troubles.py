"""What happens to the output directory while a run writes: one clear sentence, and nothing lost once it is put right."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import HoldfastError
from holdfast.testing import run_local

NOBODY = 65534
ROWS = [(n,) for n in range(60)]


class Trouble(hf.FileSink):
    """Makes trouble before its second commit, if there is any to make."""

    def __init__(self, path: Path, trouble: Any = None, **settings: Any) -> None:
        super().__init__(str(path), "json", **settings)
        self._when, self._trouble = 0 if trouble is None else 2, trouble

    def commit(self, epoch: Any, prepared: Any) -> None:
        self._when -= 1
        if self._when == 0:
            self._trouble()
        super().commit(epoch, prepared)


class Steady(hf.Rows):
    """Takes its time, so that there are epochs in the middle."""

    def read_arrow(self, piece: Any, stamp: Any) -> Any:
        time.sleep(0.03)
        return super().read_arrow(piece, stamp)


def run(sink: hf.FileSink, store: Path, region: bool = True) -> None:
    topology = hf.Topology("trouble")
    stream = topology.source(Steady(ROWS, "n long", rows_per_step=5), name="rows")
    stream = stream.consistent(name="region", period=0.001) if region else stream
    stream.sink(sink, name="out")
    run_local(topology, f"file:{store}", until="available")


def shown(out: Path) -> list[int]:
    return sorted(int(line[5:-1]) for path in out.glob("part-*") for line in path.read_text().splitlines())


@pytest.mark.parametrize("roll", [None, "1 GB"])
@pytest.mark.parametrize("what", ["all", "hidden"])
def test_a_directory_that_is_deleted_ends_the_run_with_one_sentence(
    tmp_path: Path, roll: Any, what: str
) -> None:
    out = tmp_path / "out"
    gone = out if what == "all" else out / ".holdfast"
    with pytest.raises(
        HoldfastError, match=r"/out was deleted, wholly or in part, while this run wrote"
    ) as found:
        run(Trouble(out, lambda: shutil.rmtree(gone), roll=roll), tmp_path / "store")
    assert "Put it back" in found.value.cure


def test_a_directory_that_was_deleted_and_is_put_back_goes_on(tmp_path: Path) -> None:
    out, away = tmp_path / "out", tmp_path / "away"
    with pytest.raises(HoldfastError, match="was deleted"):
        run(Trouble(out, lambda: out.rename(away)), tmp_path / "store")
    shutil.rmtree(out, ignore_errors=True)
    away.rename(out)
    run(Trouble(out), tmp_path / "store")
    assert shown(out) == list(range(60))


@contextmanager
def as_somebody_who_may_not_do_all(place: Path) -> Iterator[None]:
    """Permissions mean nothing to root."""
    if os.geteuid():
        yield
        return
    os.chown(place, NOBODY, NOBODY)
    for above in place.parents:
        if above.stat().st_mode & 0o005 != 0o005:  # pytest made it, for its own user
            above.chmod(0o755)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("roll", [None, "1 GB"])
@pytest.mark.fault("S11")
def test_a_directory_that_becomes_read_only_ends_the_run_and_nothing_is_lost(
    tmp_path: Path, roll: Any
) -> None:
    out = tmp_path / "out"
    with as_somebody_who_may_not_do_all(tmp_path):

        def close_up() -> None:
            for directory in (out, out / ".holdfast/out"):
                directory.chmod(0o555)

        with pytest.raises(HoldfastError, match=r"/out.* failed: .*Permission denied") as found:
            run(Trouble(out, close_up, roll=roll), tmp_path / "store")
        assert "start the run again" in found.value.cure
        for directory in (out, out / ".holdfast/out"):
            directory.chmod(0o755)
        run(Trouble(out, roll=roll), tmp_path / "store")
        assert shown(out) == list(range(60))


def test_a_directory_that_cannot_be_written_from_the_beginning(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with as_somebody_who_may_not_do_all(tmp_path):
        out.mkdir(mode=0o555)
        with pytest.raises(HoldfastError, match="Permission denied"):
            run(Trouble(out), tmp_path / "store")
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(HoldfastError, match=r"/file"):
        run(Trouble(tmp_path / "file"), tmp_path / "other")
