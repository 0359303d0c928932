"""Makes the golden store of the present manifest version: `.venv/bin/python tests/golden/make.py`.

A small job is killed between publishing an epoch and making it visible. Its input, store, output and what must become
of it are kept under tests/golden for ever: every later version must be able to finish it. Each has a job of its own that
is never changed; see `golden_versions.py`. A new manifest version gets a new module and a new directory.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from golden_content import SIZE_MAX, lacking, size_of
from golden_files import copy_as_checked_out, rows_of
from golden_versions import VERSIONS

from holdfast.checkpoint.manifest import VERSION
from holdfast.ids import RegionName
from holdfast.runtime.element.epochs import overtaking
from holdfast.runtime.region.region import Region
from holdfast.testing import run_local, submit_local

HERE = Path(__file__).resolve().parent
TRIES = 50
NAMED = 3
OVERTAKE_S = 1.0
"""While a store is made, tokens wait for so long: on a busy machine as well they overtake nothing but what waits before slow
operators, and batches of quick ones are kept."""


def main() -> None:
    found = [(name, version) for name, version in VERSIONS.items() if version.MANIFEST == VERSION]
    if not found:
        sys.exit(
            f"golden_versions.py has no job for manifest version {VERSION}: write one, in a module of its own."
        )
    ((name, _),) = found
    target = HERE / name
    if target.exists():
        sys.exit(
            f"{target} exists; a golden store is made once. Remove it yourself if it was never released."
        )
    with tempfile.TemporaryDirectory() as scratch:
        tries = (attempt(name, Path(scratch, str(number))) for number in range(TRIES))
        made = next((golden for golden in tries if golden is not None), None)
        if made is None:
            sys.exit(f"None of {TRIES} killed runs left all that is wanted.")
        shutil.copytree(made, target)
    print(f"{target}: {size_of(target)} bytes")


def attempt(name: str, scratch: Path) -> Path | None:
    """Kill a run; the directory with all that it left, and what becomes of it, if that is all that is wanted."""
    version = VERSIONS[name]
    killed, golden = scratch / "killed", scratch / "golden"
    kill_in_the_middle(name, version, killed)
    missing = lacking(killed, version.CONTENT)
    if not missing:
        # tmp is private to a process that is dead.
        shutil.copytree(killed, golden, ignore=shutil.ignore_patterns("tmp"))
        finish(version, golden, scratch / "finished")
        if size_of(golden) < SIZE_MAX:
            return golden
        missing = [f"less than {SIZE_MAX} bytes ({size_of(golden)})"]
    print(f"once more, there is not: {'; '.join(missing)}", flush=True)
    return None


def kill_in_the_middle(name: str, version: ModuleType, root: Path) -> None:
    version.make_input(root / "input")
    armed = {**os.environ, "HOLDFAST_FP": version.KILLED_AT, "PYTHONPATH": str(HERE.parents[1])}
    done = subprocess.run([sys.executable, __file__, "--run", name, str(root)], env=armed, check=False)
    if done.returncode != -signal.SIGKILL:
        sys.exit(f"the job ended with {done.returncode} instead of being killed")


def run(name: str, root: Path) -> None:
    """The job that is killed. Every epoch is asked for when each element of the region has taken a step since the one
    before; one of them gets a name."""
    version = VERSIONS[name]
    overtaking.OVERTAKE_S = OVERTAKE_S
    job = submit_local(version.topology(root), f"file:{root / 'store'}", until="available")
    region = job.regions[RegionName(version.CONTENT.region)]
    asked, before = 0, steps_of(region)
    while not job.await_termination(0.005):
        steps = steps_of(region)
        if region.epoch < asked:
            before = steps
        if any(steps[element] == before[element] for element in steps):
            continue
        asked += 1
        if asked == NAMED:
            job.savepoint(version.CONTENT.savepoint)
        else:
            job.trigger_epoch()
        before = steps_of(region)


def steps_of(region: Region) -> dict[str, int]:
    return {name: life.loop.metrics.steps for name, life in region.lives.items()}


def finish(version: ModuleType, golden: Path, finished: Path) -> None:
    """Write what comes out, which must be what the input alone says."""
    copy_as_checked_out(golden, finished)
    run_local(version.topology(finished, resumed=True), f"file:{finished / 'store'}")
    expected = {name: rows_of(finished / "output" / name) for name in version.OUTPUTS}
    computed = version.computed(finished)
    for name, compare in version.OUTPUTS.items():
        compare(computed[name], expected[name], what=name)
    lines = [
        f"{json.dumps(name)}: {json.dumps(rows, separators=(',', ':'))}" for name, rows in expected.items()
    ]
    (golden / "expected.json").write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
