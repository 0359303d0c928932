"""Child of the tests that stop, cut off or kill parts of a cluster: rows numbered per key by a Python operator in tasks, which may stop its worker in
the middle of a task, once.

numbered_program.py DIRECTORY MASTER STORE; `SETTINGS` in its environment are more settings of Spark's (JSON), `STOPS` lets the worker stop
itself at the first row behind an epoch, `PACE_S` is how long each step waits. It ends when its parent is gone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.runtime.engines.spark.session import make_session

ROOT = Path(__file__).parents[2]
REGION = "region"
ROWS_PER_STEP = 25
TOLD = "status: "


class Paced(hf.Files):
    """Files that arrive with a pause before each step."""

    pace_s = 0.0

    def next_slice(self) -> Any:
        time.sleep(self.pace_s)
        return super().next_slice()


def build(here: Path, stops: bool = False, pace_s: float = 0.0) -> hf.Topology:
    """Everything is in one element: nothing of Spark's works between two steps."""

    def stop() -> None:
        """This worker stands still until somebody lets it go on; what it writes then is late. Whoever ends its daemon hangs up on it,
        and the kernel lets orphans go on: both would end it before."""
        try:
            fd = os.open(here / "stopped", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return
        os.write(fd, str(os.getpid()).encode())
        os.close(fd)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        while not (here / "go-on").exists():
            os.kill(os.getpid(), signal.SIGSTOP)
        (here / "went-on").touch()

    class Numbered(hf.KeyedOperator):
        n = hf.Value(int, default=0)

        def process(self, row: Any, key: Any) -> Iterator[dict[str, Any]]:
            if stops and not (here / "stopped").exists() and any(here.glob("published-*")):
                stop()
            self.n += 1
            yield {"id": row.id, "k": key, "n": self.n}

    topology = hf.Topology("numbered")
    source = Paced(str(here / "in"), "parquet", "id long, k string", max_rows_per_step=ROWS_PER_STEP)
    source.pace_s = pace_s
    rows = topology.source(source, name="in").consistent(name=REGION, period=0.5, drain_timeout=60)
    rows.keyed("k", Numbered, "id long, k string, n long", name="numbered").sink(
        hf.FileSink(str(here / "out"), "parquet"), name="out"
    )
    return topology


def with_parent() -> None:
    """End with who started this process: its standard input ends."""
    os.read(0, 1)  # not by a lock, which would be held at the end
    os._exit(3)


def note(here: Path) -> Any:
    """Tests, and tasks on other executors, see by files which epochs there are."""

    def listen(event: Any) -> None:
        if event.kind == "epoch.published":
            (here / f"published-{event.epoch}").touch()

    return listen


def main(here: Path, master: str, store: str) -> None:
    threading.Thread(target=with_parent, daemon=True).start()
    settings = {
        "spark.driver.memory": "1g",
        "spark.executor.memory": "1g",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.cores.max": "2",
        **json.loads(os.environ.get("SETTINGS", "{}")),
    }
    session = make_session("numbered", master, settings)
    session.sparkContext.setLogLevel("WARN")
    topology = build(here, bool(os.environ.get("STOPS")), float(os.environ.get("PACE_S", "0")))
    status = topology.run(session, store=store, until="available", subscribers=[note(here)])
    print(TOLD + json.dumps(status["regions"][REGION]), flush=True)
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
