"""How long `holdfast run` takes to say what is wrong: whole processes, the median of five, as a table.

    .venv/bin/python scripts/refusals.py

Ends with 1 if one takes longer than a second. On a machine that is busy with other things look at what the processor did.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from holdfast.store.urls import open_store

TIMES = 5
BOUND_S = 1.0
HOLDFAST = Path(sys.executable).with_name("holdfast")
PROGRAM = """import holdfast as hf

shop = hf.Topology("shop")
orders = shop.source(hf.Files("orders", format="json", schema="id long, cents long"), name="orders")
spent = orders.consistent(name="shop").filter("cents > 0").aggregate("id", n=hf.count(), name="spent")
spent.sink(hf.FileSink("out", format="json"), name="out")
"""

REFUSED = {
    "a wrong option": (["shop.py", "--stor", "x"], "No such option"),
    "a master that is none": (["shop.py", "--master", "sparc://x:1"], "none that Spark knows"),
    "a file that is not there": (["shops.py"], "there is no file"),
    "a Python error in the program": (["wrong.py"], "line 9: NameError"),
    "a store with a live owner": (["shop.py", "--store", "owned"], "--take-over"),
    "a store URL of no kind": (["shop.py", "--store", "ftp://x/y"], "no kind of store"),
    "an input directory that is not there": (["shop.py", "--store", "store"], "does not exist"),
}
"""What is wrong → (arguments of `holdfast run`, what must be said)."""


def prepare(here: Path) -> None:
    (here / "shop.py").write_text(PROGRAM)
    (here / "wrong.py").write_text(f"{PROGRAM}\n\nspend.sink(hf.FileSink('more'), name='more')\n")


def seconds_of(arguments: list[str], said: str, here: Path) -> tuple[float, float]:
    """(by the clock, of the processor)."""
    began, worked = time.perf_counter(), processor_seconds()
    done = subprocess.run([HOLDFAST, "run", *arguments], cwd=here, capture_output=True, text=True)
    taken = time.perf_counter() - began
    if done.returncode == 0 or said not in done.stderr:
        raise SystemExit(f"holdfast run {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    return taken, processor_seconds() - worked


def processor_seconds() -> float:
    """Of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    slowest = 0.0
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        prepare(here)
        owned = open_store(str(here / "owned"))
        owned.open("shop")
        owned.acquire()
        print(f"{'holdfast run with …':38} {'median':>8} {'fastest':>8} {'slowest':>8} {'processor':>10}")
        for what, (arguments, said) in REFUSED.items():
            measured = [seconds_of(arguments, said, here) for _ in range(TIMES)]
            taken, worked = [each for each, _ in measured], [each for _, each in measured]
            median = statistics.median(taken)
            slowest = max(slowest, median)
            print(
                f"{what:38} {median:6.2f} s {min(taken):6.2f} s {max(taken):6.2f} s {statistics.median(worked):8.2f} s"
            )
        owned.release()
    return int(slowest >= BOUND_S)


if __name__ == "__main__":
    sys.exit(main())
