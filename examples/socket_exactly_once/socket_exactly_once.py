"""A TCP feed made exactly-once: lines are durable in a log before a step gets them.

    python examples/socket_exactly_once/socket_exactly_once.py       # a feed, a counter that is killed three times, and a comparison

What the demonstration starts, and you may start by hand:

    python examples/socket_exactly_once/socket_exactly_once.py count DIRECTORY --port 9999
    nc localhost 9999

TCP tells a sender nothing about what became of a line. A sender that wants to be sure asks the log: it has the lines that are safe, in
their order, and after a broken connection the feed goes on behind the last of them.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import holdfast as hf

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from demonstration import Program, run, wait_for

WORDS = ("ant", "bee", "cow", "dog", "eel")


def line(number: int) -> str:
    return f"{number} {WORDS[number * 31 % 7 % len(WORDS)]}"


class Split:
    """A Python operator: the number and the word of a line."""

    def process(self, row: Any, port: int) -> dict[str, object]:
        number, word = row.line.split()
        return {"number": int(number), "word": word}


def topology(here: Path, port: int, period: float) -> hf.Topology:
    made = hf.Topology("counter")
    lines = made.source(hf.TcpLines(port), name="lines").preserve(here / "lines")
    words = lines.consistent("counter", period=period).apply(Split, "number long, word string", name="split")
    counted = words.aggregate("word", times=hf.count(), last=hf.max("number"), emit="each", name="counted")
    counted.sink(hf.FileSink(here / "counts", "json"), name="counts")
    return made


class Feed(threading.Thread):
    """Sends its lines once each, at a rate, whatever happens to the connection."""

    def __init__(self, here: Path, port: int, lines: int, rate: float) -> None:
        super().__init__(daemon=True)
        self._here, self._port, self._lines, self._rate = here, port, lines, rate
        self.connections = 0

    def safe(self) -> int:
        log = hf.Log(self._here / "lines")
        return log.bounds().end if log.exists else 0

    def run(self) -> None:
        while (safe := self.safe()) < self._lines:
            try:
                with socket.create_connection(("127.0.0.1", self._port), 5) as connection:
                    self.connections += 1
                    self._send(connection, self.safe())
            except OSError:
                time.sleep(0.05)  # nobody listens yet, or any more
            if safe == self.safe():
                time.sleep(0.05)

    def _send(self, connection: socket.socket, first: int) -> None:
        begin, chunk = time.monotonic(), max(1, round(self._rate / 50))
        for number in range(first, self._lines, chunk):
            text = "".join(f"{line(n)}\n" for n in range(number, min(number + chunk, self._lines)))
            connection.sendall(text.encode())
            time.sleep(max(0.0, begin + (number + chunk - first) / self._rate - time.monotonic()))
        connection.settimeout(0.05)
        while self.safe() < self._lines:  # not done before they are safe: the connection may break now
            try:
                if not connection.recv(1):
                    return
            except TimeoutError:
                continue


def counted(here: Path) -> list[tuple[str, int, int]]:
    lines = [line for path in (here / "counts").glob("part-*.json") for line in path.read_text().splitlines()]
    return [(row["word"], row["times"], row["last"]) for row in map(json.loads, lines)]


def expected(lines: int) -> list[tuple[str, int, int]]:
    """The same by a loop."""
    times: Counter[str] = Counter()
    found = []
    for number in range(lines):
        word = line(number).split()[1]
        times[word] += 1
        found.append((word, times[word], number))
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def demonstrate(here: Path, lines: int, rate: float, period: float, local: bool, kills: int) -> bool:
    """True if the counts are what a loop over all lines gives."""
    here.mkdir(parents=True, exist_ok=True)
    port = free_port()
    words = ["--port", port, "--period", period, *(["--local"] if local else [])]
    counter = Program(here / "counter.txt", __file__, "count", here, *words)
    feed = Feed(here, port, lines, rate)
    feed.start()
    try:
        for number in range(1, kills + 1):
            share = lines * number // (kills + 1)
            wait_for(lambda share=share: feed.safe() >= share and counted(here), "lines", counter)
            counter.kill_and_restart()
            print(f"counter killed; {feed.safe():>6,} lines are safe, {len(counted(here)):>6,} are counted")
        wait_for(lambda: len(counted(here)) >= lines, "the last lines", counter)
        counter.finish(ask=True)
    finally:
        counter.close()
    found, wanted = Counter(counted(here)), Counter(expected(lines))
    lost, doubled = (wanted - found).total(), (found - wanted).total()
    print(f"\n{lines:,} lines over {feed.connections} connections; counter killed {counter.kills} times")
    print(f"rows lost: {lost}, doubled or wrong: {doubled}; {'exactly once' if found == wanted else 'WRONG'}")
    return found == wanted


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("what", nargs="?", default="demo", choices=["demo", "count"])
    words.add_argument("directory", nargs="?", type=Path)
    words.add_argument("--port", type=int, default=9999)
    words.add_argument("--lines", type=int, default=20_000)
    words.add_argument("--rate", type=float, default=500.0, help="lines per second")
    words.add_argument("--period", type=float, default=1.0, help="seconds between epochs")
    words.add_argument("--kills", type=int, default=3)
    words.add_argument("--local", action="store_true", help="without Spark")
    given = words.parse_args()
    here = given.directory or Path(tempfile.mkdtemp(prefix="socket_exactly_once_"))
    if given.what == "count":
        run(topology(here, given.port, given.period), here / "store", None, given.local)
        return
    print(f"in {here}")
    sys.exit(not demonstrate(here, given.lines, given.rate, given.period, given.local, given.kills))


if __name__ == "__main__":
    main()
