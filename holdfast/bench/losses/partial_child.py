"""One life of the yield model of `examples/fabyield`, in a process of its own so that it can be killed: `python -m … CONFIG`.

It dies by SIGKILL while its model is at work on the unit `kill_at`; without one it runs to the end of its input.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.language.connectors import Slice
from holdfast.language.graph import SourceSpec
from holdfast.language.topology import Topology


def main(config: dict[str, Any]) -> None:
    program = _load(Path(config["program"]))
    topology = program.build(config["here"], every=config["every"], rows_per_step=config["rows_per_step"])
    _pace(topology, config["pace_s"])
    if config["kill_at"] is not None:
        _die_at(program.YieldModel, config["kill_at"])
    status = _run(topology, f"file:{config['here']}/store", config["engine"])
    print(json.dumps({"lost_rows": dict(status.lost_rows)}))


def _load(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.parent))
    return __import__(path.stem)


def _pace(topology: Topology, seconds: float) -> None:
    """Units come one after another, as from the line: a source that is always ahead would fill its queue, and a kill costs that."""
    for op in topology.graph().operators.values():
        if isinstance(op.spec, SourceSpec):
            source, ask = op.spec.source, op.spec.source.next_slice

            def later(ask: Any = ask) -> Slice | None:
                time.sleep(seconds)
                found: Slice | None = ask()
                return found

            source.next_slice = later  # type: ignore[method-assign]


def _die_at(model: Any, unit: int) -> None:
    process = model.process

    def fatal(self: Any, row: Any, port: int) -> Any:
        if row.unit >= unit:
            os.kill(os.getpid(), signal.SIGKILL)
        return process(self, row, port)

    model.process = fatal


def _run(topology: Topology, store: str, engine: str) -> Any:
    if engine == "local":
        from holdfast.testing.local import run_local

        return run_local(topology, store)
    return topology.run(store=store, until="available")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
