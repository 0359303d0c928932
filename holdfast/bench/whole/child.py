"""One side in a process of its own: `python -m holdfast.bench.whole.child CONFIG-JSON`.

It says what it did in lines of JSON on its standard output: {"started_s"}, {"warm_up_s"} if it was told to warm up, {"seconds",
"steps", "epochs", "cpu_s"}. With "warm_up" in its configuration, seconds and CPU are those of what comes behind it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from holdfast.bench.whole.sides import THEIRS, Task, forget_states, session_of, work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(config: dict[str, Any]) -> None:
    begun = time.monotonic()
    session = session_of(config["side"])
    say(started_s=time.monotonic() - begun)
    measured(config, session)
    session.stop()


def measured(config: dict[str, Any], session: SparkSession) -> None:
    side, task = config["side"], Task(**config["task"])
    before: dict[str, float] = {}
    if config["warm_up"] is not None:
        begun = time.monotonic()
        work(side, session, Task(**config["warm_up"]))
        if side == THEIRS:
            forget_states(session)
        say(warm_up_s=time.monotonic() - begun)
        before = _spent()
    begun = time.monotonic()
    told = work(side, session, task)
    seconds = time.monotonic() - begun
    cpu = {kind: spent - before.get(kind, 0.0) for kind, spent in _spent().items()}
    say(seconds=seconds, cpu_s=cpu, **told)


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def _spent() -> dict[str, float]:
    from holdfast.bench.whole.cpu import spent
    from holdfast.testing.processes import TAG

    return spent(os.environ[TAG], os.getpid())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
