"""One side in a process of its own: `python -m holdfast.bench.whole.child CONFIG-JSON`.

It says what it did in lines of JSON on its standard output: {"started_s"}, {"warm_up_s"} if it was told to warm up, {"seconds",
"steps", "epochs", "cpu_s"}. With "warm_up" in its configuration, seconds and CPU are those of what comes behind it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from holdfast.bench.measure.cpu import since, spent
from holdfast.bench.whole.flink import FLINK
from holdfast.bench.whole.sides import THEIRS, Task, forget_states, session_of, work
from holdfast.testing.processes import TAG


def main(config: dict[str, Any]) -> None:
    begun = time.monotonic()
    session = session_of(config["side"])
    say(started_s=time.monotonic() - begun)
    measured(config, session)
    if config["side"] != FLINK:
        session.stop()


def measured(config: dict[str, Any], session: Any) -> None:
    side, task = config["side"], Task(**config["task"])
    before: Mapping[str, float] = {}
    if config["warm_up"] is not None:
        begun = time.monotonic()
        work(side, session, Task(**config["warm_up"]))
        if side == THEIRS:
            forget_states(session)
        say(warm_up_s=time.monotonic() - begun)
        before = _spent()
    begun = time.monotonic()
    answer = work(side, session, task)
    seconds = time.monotonic() - begun
    say(seconds=seconds, cpu_s=since(before, _spent()), **answer)


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def _spent() -> Mapping[str, float]:
    return spent(os.environ[TAG], os.getpid())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
