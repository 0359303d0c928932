"""Makes the golden stores of the other back ends, and the golden export: `.venv/bin/python tests/golden/make_back_ends.py`.

As with those of manifest versions (make.py) a job is killed between publishing an epoch and making it visible, and what
it left is kept for ever: see golden_back_ends.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

from golden_back_ends import BACK_ENDS, EXPORT, ROOT, SAVEPOINT, lacking  # noqa: E402
from golden_back_ends_job import topology  # noqa: E402
from golden_content import size_of  # noqa: E402

from holdfast.checkpoint.change.transfer import export  # noqa: E402
from holdfast.checkpoint.look.epochs import open_reader  # noqa: E402
from holdfast.testing import submit_local  # noqa: E402

SCRATCH = Path("/var/tmp/golden")
"""Stores and programs name the places of their stores and sinks: here, of no machine in particular."""
TRIES = 50
KILLED_AT = "ckpt.epoch.published=kill@4"
NOT_KEPT = shutil.ignore_patterns("tmp", "server")


def main() -> None:
    if ROOT.exists():
        sys.exit(f"{ROOT} exists; golden stores are made once. Remove it yourself if it was never released.")
    SCRATCH.mkdir(mode=0o700)
    try:
        made = SCRATCH / "back_ends"
        left = {kind: killed(kind, SCRATCH / kind) for kind in BACK_ENDS}
        for kind, root in left.items():
            shutil.copytree(root, made / kind, ignore=NOT_KEPT)
        (made / "export").mkdir()
        with BACK_ENDS["sqlite"](left["sqlite"]) as url:
            export(open_reader(url), SAVEPOINT, made / "export" / EXPORT.name)
        shutil.copytree(made, ROOT)
    finally:
        shutil.rmtree(SCRATCH)
    print(f"{ROOT}: {size_of(ROOT)} bytes")


def killed(kind: str, scratch: Path) -> Path:
    """What a killed job left that has all that is wanted."""
    for number in range(TRIES):
        root = scratch / str(number)
        root.mkdir(parents=True)
        with BACK_ENDS[kind](root) as url:
            armed = {**os.environ, "HOLDFAST_FP": KILLED_AT}
            done = subprocess.run([sys.executable, __file__, "--run", url, str(root)], env=armed, check=False)
            if done.returncode != -signal.SIGKILL:
                sys.exit(f"the job ended with {done.returncode} instead of being killed")
            missing = lacking(url)
        if not missing:
            return root
        print(f"{kind}, once more, there is not: {'; '.join(missing)}", flush=True)
    sys.exit(f"None of {TRIES} killed runs left all that is wanted.")


def run(url: str, root: Path) -> None:
    """The job that is killed; one of its epochs gets a name."""
    running = submit_local(topology(root), url, until="available")
    running.savepoint(SAVEPOINT)
    running.await_termination()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
