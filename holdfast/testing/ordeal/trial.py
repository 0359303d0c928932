"""A trial: the program undisturbed, once more with its input cut otherwise, then under faults; and each sink judged.

golden    as the program is            recut   in many small steps, which tells what can be compared at all
faulty    as `recut`, in as many lives as it takes
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.testing import processes
from holdfast.testing.ordeal.compare import basis_of
from holdfast.testing.ordeal.faulty import FaultyRun
from holdfast.testing.ordeal.judge import Kept, Promise, SinkVerdict, judged, overall
from holdfast.testing.ordeal.life import Life
from holdfast.testing.ordeal.process import Begin, LifeProcess
from holdfast.testing.ordeal.schedule import Fault, Planned, planned
from holdfast.testing.ordeal.strikes import Scene, Struck

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a trial is asked for."""

    kills: int = 5
    faults: Sequence[Fault] = ("driver", "slow")
    seed: int = 0
    minutes: float = 10.0
    """Of the run under faults, at most; then no more faults follow."""
    slices: int = 40
    """A run under faults has at least so many steps."""
    pace_s: float = 0.0
    patience_s: float = 20.0
    """A run in which nothing moves for so long hangs; longer if the undisturbed one was slow."""
    close: bool = False
    record_s: float = 20.0
    """Of a live input so much is recorded, before anything runs."""
    period_s: float = 0.7
    """Epochs and checkpoints come at least so often."""
    beat_s: float = 0.3
    """Between two steps' worth of input while a fault is due."""


@dataclass(frozen=True)
class Result:
    """What was found."""

    topology: str
    seed: int
    verdict: Kept
    failure: str
    """What broke the run as a whole: it hung, or failed by itself."""
    schedule: Sequence[Planned]
    faults: Sequence[Struck]
    sinks: Sequence[SinkVerdict]
    notes: Sequence[str]
    lives: Sequence[Mapping[str, Any]]
    rows: int
    """Of the input."""
    golden_s: float
    faulty_s: float
    promises: Mapping[str, Promise] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        return {"kept": 0, "broken": 1, "not judged": NOTHING_SHOWN}[self.verdict]

    def as_dict(self) -> dict[str, Any]:
        return {
            "topology": self.topology,
            "seed": self.seed,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "failure": self.failure,
            "schedule": [asdict(each) for each in self.schedule],
            "faults": [each.as_dict() for each in self.faults],
            "sinks": [asdict(each) for each in self.sinks],
            "not_judged": list(self.notes),
            "lives": list(self.lives),
            "input_rows": self.rows,
            "golden_s": round(self.golden_s, 1),
            "faulty_s": round(self.faulty_s, 1),
        }


NOTHING_SHOWN = 20
"""Exit code: no fault fired in the middle, or no sink could be judged."""


class Trial:
    """Leaves no process behind, whatever ends it; what lies beneath `root` is the caller's to remove."""

    def __init__(self, root: Path, begin: Begin, wanted: Wanted, tell: Tell = lambda line: None) -> None:
        self._root, self._begin, self._wanted, self._tell = root, begin, wanted, tell
        self._alive: LifeProcess | None = None
        # Not below `root`: sockets need short paths.
        self._scratch = Path(tempfile.mkdtemp(prefix="hf-"))
        self._lives: list[dict[str, Any]] = []
        self._left: list[str] = []

    def run(self) -> Result:
        try:
            return self._run()
        finally:
            if self._alive is not None:
                self._alive.end_at_once()
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _run(self) -> Result:
        wanted = self._wanted
        self._tell("undisturbed")
        golden, golden_s = self._undisturbed(Life(
            str(self._root), "golden", 0, close=wanted.close, record_s=wanted.record_s, period_s=wanted.period_s
        ))  # fmt: skip
        about = json.loads((self._root / "about.json").read_text())
        given = golden["given"]
        cuts = {name: max(1, math.ceil(rows / wanted.slices)) for name, rows in given.items() if rows}
        life = Life(
            str(self._root),
            "recut",
            0,
            cuts,
            pace_s=wanted.pace_s,
            close=wanted.close,
            period_s=wanted.period_s,
        )
        self._tell(f"undisturbed, in {wanted.slices} steps or more")
        recut, recut_s = self._undisturbed(life)
        schedule = planned(wanted.seed, wanted.faults, wanted.kills)
        reached = Scene(life.place, False).reached()
        life = replace(life, run="faulty", totals=recut["given"], beat_s=wanted.beat_s)
        scene = Scene(life.place, bool(about["regions"]))
        patience_s = max(wanted.patience_s, 2 * max(golden_s, recut_s))
        faulty = FaultyRun(self, life, scene, wanted.minutes * 60, patience_s, self._tell)
        failure = faulty.run(schedule, reached)
        sinks = [] if faulty.report is None else self._judged(about, faulty)
        notes = [*about["notes"], *self._left, *_not_judged(sinks, faulty.struck)]
        verdict = overall(sinks, [each.as_dict() for each in faulty.struck], failure)
        return Result(
            about["topology"], wanted.seed, verdict, failure, schedule, faulty.struck, sinks, notes, self._lives,
            sum(given.values()), golden_s, time.monotonic() - scene.began_at, _promises(about),
        )  # fmt: skip

    # --- lives ----------------------------------------------------------------------------------------------------

    def begin(self, life: Life) -> LifeProcess:
        life.place.mkdir(parents=True, exist_ok=True)
        scratches = ("TMPDIR", "SPARK_LOCAL_DIRS", "HOLDFAST_LIVE_DIR")
        environment = {
            **dict.fromkeys(scratches, str(self._scratch)),
            "HOLDFAST_FP": "",
            "HOLDFAST_FP_LOG": str(life.place / "failpoints"),
        }
        log = life.place / f"life-{life.number}.log"
        self._alive = self._begin(life, processes.new_tag("ordeal"), log, environment)
        return self._alive

    def ended(self, life: Life, process: LifeProcess) -> dict[str, Any]:
        """What a life that is over tells. Nothing of it is left."""
        code = process.poll()
        left = process.end()
        self._alive = None
        if left and code == 0:
            self._left.append(
                f"life {life.number} of {life.run} ended well and left {len(left)} processes behind"
            )
        path = life.place / f"report-{life.number}.json"
        report: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        report = {"run": life.run, "number": life.number, "code": code, **report}
        self._lives.append({name: each for name, each in report.items() if name not in ("given", "begun")})
        return report

    def _undisturbed(self, life: Life) -> tuple[dict[str, Any], float]:
        began = time.monotonic()
        process = self.begin(life)
        limit = began + self._wanted.minutes * 60 + life.record_s
        while process.wait(1.0) is None:
            if time.monotonic() > limit:
                raise HoldfastError(
                    f"the undisturbed run has not come to its end after {self._wanted.minutes:g} minutes.",
                    cure="Give it less input, or more --minutes.",
                )
        report = self.ended(life, process)
        if report["code"] != 0:
            said = report.get("message") or process.last_words()
            error = HoldfastError(
                f"the undisturbed run failed: {said}",
                cure=report.get("cure") or "Mend the program first; run it by itself.",
            )
            error.exit_code = int(report["code"]) if 0 < int(report["code"]) < 100 else 1
            raise error
        if not sum(report["given"].values()):
            raise HoldfastError(
                "the sources have no rows, so nothing can be compared.", cure="Give the program its input."
            )
        return report, time.monotonic() - began

    # --- the verdict ----------------------------------------------------------------------------------------------

    def _judged(self, about: Mapping[str, Any], faulty: FaultyRun) -> list[SinkVerdict]:
        assert faulty.report is not None
        found = []
        for name, promise in _promises(about).items():
            told = about["sinks"][name]
            one, two, last = (
                _rows(self._root / run / "rows" / f"{name}.jsonl") for run in ("golden", "recut", "faulty")
            )
            basis = basis_of(one, two, told["keys"], told["running"])
            counted = int(faulty.report["lost_rows"].get(name, 0))
            found.append(
                judged(promise, basis, two, last, counted, sum(each.fired for each in faulty.struck))
            )
        return found


def _promises(about: Mapping[str, Any]) -> dict[str, Promise]:
    names = ("guarantee", "may_repeat", "has_state", "recorded")
    return {
        sink: Promise(sink, **{name: told[name] for name in names}) for sink, told in about["sinks"].items()
    }


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _not_judged(sinks: Sequence[SinkVerdict], struck: Sequence[Struck]) -> list[str]:
    said = [f"sink {each.sink}: {each.note}" for each in sinks if each.note]
    said += [
        f"sink {each.sink}: compared by {each.compared}: two undisturbed runs differ in the rest"
        for each in sinks
        if "without" in each.compared
    ]
    return said + [
        f"fault {each.number + 1} ({each.fault}): {each.effect}" for each in struck if not each.in_middle
    ]
