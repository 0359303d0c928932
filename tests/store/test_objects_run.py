"""A whole run on a store of objects: the driver is killed, the next one goes on, and the output is exact."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from holdfast.cli.status.store_status import read_status

from . import redis_job
from .test_redis_run import lived, written

pytestmark = pytest.mark.slow


def test_a_driver_killed_while_publishing_goes_on_from_the_objects_with_exact_output(tmp_path: Path) -> None:
    url, output = f"objects+file://{tmp_path}/store", tmp_path / "out"
    for failpoint in ("ckpt.manifest.tmp_written=kill@3", "sink.commit.begin=kill@4"):
        assert lived(url, output, failpoint) == -signal.SIGKILL, f"{failpoint} did not fire"
        assert not read_status(url)["alive"]
    assert lived(url, output) == 0
    assert written(output) == redis_job.expected()
    assert read_status(url)["owner"] is None
    blobs = [path.name for path in (tmp_path / "store/blobs").iterdir()]
    assert len(blobs) < 40, "blobs nobody needs are deleted"
