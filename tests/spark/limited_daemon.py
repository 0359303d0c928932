"""Spark's Python daemon with a limit on what each worker may allocate: `spark.python.daemon.module` of
spark_memory_program. LIMIT_MB counts from what a worker has when all modules are there.

Mapped segments are files: they do not count. What counts is what a worker allocates, whole states among it.
"""

from __future__ import annotations

import functools
import importlib
import os
import resource
import socket
import threading
from pathlib import Path

from pyspark import daemon

plain = daemon.worker


def memory(field: str, pid: int | str = "self") -> int:
    """Bytes of a process, as the kernel counts them; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))


def limit_memory(mb: int) -> None:
    """From now on this process may allocate so much more, and no more."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    threading.stack_size(512 << 10)
    resource.setrlimit(resource.RLIMIT_DATA, (memory("VmData") + (mb << 20),) * 2)


def refuses(mb: int) -> bool:
    """True if this process cannot allocate so much."""
    try:
        return not bytearray(mb << 20)
    except MemoryError:
        return True


@functools.cache
def limit_worker() -> None:
    """Once per process, when all modules are there."""
    for name in ("pyspark.worker", "pyarrow.parquet", "holdfast.runtime.engines.spark.engine"):
        importlib.import_module(name)
    limit_memory(int(os.environ["LIMIT_MB"]))


def limited(sock: socket.socket, authenticated: bool) -> int:
    """A task of a worker, after its fork; the next one may be in the same process."""
    limit_worker()
    return plain(sock, authenticated)


if __name__ == "__main__":
    daemon.worker = limited
    daemon.manager()
