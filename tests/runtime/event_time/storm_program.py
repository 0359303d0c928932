"""Child of test_timer_storms: one timer per key, with a limit on the memory that the process may take beyond what it has at the start.

storm_program.py DIRECTORY LIMIT_MB; it prints how much it took at most.
"""

from __future__ import annotations

import datetime as dt
import json
import resource
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast as hf
from holdfast.testing import run_local


class Reminds(hf.KeyedOperator):
    n = hf.Value(int, default=0)

    def process(self, row: Any, key: Any) -> None:
        self.n += 1
        self.set_timer(row.at + dt.timedelta(hours=1))

    def on_timer(self, at: dt.datetime, key: Any) -> Any:
        yield {"k": key, "n": self.n}


def memory(field: str) -> int:
    """Bytes of this process, as the kernel counts them."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) << 10


def main(here: str, limit_mb: int) -> None:
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    threading.stack_size(512 << 10)
    begun, before = memory("VmData"), memory("RssAnon")
    peak, ended = before, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not ended.wait(0.02):
            peak = max(peak, memory("RssAnon"))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    resource.setrlimit(resource.RLIMIT_DATA, (begun + (limit_mb << 20),) * 2)
    topology = hf.Topology("storm")
    source = hf.Files(f"{here}/in", "parquet", "k long, at timestamp_ntz", max_files_per_step=1)
    rows = topology.source(source, name="in").consistent(name="r", period=2.0)
    reminders = rows.keyed("k", Reminds, "k long, n long", name="reminders", on="at", delay=0)
    reminders.sink(hf.FileSink(f"{here}/out", "parquet"), name="out")
    run_local(topology, store=f"file:{here}/store", partitions=2)
    ended.set()
    watcher.join()
    print(json.dumps({"peak_mb": (peak - before) >> 20}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
