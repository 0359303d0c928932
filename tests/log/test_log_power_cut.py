"""Power is cut at failpoints of a log that is appended to, sealed, merged and trimmed: what was acknowledged is there, nothing else counts,
and the log goes on. With syncing left out it is not there. And whatever sectors of a group that was not synced yet reach the disk, the log is read."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import power
import pytest
from faults import fired
from log_program import APPENDS, PARTITIONS, ROWS, SCHEMA, expected, rows
from sampling import Extent
from small_disk import enter_namespace

import holdfast as hf
from holdfast import failpoints

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

OF_APPENDS = (
    "log.write",
    "log.written",
    "log.synced",
    "log.acknowledged",
    "log.tail.made",
    "log.index.written",
)
OF_UPKEEP = (
    "log.merge.written", "log.merge.shown", "log.merge.removed", "log.notes.written", "log.notes.shown",
    "log.trim.marked", "log.trim.removed", "log.consumer.written",
)  # fmt: skip
POINTS = [
    *(f"{name}@{hit}" for name in OF_APPENDS for hit in (2, 7, 19)),
    *(f"{name}@{hit}" for name in OF_UPKEEP for hit in (1, 2)),
]
EPOCHS = APPENDS // 2
SECTOR = 512
TORN = 5


# --- a life -----------------------------------------------------------------------------------------------------------


def opened(here: Path, name: str) -> hf.Log:
    return hf.Log(
        here / name, schema=SCHEMA, partitions=PARTITIONS, segment_bytes=3000, upkeep_every=None, memory_bytes=2000
    )  # fmt: skip


@dataclass
class Said:
    """What the writer was told, at any moment."""

    appends: dict[tuple[int, int], Any] = field(default_factory=dict)
    sealed: int = 0

    def __call__(self, failpoint: str = "") -> dict[str, Any]:
        done = [
            [0, *(s for (p, s), each in list(self.appends.items()) if p == at and each.is_done)]
            for at in (0, 1)
        ]
        return {"appended": [max(each) for each in done], "sealed": self.sealed}


def write(here: Path, said: Said) -> None:
    """Appends, epochs and upkeep, from where the logs are."""
    with opened(here, "plain") as plain, opened(here, "sealed") as sealed:
        writers = [plain.writer("w", window=3, partition=partition) for partition in range(PARTITIONS)]
        newest = max(sealed._state(partition).sealed for partition in range(PARTITIONS))
        if newest > 0:
            sealed.seal_epoch(newest)  # in one partition it may have come that far, in the other one not
        said.sealed = max(sealed.sealed_epoch, 0)
        sealed.withdraw_after(said.sealed)
        for sequence in range(min(writer.last_sequence for writer in writers) + 1, APPENDS + 1):
            for writer in writers:
                pending = writer.append(
                    rows(writer.partition, sequence), sequence=sequence, note=b"%d" % sequence
                )
                said.appends[writer.partition, sequence] = pending
            if said.sealed < EPOCHS:
                seal(sealed, said)
            if sequence % 8 == 0:
                for writer in writers:
                    writer.flush()
                plain.consumer("copy", {p: plain.bounds(p).end for p in range(PARTITIONS)})
                for log in (plain, sealed):
                    log.compact(6000)
                    log.retain()
        while said.sealed < EPOCHS:
            seal(sealed, said)
        for writer in writers:
            writer.flush()


def seal(log: hf.Log, said: Said) -> None:
    epoch = said.sealed + 1
    for partition in range(PARTITIONS):
        log.append(rows(partition, epoch), partition=partition, epoch=epoch)
    log.seal_epoch(epoch)
    said.sealed = epoch


def read(here: Path, acknowledged: dict[str, Any]) -> None:
    """Everything that was acknowledged, and of the rest only whole appends and whole epochs."""
    with opened(here, "plain") as log:
        for partition in range(PARTITIONS):
            at = log.bounds(partition)
            assert at.end >= ROWS * acknowledged["appended"][partition], "an acknowledged append is gone"
            assert of_reader(log, partition) == expected(partition)[at.low : at.end]
            assert log.last_sequence("w", partition) == at.end / ROWS
    with opened(here, "sealed") as log:
        for partition in range(PARTITIONS):
            found = of_reader(log, partition)
            epochs = len(found) // ROWS
            assert epochs in (acknowledged["sealed"], acknowledged["sealed"] + 1), (
                "epochs that were sealed are gone"
            )
            assert found == expected(partition)[: epochs * ROWS]


def of_reader(log: hf.Log, partition: int) -> list[int]:
    low = log.bounds(partition).low
    return [
        n
        for b in log.reader({partition: low}, partitions=[partition])
        for n in b.rows.column("n").to_pylist()
    ]


ALL = {"appended": [APPENDS] * PARTITIONS, "sealed": EPOCHS}


def life(
    image: Path, here: Path, report: Path, found: dict[str, Any] | None, prepare: Callable[[Said], None]
) -> None:
    """Body of a child: mount, look at what is `found` there, and write to the end."""
    told, said = "", Said()
    try:
        enter_namespace()
        power.mount(image, here)
        os.environ[failpoints.ENV_LOG] = str(report.with_suffix(".hits"))
        prepare(said)
        if found is not None:
            read(here, found)
        write(here, said)
        read(here, ALL)
    except BaseException as error:
        told = f"{type(error).__name__}: {error}"
    report.write_text(json.dumps(told))
    os._exit(0)


def cuts(
    here: Path, wanted: set[str], plant: Callable[[], None] = lambda: None
) -> list[tuple[Path, str, Any]]:
    image, told, report = power.make_image(here / "disk"), here / "told", here / "report"

    def prepare(said: Said) -> None:
        plant()
        failpoints._log = power.Watch(wanted, told, said)

    found = power.pictures(lambda: life(image, here / "logs", report, None, prepare), image, told, here)
    assert json.loads(report.read_text()) == ""
    return found


def verdict(here: Path, image: Path, acknowledged: dict[str, Any]) -> str:
    """'' if what is on the disk after the cut is right, and the log goes on to its end."""
    report = here / f"after-{image.name}"
    body = partial(life, image, here / "logs", report, acknowledged, lambda said: None)
    return str(json.loads(report.read_text())) if power.came_to_its_end(body) else "hung"


# --- tests ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def images(tmp_path: Path) -> None:
    power.skip_without_images(tmp_path)


@pytest.mark.usefixtures("images")
@pytest.mark.fault("S01", "S16", "S19", "O05")
def test_what_a_log_acknowledged_is_there_after_a_power_cut(
    tmp_path: Path, extent: Extent, tell: Callable[..., None]
) -> None:
    wanted = set(extent.of(POINTS, keep=8))
    found = cuts(tmp_path, wanted)
    assert {at for _, at, _ in found} == wanted, "not every failpoint was reached"
    for image, at, acknowledged in found:
        assert verdict(tmp_path, image, acknowledged) == "", f"after a cut at {at}"
        fired("power cut")
        tell("power cuts", f"a log: at {at}, {acknowledged} acknowledged")


def sync_nothing() -> None:
    os.fsync = os.fdatasync = lambda fd: None


@pytest.mark.usefixtures("images")
@pytest.mark.fault("PD01", "PD02", "S03")
@pytest.mark.planted
def test_without_syncing_a_power_cut_of_a_log_is_noticed(tmp_path: Path, tell: Callable[..., None]) -> None:
    ((image, at, acknowledged),) = cuts(tmp_path, {"log.acknowledged@19"}, sync_nothing)
    found = verdict(tmp_path, image, acknowledged)
    assert found, f"after a cut at {at} nothing is missing"
    tell("planted defects", f"sync_nothing, a log: {found[:120]}")


@pytest.mark.fault("S01", "S19")
def test_whatever_sectors_of_a_group_reach_the_disk_the_log_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between `write` and `fsync` a file system may leave any of them behind, and any size between the old one and the new."""
    said, dice, one_group = Said(), random.Random(18), threading.Lock()
    taken: list[tuple[Path, dict[str, Any], dict[Path, int]]] = []

    def watch(line: str) -> None:
        """Groups of several partitions are written one after another here: each picture has one that is not synced."""
        match line.split()[0]:
            case "log.write":
                one_group.acquire()
                sizes.update((path, path.stat().st_size) for path in (tmp_path / "logs").rglob("*.tail"))
            case "log.written" if len(taken) < TORN and dice.random() < 0.05:
                acknowledged, copy = said(), tmp_path / f"torn-{len(taken)}"
                shutil.copytree(tmp_path / "logs", copy)
                taken.append((copy, acknowledged, dict(sizes)))
            case "log.synced":
                one_group.release()

    sizes: dict[Path, int] = {}
    monkeypatch.setenv(failpoints.ENV_LOG, str(tmp_path / "hits"))
    monkeypatch.setattr(failpoints, "_log", watch)
    write(tmp_path / "logs", said)
    monkeypatch.undo()
    assert taken
    for copy, acknowledged, before in taken:
        for path, synced in before.items():
            tear(copy / path.relative_to(tmp_path / "logs"), synced, dice)
        read(copy, acknowledged)
        write(copy, Said())
        read(copy, ALL)
        fired("torn group of a log")


def tear(path: Path, synced: int, dice: random.Random) -> None:
    """Of what lies behind `synced` some sectors are there, others are zeros, and the end may be missing."""
    if not path.exists() or path.stat().st_size <= synced:
        return
    data = bytearray(path.read_bytes())
    for start in range(synced - synced % SECTOR, len(data), SECTOR):
        first = max(start, synced)
        if dice.random() < 0.5:
            data[first : start + SECTOR] = bytes(len(data[first : start + SECTOR]))
    path.write_bytes(data[: dice.randint(synced, len(data))])
