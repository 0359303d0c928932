"""`python -m holdfast.chaos.soak --hours 2 --out build/soak.md`."""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from holdfast.chaos.soak.run import Soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast.chaos.soak")
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--out", type=Path, default=Path("build/soak.md"))
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--rate", type=int, default=200, help="rows per second and source")
    parser.add_argument("--gap", type=float, default=40.0, help="seconds between two faults, about")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupted)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    seed = secrets.randbelow(1 << 31) if given.seed is None else given.seed
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-") as root:
        soak = Soak(
            Path(root), given.hours * 3600, seed, given.rate, given.gap, lambda line: print(line, flush=True)
        )
        try:
            kept = soak.run()
        except KeyboardInterrupt:
            soak.failure = "It was interrupted twice."
            kept = False
        finally:
            given.out.write_text(soak.told())
    print(given.out.read_text())
    return 0 if kept else 1


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
