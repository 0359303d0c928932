"""What dies on Spark in cells of the matrix: a task of the region's first operator kills it from within, once, in the middle of its work."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import matrix_program as program
import pyarrow as pa

from holdfast.testing import processes

WORKERS = ("a worker", "all workers")
EXECUTORS = ("an executor", "all executors")


def cells(deaths: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """Those whose result is certain: mode `independent` knows single failures, and the source before a replayable start is in no region."""
    return [
        (topology, mode, death)
        for topology, mode, _ in program.cells(["one step fails"])
        for death in deaths
        if death == "a worker" or (mode != "independent" and topology != "replayable")
    ]


def deadly(death: str, here: Path) -> Callable[[pa.Table], pa.Table]:
    """Shipped to the workers: it dies with the first rows that come after an epoch was published, at the latest with the last row.

    All that it calls is in it: workers do not know the modules of tests.
    """
    last = program.ROWS - 1

    def victims(daemon: int) -> list[int]:
        """By descent, or by the tag of the run: never anybody else's."""
        found = processes.look(daemon)
        assert found is not None
        assert "pyspark" in found.command, "this is no worker of Spark"
        if death == "all workers":
            numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
            seen = [processes.look(number) for number in numbers]
            return [one.pid for one in seen if one is not None and one.parent == daemon]
        if death == "all executors":
            return [executor.pid for executor in processes.of_kind(os.environ[processes.TAG], "executor")]
        return [found.parent] if death == "an executor" else []

    def strike() -> None:
        """SIGKILL to the victims, and last to this worker."""
        for victim in victims(os.getppid()):
            if victim != os.getpid():
                os.kill(victim, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    def watch(table: pa.Table) -> pa.Table:
        if last in table.column("n").to_pylist() or any(here.glob("store/epochs/*/*.manifest")):
            try:
                (here / "died").touch(exist_ok=False)
            except FileExistsError:
                return table
            strike()
        return table

    return watch


def died(here: Path) -> bool:
    return (here / "died").exists()
