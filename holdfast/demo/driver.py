"""A driver process of the demonstration: `python -m holdfast.demo.driver INPUT OUTPUT [--golden EXPLAIN]`.

It is an ordinary holdfast program: make a session, build the topology, run it on a store. Nothing in it knows that it
will be killed. It ends when it is asked to over the store's mailbox, or at once when its parent is gone.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from pathlib import Path

from holdfast.demo.topology import Places, build
from holdfast.runtime.engines.spark.session import make_session

MASTER = "local[2]"
"""Without a second try per task: a killed worker then always reaches holdfast. With `local[2,4]` Spark would heal most of
these kills by itself, and there would be nothing to see."""

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    # A driver of the demonstration lives for seconds: what counts is how soon it is there.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
    f" -Djava.io.tmpdir={tempfile.gettempdir()}",
}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m holdfast.demo.driver")
    parser.add_argument("input", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--golden", type=Path, help="write explain() here, process what is there, end")
    given = parser.parse_args(arguments)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    session = make_session("holdfast demo", MASTER, SETTINGS)
    places = Places(given.input, given.output)
    if given.golden is None:
        build(places).run(spark=session, store=places.store)
    else:
        # Cut otherwise than in the killed run: what comes out must not depend on it.
        topology = build(places, rows_per_step=20_000)
        _write_whole(given.golden, topology.explain(spark=session))
        topology.run(spark=session, store=places.store, until="available")
    session.stop()


def _write_whole(path: Path, text: str) -> None:
    path.with_suffix(".tmp").write_text(text)
    os.replace(path.with_suffix(".tmp"), path)


def _end_with_parent() -> None:
    """The parent holds the other end of stdin and never writes to it: its end is the parent's death."""
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
