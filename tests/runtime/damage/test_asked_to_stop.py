"""Ctrl-C and SIGTERM at each failpoint: the run ends well or as if it was killed, and the next one shows the rest once.

`make test` has a sample of the failpoints; `make chaos` each with both signals, once and twice in a row.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import campaign
import forked
import pytest
from campaign import Place
from faults import fired
from sampling import Extent
from test_every_failpoint import IN_RESET, NEVER, ORDINARY, WHEN_STARTED

from holdfast import failpoints
from holdfast.testing.local import run_local

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

POINTS = [name for name in (*ORDINARY, *IN_RESET, *WHEN_STARTED) if name not in NEVER]
CASES = [(name, number, times) for name in POINTS for number in ("SIGTERM", "SIGINT") for times in (1, 2)]


class Ask:
    """Sends a signal to its own process when a failpoint is hit, again at the next hit of any."""

    def __init__(self, name: str, number: int, times: int, told: Path) -> None:
        self._name = name
        self._number = number
        self._left = times
        self._told = told
        self._hits: Counter[str] = Counter()
        self._begun = False

    def __call__(self, line: str) -> None:
        name = line.split()[0]
        self._hits[name] += 1
        # What happens once per process or per reset is hit once; everything else in the middle of the run.
        at = 1 if name.startswith(("reset.", "lease.")) else 3
        self._begun = self._begun or (name == self._name and self._hits[name] == at)
        if self._begun and self._left:
            self._left -= 1
            with self._told.open("a") as file:
                file.write(f"{name}\n")
            os.kill(os.getpid(), self._number)


def asked(place: Place, name: str, number: int, times: int) -> None:
    """Body of a child."""
    os.environ["HOLDFAST_FP_LOG"] = str(place.root / "hits")
    os.environ["TMPDIR"] = tempfile.tempdir = str(place.root)
    failpoints._log = Ask(name, number, times, place.root / "asked")
    report: dict[str, Any] = {}
    try:
        run_local(campaign.topology(place), place.url)
        report["end"] = "well"
    except BaseException as error:
        report["end"] = type(error).__name__
    (place.root / "report").write_text(json.dumps(report))
    os._exit(0)


@pytest.mark.fault("P12", "O07")
def test_a_run_that_is_asked_to_stop_anywhere_leaves_whole_epochs(place: Place, extent: Extent) -> None:
    for number, (name, sign, times) in enumerate(extent.of(CASES, keep=3)):
        here = Place(place.input, place.root / str(number))
        here.root.mkdir()
        if name in IN_RESET:  # there has to be something to go back to
            assert campaign.live(here, fp_at_start="sink.commit.recorded=kill@2").killed
        process = forked.start(asked, here, name, int(getattr(signal, sign)), times)
        code = forked.finish(process, 40)
        assert (here.root / "asked").exists(), f"{name} was never reached"
        fired(f"asked to stop by {sign}", (here.root / "asked").read_text().count("\n"))
        case = f"{name} {sign} × {times}"
        report = json.loads((here.root / "report").read_text()) if (here.root / "report").exists() else {}
        # Before the run listens to signals they kill it.
        assert code in (0, -getattr(signal, sign)), f"{case}: {code} {report}"
        assert code or report["end"] in ("well", "KeyboardInterrupt"), f"{case}: {report}"
        campaign.check(here, complete=False)
        life = campaign.live(here)
        assert life.exit == 0, f"{case}: {life}"
        campaign.check(here)
