"""How long a restore takes from a Redis server that is a millisecond away, with and without reading ahead.

    python scripts/restore_ahead.py [--deltas 60] [--operators 4] [--megabytes 4] [--latency-ms 1] [--rounds 5]

Starts a server of its own on loopback, and a proxy before it that delays every answer. Stores operators of two
variables each as a base and deltas, and restores them as an element does. Both ways take turns; the medians are told.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.checkpoint import chain
from holdfast.checkpoint.blobs import BlobRef, PairReader, put_blobs
from holdfast.checkpoint.chain import Chain, Taken
from holdfast.checkpoint.parts import OperatorPart
from holdfast.checkpoint.read_ahead import ReadAhead, keys_of
from holdfast.ids import Epoch
from holdfast.state.values import codec
from holdfast.store.base import Store
from holdfast.store.redis.redis_store import RedisStore

DESCRIBED = {"counts": "map(str,int)", "line": "list(int)"}
ENTRY = "operators@measured"


@contextmanager
def server(directory: str) -> Iterator[int]:
    """A Redis server; its port."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise SystemExit("there is no redis-server on PATH: apt-get install redis-server")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    settings = f"--port {port} --bind 127.0.0.1 --appendonly yes --appendfsync always --dir {directory}"
    process = subprocess.Popen([program, *settings.split()], stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


class Distance:
    """A proxy whose answers come later by some seconds; how much of an answer there is does not matter."""

    def __init__(self, target: int, latency_s: float) -> None:
        self._target = target
        self._latency_s = latency_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            there = socket.create_connection(("127.0.0.1", self._target))
            for each in (client, there):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._requests, args=(client, there), daemon=True).start()

    def _requests(self, client: socket.socket, there: socket.socket) -> None:
        """Requests are few and small, and each is answered before the next: a delay of one is a delay of its answer."""
        threading.Thread(target=_pass_on, args=(there, client), daemon=True).start()
        _pass_on(client, there, self._latency_s)


def _pass_on(one: socket.socket, other: socket.socket, delay_s: float = 0.0) -> None:
    try:
        while data := one.recv(1 << 20):
            if delay_s:
                time.sleep(delay_s)
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def fill(store: Store, operators: int, deltas: int, base_bytes: int) -> list[OperatorPart]:
    """Store the operators; what a manifest would list of each."""
    store.create_entry(ENTRY)
    return [
        OperatorPart(pairs=_chain(store, f"op{number}", deltas, base_bytes)) for number in range(operators)
    ]


def _chain(store: Store, name: str, deltas: int, base_bytes: int) -> tuple[BlobRef, ...]:
    entries = base_bytes // 30
    now, listed = Chain({}), tuple[BlobRef, ...]()
    for epoch in range(1, deltas + 2):
        taken: dict[str, Taken] = {
            "counts": ("base", codec.encode({f"key {n}": n for n in range(entries)})),
            "line": ("base", codec.encode(list(range(entries)))),
        }
        if epoch > 1:
            changed = {f"key {n}": epoch for n in range(entries // 500)}
            line = [codec.encode(part) for part in ([0, entries + epoch - 2], [], [], [epoch])]
            taken = {
                "counts": ("delta", codec.encode([codec.encode([]), codec.encode(changed)])),
                "line": ("delta", codec.encode(line)),
            }
        link = chain.add(now, Epoch(epoch), taken, DESCRIBED, {"epoch": epoch})
        keys = {f"e{epoch}-a1+{name}~{kind}": data for kind, data in link.data.items()}
        new = tuple(put_blobs(store, ENTRY, keys).values())
        listed, now = (*link.older, *new), link.stored(new)
    return listed


def restore(store: PairReader, parts: list[OperatorPart]) -> None:
    for part in parts:
        chain.restore(store, part.pairs)


def restore_ahead(store: PairReader, parts: list[OperatorPart]) -> None:
    with ReadAhead(store, keys_of(parts)) as ahead:
        restore(ahead, parts)


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--deltas", type=int, default=60)
    asked.add_argument("--operators", type=int, default=4)
    asked.add_argument("--megabytes", type=float, default=4.0)
    asked.add_argument("--latency-ms", type=float, default=1.0)
    asked.add_argument("--rounds", type=int, default=5)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as directory, server(directory) as port:
        store = RedisStore(f"redis://127.0.0.1:{port}/0?name=measured")
        store.open("measured")
        store.acquire()
        parts = fill(store, given.operators, given.deltas, int(given.megabytes * 1e6 / given.operators))
        away = Distance(port, given.latency_ms / 1000)
        far = RedisStore(f"redis://127.0.0.1:{away.port}/0?name=measured")
        ways: dict[str, Callable[[PairReader, list[OperatorPart]], None]] = {
            "one_after_another": restore,
            "ahead": restore_ahead,
        }
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(given.rounds):
            for name, way in ways.items():
                begun = time.monotonic()
                way(far, parts)
                taken[name].append(time.monotonic() - begun)
        far.close()
        store.close()
    medians = {f"{name}_s": round(statistics.median(times), 3) for name, times in taken.items()}
    stored = {"pairs": sum(len(part.pairs) for part in parts)}
    ratio = medians["ahead_s"] / medians["one_after_another_s"]
    print(json.dumps({**vars(given), **stored, **medians, "ratio": round(ratio, 3)}))


if __name__ == "__main__":
    main()
