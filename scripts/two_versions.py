"""This version beside an older one: our sides of the same benchmarks, in two processes that take turns.

    .venv/bin/python scripts/two_versions.py OLDER_CHECKOUT keyed window checkpoint-pause --rounds 10 --seconds 4

Both use this environment. Each version has a process of its own, with a warm session, for as long as a benchmark lasts; in each round
each runs one stretch of as many steps, every other round the other way round. So both meet the same machine within seconds. Told are
rows per second. `checkpoint-pause` has no stretches: there a turn is a whole process, and told is how many pauses fit into a second.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).resolve()
ALTERNATIONS = ("holdfast.bench.measure.alternate", "holdfast.bench.alternate")
"""Where versions have the class `Alternation`."""
PLAIN = ("plain",)
PAUSE, EPOCHS, PAUSE_ROUNDS = "checkpoint-pause", 60, 3

Figures = dict[str, float]


class Over(BaseException):
    """Nobody wants more stretches."""


def alternation() -> Any:
    for name in ALTERNATIONS:
        try:
            return importlib.import_module(name).Alternation
        except ModuleNotFoundError:
            continue
    raise SystemExit(f"no Alternation in {ALTERNATIONS}")


def serve(bench: str, seconds: float) -> None:
    """In a process of one version: warm up, say how many steps a stretch has, then one stretch for each line that says how many."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(what: Figures) -> None:
        print(json.dumps(what), file=answers, flush=True)

    of_version = alternation()
    begin = of_version.__init__

    def with_our_sides(self: Any, place: Any, inputs: Any, sides: Any, look: Any) -> None:
        ours = [side for side in sides if side.name not in PLAIN and not side.name.startswith("spark")]
        begin(self, place, inputs, ours, look)

    def in_turns(self: Any, _: int, steps: int) -> None:
        tell({"steps": steps})
        for line in sys.stdin:
            tell(
                {
                    side.name: self._stretch(side, self._inputs, int(line))[0].rows_per_s
                    for side in self._sides
                }
            )
        raise Over

    of_version.__init__, of_version.measure = with_our_sides, in_turns
    benches = importlib.import_module("holdfast.bench.registry").BENCHES
    try:
        if bench == PAUSE:
            pauses = benches[bench](epochs=EPOCHS, seconds=seconds, quiet=True)["pause_ms"]
            tell({f"1 / pause {q}": 1000 / pauses[q] for q in ("p50", "p90")})
        else:
            benches[bench](pairs=1, seconds=seconds, quiet=True)
    except Over:
        pass


class Version:
    """A process of one version. `ask`: one line to it, one answer."""

    def __init__(self, checkout: Path, bench: str, seconds: float, place: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE), "--serve", bench, "--seconds", str(seconds)],
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Version:
        return self

    def __exit__(self, *_: object) -> None:
        _of(self._process.stdin).close()
        self._process.wait(120)

    def answer(self) -> Figures:
        line = _of(self._process.stdout).readline()
        if not line:
            raise SystemExit("a process ended without an answer")
        found: Figures = json.loads(line)
        return found

    def stretch(self, steps: int) -> Figures:
        pipe = _of(self._process.stdin)
        pipe.write(f"{steps}\n")
        pipe.flush()
        return self.answer()


def _of(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def rounds_of(
    bench: str, older: Path, rounds: int, seconds: float, place: str
) -> list[tuple[Figures, Figures]]:
    """(this version, the older one), round by round."""
    checkouts, found = (HERE.parents[1], older), []
    if bench == PAUSE:
        for number in range(min(rounds, PAUSE_ROUNDS)):
            told: dict[Path, Figures] = {}
            for checkout in checkouts if number % 2 == 0 else reversed(checkouts):
                with Version(checkout, bench, seconds, place) as version:
                    told[checkout] = version.answer()
            found.append((told[checkouts[0]], told[older]))
        return found
    with ExitStack() as stack:
        both = [stack.enter_context(Version(checkout, bench, seconds, place)) for checkout in checkouts]
        steps = max(int(version.answer()["steps"]) for version in both)
        for number in range(rounds):
            turn = both if number % 2 == 0 else both[::-1]
            done = {version: version.stretch(steps) for version in turn}
            found.append((done[both[0]], done[both[1]]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("older", type=Path, nargs="?")
    parser.add_argument("benches", nargs="*", metavar="bench")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.seconds)
        return
    from holdfast.bench.measure.ratios import ratio_of

    print(
        "| bench | figure | older | this | this over older | rounds |\n|---|---|---:|---:|---:|---|",
        flush=True,
    )
    for bench in given.benches:
        with tempfile.TemporaryDirectory() as place:
            found = rounds_of(bench, given.older.resolve(), given.rounds, given.seconds, place)
        pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for this, older in found:
            for name in this.keys() & older.keys():
                pairs[name].append((this[name], older[name]))
        for name, both in sorted(pairs.items()):
            ratio = ratio_of([new / old for new, old in both])
            new, old = (sum(side) / len(both) for side in zip(*both, strict=True))
            each = " ".join(f"{pair:.2f}" for pair in ratio.pairs)
            told = f"{ratio.median:.3f} ± {ratio.half_width:.3f}"
            print(f"| {bench} | {name} | {old:,.3g} | {new:,.3g} | {told} | {each} |", flush=True)


if __name__ == "__main__":
    main()
