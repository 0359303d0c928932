"""Fuzzes every decoder, `make fuzz MINUTES=10`: so long each. Findings lie in build/fuzz; exit code 1 if there are any."""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from fuzz.engine import fuzz
from fuzz.targets import TARGETS

OUT = Path("build", "fuzz")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("targets", nargs="*", default=list(TARGETS))
    asked = parser.parse_args()
    print(f"seed {asked.seed}, {asked.minutes:g} minutes each", flush=True)
    bad = 0
    for name in asked.targets:
        tried, findings = fuzz(name, asked.seed, seconds=asked.minutes * 60)
        print(f"{name:<16} {tried:>9,} inputs, {len(findings)} findings", flush=True)
        for each in findings:
            path = OUT / f"{name}-{hashlib.sha256(each.data).hexdigest()[:12]}"
            OUT.mkdir(parents=True, exist_ok=True)
            path.write_bytes(each.data)
            print(f"    {each.what}: {path}", flush=True)
        bad += len(findings)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
