"""Child of test_spark_best_effort: graphs of `holdfast.chaos.best_effort` side by side on one session, each on a store of
its own. `python best_effort_spark_program.py DIRECTORY MASTER SIZE END GRAPH…`; with END=1 each runs to the end of its input
and leaves its status. It ends when its parent is gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from holdfast.chaos.best_effort import Place, Size, build, note_steps
from holdfast.chaos.campaign_driver import SETTINGS
from holdfast.runtime.engines.spark.session import make_session


def end_with_parent() -> None:
    """The parent holds the other end of stdin and never writes to it: its end is the parent's death."""
    while os.read(0, 1):
        pass
    os._exit(1)


def main(here: str, master: str, size: str, to_the_end: str, *graphs: str) -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()
    session = make_session("best effort", master, SETTINGS)
    session.sparkContext.setLogLevel("OFF")
    places = {graph: Place(Path(here) / graph) for graph in graphs}
    note_steps({graph: place.trail for graph, place in places.items()})
    until = "available" if to_the_end == "1" else None
    jobs = {
        graph: build(graph, place, Size(**json.loads(size))).submit(
            session, store=f"file:{place.store}", until=until
        )
        for graph, place in places.items()
    }
    for graph, job in jobs.items():
        while not job.await_termination(timeout=3600):
            pass
        places[graph].report(os.getpid()).write_text(json.dumps(job.status().as_dict()))
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
