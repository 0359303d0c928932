"""A driver process of a campaign: `python -m holdfast.chaos.campaign_driver ROOT MASTER SIZE`.

An ordinary holdfast program that does not know what will happen to it: make a session, build the topology, run it on
its store until everything available is processed, write a report. It ends at once when its parent is gone.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from holdfast.chaos.campaign import Place, Size, build
from holdfast.errors import HoldfastError
from holdfast.runtime.engines.spark.session import make_session

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    # A driver of a campaign lives for seconds: what counts is how soon it is there.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
    f" -Djava.io.tmpdir={tempfile.gettempdir()}",
}


def main(root: str, master: str, size: str) -> int:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    place = Place(Path(root))
    report: dict[str, Any] = {}
    code = 0
    try:
        session = make_session("holdfast campaign", master, SETTINGS)
        _log_failed_tasks(session)
        topology = build(place, Size(**json.loads(size)))
        status = topology.run(spark=session, store=f"file:{place.store}", until="available")
        report["status"] = status.as_dict()
        session.stop()
    except HoldfastError as error:
        report["error"], report["message"], code = type(error).__name__, str(error), error.exit_code
    (place.root / f"report-{os.getpid()}.json").write_text(json.dumps(report))
    return code


def _log_failed_tasks(session: Any) -> None:
    """Our sessions keep quiet about tasks that are tried again; a campaign wants to know that a kill was felt."""
    log4j = session._jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel("org.apache.spark.executor.Executor", log4j.Level.ERROR)


def _end_with_parent() -> None:
    """The parent holds the other end of stdin and never writes to it: its end is the parent's death."""
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
