"""A driver of a soak: `python -m holdfast.chaos.soak.driver ROOT RATE`. Ends when it is asked to over the store's mailbox, or with its parent.

It is told by lines of JSON on its stdin to arm failpoints, and knows nothing else of what will happen to it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from pathlib import Path

from holdfast import failpoints
from holdfast.chaos.soak.app import Places, build
from holdfast.errors import HoldfastError
from holdfast.runtime.engines.spark.session import make_session

MASTER = "local[2,4]"
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
    f" -Djava.io.tmpdir={tempfile.gettempdir()}",
}


def main(root: str, rate: str) -> int:
    threading.Thread(target=_obey, daemon=True).start()
    places, code = Places(Path(root)), 0
    try:
        session = make_session("holdfast soak", MASTER, SETTINGS)
        log4j = session._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
        log4j.core.config.Configurator.setLevel("org.apache.spark.executor.Executor", log4j.Level.ERROR)
        status = build(places, int(rate)).run(spark=session, store=f"file:{places.store}", take_over=True)
        (places.root / "status.json").write_text(json.dumps(status.as_dict(), default=str))
        session.stop()
    except HoldfastError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        code = error.exit_code
    return code


def _obey() -> None:
    for line in sys.stdin:
        told = json.loads(line)
        if "arm" in told:
            failpoints.arm(told["arm"])
    os._exit(1)


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
