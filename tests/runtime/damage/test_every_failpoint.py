"""Every failpoint × {kill, raise, sleep, late, drop} × {first, second hit}, and a second fault in the reset that follows.

Every fault that is armed fires, after the first epoch and before the last row. A fault that only raises never ends a
run that has started: the region resets in place. Afterwards the job is started again until it ends, and its output
must be exactly what the oracle computes from the input.

All of it is part of `make chaos`. `make test` has a sample, drawn anew in every run: each failpoint once, with one of the
actions and hits; one that a reset reaches once in place and once at a restart.
"""

from __future__ import annotations

import itertools
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import campaign
import faults
import forked
import pytest
from campaign import ROWS, Life, Place
from sampling import Extent

from holdfast.errors import DamagedError
from holdfast.failpoints import MAY_DROP, NAMES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LIVES_MAX = 5
ELEMENTS = 4
AT_ONCE = 2
WHEN_STARTED = ("lease.acquire", "lease.acquired", "reset.choose_epoch")
"""Hit once per process, before anything runs: the fault fires in a second life, and again in a third one."""
IN_RESET = tuple(name for name in NAMES if name.startswith("reset.") and name not in WHEN_STARTED)
OF_LOGS = tuple(name for name in NAMES if name.startswith(("log.", "persist.", "replay.", "eventual.")))
"""Persistent streams: tests/log (test_log_survives_kills.py, test_persist_survives_kills.py, test_replay*.py), and
tests/runtime/eventual."""
ORDINARY = tuple(name for name in NAMES if name not in (*WHEN_STARTED, *IN_RESET, *OF_LOGS))
NEVER: dict[str, str] = {
    "savepoint.name": "nobody asks for a savepoint",
    "entered.record": "nothing enters the region: tests/runtime/regions/test_replayable_survives_kills.py",
    "entered.recorded": "nothing enters the region: tests/runtime/regions/test_replayable_survives_kills.py",
    "poison.try": "no row ends a process: tests/runtime/python_operators/test_poison_rows.py",
    "founding.begun": "belongs to commands that make a new store",
    "founding.copied": "belongs to commands that make a new store",
    "roll.close.begin": "no sink rolls: tests/sinks/test_rolling.py",
    "roll.close.noted": "no sink rolls: tests/sinks/test_rolling.py",
    "roll.close.shown": "no sink rolls: tests/sinks/test_rolling.py",
    "compact.merged": "belongs to holdfast compact: tests/sinks/test_file_compaction.py",
    "compact.noted": "belongs to holdfast compact: tests/sinks/test_file_compaction.py",
    "compact.hidden": "belongs to holdfast compact: tests/sinks/test_file_compaction.py",
    "compact.shown": "belongs to holdfast compact: tests/sinks/test_file_compaction.py",
}
"""Failpoints that this topology cannot reach, each with its reason."""

ONE_SOURCE = ("reset.source.seek", 2)
"""Hit once per reset: the first reset must fail too, so that a second one hits it again."""

FOUND_PUBLISHED = ("ckpt.manifest.renamed", "ckpt.dir.fsynced", "ckpt.epoch.published")
"""Raised here, the outcome is looked up: the epoch is published, and nothing resets unless its commit fails too."""

SLOW = ("sleep:0.2", "late:0.5")
"""Nothing fails; others come first that usually come later."""

CRASH = "step.end=kill"
FAILURE = "step.end=raise"


@dataclass(frozen=True)
class Case:
    """What happens in the first lives of a run; later lives are undisturbed."""

    title: str
    lives: tuple[tuple[str, str], ...]
    """Per life: (armed in the middle of the run, armed at the start of the process)."""
    mode: str
    about: str = ""
    """Of cases that are about the same, a sample has one."""

    @property
    def armed(self) -> Counter[str]:
        """Failpoints that must fire, and how often: each once per life in which it is armed."""
        return Counter(name for life in self.lives for spec in life for name in names_in(spec))

    def is_right_end(self, number: int, life: Life) -> bool:
        """Is this how the life with these faults had to end?"""
        armed, at_start = self.lives[number] if number < len(self.lives) else ("", "")
        if "=kill" in armed + at_start:
            return life.killed
        if set(names_in(at_start)) & set(WHEN_STARTED):
            return life.exit > 0  # nothing runs yet: the start is refused
        return life.exit == 0


def names_in(spec: str) -> list[str]:
    """The failpoints of a text that arms them."""
    return [part.partition("=")[0] for part in re.split("[;>]", spec) if part]


def raise_until_reset(name: str) -> str:
    """Raises at `name`, and once more where that alone would not bring a reset."""
    return f"{name}=raise>sink.commit.begin=raise;" if name in FOUND_PUBLISHED else f"{name}=raise;"


def modes() -> Iterator[str]:
    while True:
        yield from ("async", "drain", "token", "drain", "async")


def single_faults() -> list[Case]:
    mode = modes()
    return [
        Case(f"{name}={action}@{hit}", ((f"{name}={action}@{hit}", ""),), next(mode), name)
        for name in ORDINARY
        if name not in NEVER
        for action in ("kill", "raise")
        for hit in (1, 2)
    ]


def faults_of_starting() -> list[Case]:
    """The driver was killed; the next one meets the fault while it takes the store over."""
    mode = modes()
    cases = []
    for name, action, times in itertools.product(WHEN_STARTED, ("kill", "raise"), (1, 2)):
        again = (("", f"{name}={action}"),) * times
        cases.append(Case(f"{name}={action} × {times}", ((CRASH, ""), *again), next(mode), name))
    return cases


def faults_of_resetting() -> list[Case]:
    """The second fault hits the reset that the first one caused: in place, or in the restarted driver."""
    mode = modes()
    cases = []
    for name, action, hit in itertools.product(IN_RESET, ("kill", "raise"), (1, 2)):
        fault = f"{name}={action}@{hit}"
        if (name, hit) == ONE_SOURCE:
            fault += ";reset.resume=raise"
        in_place, at_restart = ((f"{FAILURE};{fault}", ""),), ((CRASH, ""), ("", fault))
        cases.append(Case(f"{fault} in place", in_place, next(mode), f"{name} in place"))
        cases.append(Case(f"{fault} at restart", at_restart, next(mode), f"{name} at restart"))
    return cases


def double_faults() -> list[Case]:
    """Each ordinary fault, then one in the following reset; all resets' failpoints take their turn."""
    mode = modes()
    cases = []
    for index, name in enumerate(n for n in ORDINARY if n not in NEVER):
        second = IN_RESET[index % len(IN_RESET)]
        how = "kill" if index // len(IN_RESET) % 2 == 0 else "raise"
        in_place = f"{raise_until_reset(name)}{second}=kill"
        cases.append(Case(in_place, ((in_place, ""),), next(mode)))
        after_restart = ((f"{name}=kill", ""), ("", f"{second}={how}"))
        cases.append(Case(f"{name}=kill, then {second}={how}", after_restart, next(mode)))
    return cases


def faults_of_unknown_outcome() -> list[Case]:
    """The first fault leaves it open whether the epoch counts; the second kills when parts of the reset are done."""
    first = (
        "ckpt.manifest.renamed",
        "ckpt.epoch.published",
        "sink.commit.begin",
        "sink.commit.applied",
        "gc.delete",
    )
    second = ("reset.source.seek=kill", "reset.sink.rollback=kill@2", f"reset.resume=kill@{ELEMENTS}")
    mode = modes()
    specs = [(f"{raise_until_reset(name)}{fault}", name) for name in first for fault in second]
    return [Case(spec, ((spec, ""),), next(mode), name) for spec, name in specs]


def slow_steps() -> list[Case]:
    """One step of a run, or of a reset, takes long."""
    mode = modes()
    cases = []
    for name, how, hit in itertools.product((*ORDINARY, *IN_RESET), SLOW, (1, 2)):
        if name not in NEVER and (name, hit) != ONE_SOURCE:
            fault = f"{name}={how}@{hit}"
            armed = f"{FAILURE};{fault}" if name in IN_RESET else fault
            cases.append(Case(fault, ((armed, ""),), next(mode), name))
    return cases


def dropped_deletions() -> list[Case]:
    """What should be gone stays, and then the driver dies: the next one finds it."""
    mode = modes()
    return [
        Case(f"gc.delete=drop@{hit}, then {CRASH}", ((f"gc.delete=drop@{hit}>{CRASH}", ""),), next(mode))
        for hit in (1, 2, 3)
    ]


# --- running a case ---------------------------------------------------------------------------------------------------


@dataclass
class Result:
    case: Case
    lives: list[Life]
    story: campaign.Story
    resets: int
    epochs: int
    problem: str = ""

    def line(self) -> str:
        fault = self.story.firings[-1] if self.story.firings else campaign.Firing("-", 0, 0)
        ends = ",".join("kill" if life.killed else str(life.exit) for life in self.lives)
        return (
            f"{self.case.title:82} {self.case.mode:5} epoch {fault.epoch:2} row {fault.last_row:3} "
            f"replayed {self.story.rows_replayed:3} resets {self.resets} lives {ends} {self.problem}"
        )


def run(case: Case, place: Place) -> Result:
    lives: list[Life] = []
    problem = ""
    try:
        for number in range(LIVES_MAX):
            fp, at_start = case.lives[number] if number < len(case.lives) else ("", "")
            options = {"fp": fp, "fp_at_start": at_start, "mode": case.mode, "schedule": number == 0}
            lives.append(campaign.live(place, **options))
            campaign.check(place, complete=lives[-1].exit == 0)
            if lives[-1].exit == 0 and number >= len(case.lives) - 1:
                break
        problem = judge(case, place, lives)
    except AssertionError as error:
        problem = f"FAILED: {error}"
    begun = [e for e in campaign.events(place, "reset.begin") if e.data["consecutive"]]
    epochs = campaign.events(place, "epoch.published")
    return Result(case, lives, campaign.story(place), len(begun), len(epochs), problem)


def judge(case: Case, place: Place, lives: list[Life]) -> str:
    told = campaign.story(place)
    if lives[-1].exit != 0:
        return f"FAILED: still not at its end after {len(lives)} lives: {lives[-1]}"
    if (fired := Counter(firing.name for firing in told.firings)) != case.armed:
        return f"FAILED: armed {dict(case.armed)}, but {dict(fired)} fired"
    if wrong := [life for number, life in enumerate(lives) if not case.is_right_end(number, life)]:
        return f"FAILED: a life ended in another way than its faults say: {wrong[0]}"
    if any(f.epoch < 1 or f.last_row >= ROWS - 1 for f in told.firings):
        return f"FAILED: a fault before the first epoch or after the last row does not count: {told.firings}"
    return ""


@pytest.fixture
def run_all(
    fast_directory: Path, orders: Path, tell: Callable[..., None]
) -> Callable[[list[Case], str], None]:
    """run_all(cases, title) runs them side by side, tells what happened, and fails unless all of them end well."""

    def run_and_judge(cases: list[Case], title: str) -> None:
        results = side_by_side(cases, fast_directory / title.split()[0], orders)
        kills = sum(life.killed for result in results for life in result.lives)
        armed = sum(result.case.armed.total() for result in results)
        fired = sum(len(result.story.firings) for result in results)
        faults.fired("exception in the driver", fired - kills)
        broken = [result.line() for result in results if result.problem]
        tell(
            f"faults: {title}",
            *(result.line() for result in results),
            f"{len(results)} runs, {sum(len(r.lives) for r in results)} lives, {kills} kills, "
            f"{armed} faults armed, {fired} fired, {sum(r.resets for r in results)} resets in place, "
            f"{sum(r.epochs for r in results)} epochs, {sum(r.story.rows_replayed for r in results)} rows replayed",
            *(f"kept for inspection: {line}" for line in broken),
        )
        assert not broken, "\n".join(broken)
        assert fired == armed, f"{armed} faults armed, {fired} fired"

    return run_and_judge


def side_by_side(cases: list[Case], directory: Path, orders: Path) -> list[Result]:
    def one(numbered: tuple[int, Case]) -> Result:
        number, case = numbered
        place = Place(orders, directory / str(number))
        result = run(case, place)
        if not result.problem:
            shutil.rmtree(place.root)
        return result

    forked.forkserver()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, enumerate(cases)))


def test_an_undisturbed_run_has_many_epochs_and_reaches_every_ordinary_failpoint(place: Place) -> None:
    life = campaign.live(place)
    assert life.exit == 0, life.report
    assert life.epoch >= 5
    campaign.check(place)
    told = campaign.story(place)
    assert told.rows_replayed == 0
    assert {name for name in (*ORDINARY, *WHEN_STARTED) if not told.hits[name]} == set(NEVER)


RunAll = Callable[[list[Case], str], None]


@pytest.mark.always
@pytest.mark.fault("X01", "X09", "O01", "O03")
def test_one_fault_anywhere_leaves_the_output_exact(extent: Extent, run_all: RunAll) -> None:
    run_all(extent.of(single_faults(), per=about), "ordinary")


@pytest.mark.fault("S15")
def test_one_slow_or_late_step_anywhere_leaves_the_output_exact(extent: Extent, run_all: RunAll) -> None:
    run_all(extent.of(slow_steps(), keep=6), "slow")


@pytest.mark.fault("S15")
def test_deletions_that_did_not_happen_leave_the_output_exact(extent: Extent, run_all: RunAll) -> None:
    run_all(extent.of(dropped_deletions(), keep=1), "dropped")


def test_a_part_that_was_never_stored_is_refused_by_name_or_not_needed(place: Place) -> None:
    """The store said that it had it. An epoch that lacks it is not restored; a newer one, which does not need it, may be."""
    assert set(MAY_DROP) == {"gc.delete", "ckpt.op.put"}
    life = campaign.live(place, fp="ckpt.op.put=drop>ckpt.epoch.published=log>sink.commit.recorded=kill")
    assert life.killed, life
    assert campaign.story(place).firings[0].name == "ckpt.op.put"
    before = campaign.ledger_rows(place)
    following = campaign.live(place)
    faults.fired("part dropped by the store")
    assert following.exit in (0, DamagedError.exit_code), following
    if following.exit:
        assert "is missing, but an epoch refers" in following.report["message"]
        assert campaign.ledger_rows(place) == before
    campaign.check(place, complete=following.exit == 0)


@pytest.mark.fault("D02")
def test_a_fault_while_taking_over_leaves_the_output_exact(extent: Extent, run_all: RunAll) -> None:
    run_all(extent.of(faults_of_starting(), per=about), "starting")


@pytest.mark.fault("B04", "R06", "R07")
def test_a_fault_in_a_reset_leaves_the_output_exact(extent: Extent, run_all: RunAll) -> None:
    run_all(extent.of(faults_of_resetting(), per=about), "resetting")


@pytest.mark.chaos  # pairs of faults: the simulator and the seeded kills have them, too
@pytest.mark.fault("B04")
def test_a_second_fault_in_the_following_reset_leaves_the_output_exact(run_all: RunAll) -> None:
    run_all(double_faults(), "double")


def test_whether_an_epoch_counts_is_found_out_before_anything_is_withdrawn(
    extent: Extent, run_all: RunAll
) -> None:
    run_all(extent.of(faults_of_unknown_outcome(), per=about), "unknown outcome")


def about(case: Case) -> str:
    return case.about
