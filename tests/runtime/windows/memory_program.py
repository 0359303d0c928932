"""Child of test_state_beyond_memory: running sums over long keys, with a limit on the memory the process may take.

Mapped segments are files: they do not count. What counts is what the process allocates, whole states among it.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
from pathlib import Path

import pyarrow as pa

import holdfast as hf
from holdfast.testing import run_local


def memory(field: str) -> int:
    """Bytes of this process, as the kernel counts them."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) << 10


def main(here: str, limit_mb: int) -> None:
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    threading.stack_size(512 << 10)
    begun, before = memory("VmData"), memory("RssAnon")
    peak = before
    ended = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not ended.wait(0.02):
            peak = max(peak, memory("RssAnon"))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    resource.setrlimit(resource.RLIMIT_DATA, (begun + (limit_mb << 20),) * 2)
    topology = hf.Topology("large")
    source = hf.Files(f"{here}/in", "parquet", "k string, v long", max_files_per_step=1)
    rows = topology.source(source, name="in").consistent(period=1.0)
    sums = rows.aggregate("k", n=hf.count(), total=hf.sum("v"), name="sums")
    sums.sink(hf.FileSink(f"{here}/out", "parquet"), name="out")
    run_local(topology, store=f"file:{here}/store", partitions=2)
    ended.set()
    watcher.join()
    print(json.dumps({"peak_mb": (peak - before) >> 20}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
