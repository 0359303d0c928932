"""The checkers of mixed schedules must be able to fail: each defect planted here has to be found within a few hundred."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pytest
from many_schedules import first_failure

from holdfast.chaos.mixed.books import SimBooks
from holdfast.chaos.mixed.connection import SimConnection
from holdfast.chaos.mixed.element import AutonomousElement
from holdfast.chaos.mixed.region import RegionElement, SimRegion
from holdfast.chaos.mixed.simulator import MixedSimulator
from holdfast.chaos.mixed.store import BooksRecord
from holdfast.chaos.outcome import SimulationFailed
from holdfast.ids import ConnectionId, ElementName, OperatorName
from holdfast.protocol import accounts
from holdfast.protocol.accounts import Account, Books, Covered, Loss, TakenByRegion, _covers
from holdfast.protocol.autonomous import (
    AutonomousCommand,
    AutonomousMachine,
    RestoreOperator,
    SaveAccount,
    StepDone,
    StepFailed,
)

SCHEDULES_MAX = 4000

# --- defects of the machine -------------------------------------------------------------------------------------------


class SavesAfterTheStep(AutonomousMachine):
    def _on_gathered(
        self, taken: Mapping[ConnectionId, int], rows: int, at: float
    ) -> list[AutonomousCommand]:
        return [c for c in super()._on_gathered(taken, rows, at) if not isinstance(c, SaveAccount)]

    def _on_done(self, event: StepDone) -> list[AutonomousCommand]:
        super()._on_done(event)
        return self._save()


class ForgetsWhatIsInFlight(AutonomousMachine):
    def _on_gathered(
        self, taken: Mapping[ConnectionId, int], rows: int, at: float
    ) -> list[AutonomousCommand]:
        return super()._on_gathered(taken, 0, at)


class ForgetsWhatItTook(AutonomousMachine):
    def _on_gathered(
        self, taken: Mapping[ConnectionId, int], rows: int, at: float
    ) -> list[AutonomousCommand]:
        return super()._on_gathered({}, rows, at)


class ForgetsWhatItSent(AutonomousMachine):
    def _sent_after(self, sent: Mapping[ConnectionId, int]) -> dict[ConnectionId, int]:
        return dict(self.account.sent)


class ForgetsThatItGaveRowsBack(AutonomousMachine):
    def _on_done(self, event: StepDone) -> list[AutonomousCommand]:
        return super()._on_done(replace(event, taken={}))


class ForgetsWhatOperatorsAbsorbed(AutonomousMachine):
    def _on_done(self, event: StepDone) -> list[AutonomousCommand]:
        absorbed = self.account.absorbed
        commands = super()._on_done(event)
        self._change(absorbed=absorbed)
        return commands


class CountsNoFailedStep(AutonomousMachine):
    def _on_failed(self, event: StepFailed) -> list[AutonomousCommand]:
        return super()._on_failed(replace(event, rows=0))


class CountsNoSpoiledState(AutonomousMachine):
    def _lost_state(self, name: OperatorName, event: StepFailed) -> Loss:
        return replace(super()._lost_state(name, event), rows=0)


class CountsSpoiledStateTwice(AutonomousMachine):
    def _on_failed(self, event: StepFailed) -> list[AutonomousCommand]:
        for name in sorted(event.spoiled):
            self._lose([self._lost_state(name, event)])
        return super()._on_failed(event)


class DoesNotRestoreSpoiledOperators(AutonomousMachine):
    def _on_failed(self, event: StepFailed) -> list[AutonomousCommand]:
        return [c for c in super()._on_failed(event) if not isinstance(c, RestoreOperator)]


class StoresSpoiledState(AutonomousMachine):
    def _checkpoints(self, operators: frozenset[OperatorName]) -> list[AutonomousCommand]:
        self._ready = frozenset(self._stateful)
        return super()._checkpoints(operators)


class StoresStateBeforeItsAccount(AutonomousMachine):
    def _checkpoints(self, operators: frozenset[OperatorName]) -> list[AutonomousCommand]:
        return [c for c in super()._checkpoints(operators) if not isinstance(c, SaveAccount)]


class ForgetsWhatCameDuringAnUpload(AutonomousMachine):
    def _on_checkpointed(self, operator: OperatorName, held: int) -> list[AutonomousCommand]:
        commands = super()._on_checkpointed(operator, held)
        self._change(absorbed={**self.account.absorbed, operator: 0})
        return commands


class DiscardsUncounted(AutonomousMachine):
    def _loss(self, rows: int, reason: str, operator: OperatorName | None = None) -> Loss:
        return super()._loss(0 if reason == "the element gave up" else rows, reason, operator)


# --- defects of the books ---------------------------------------------------------------------------------------------


class ForgetsWhatWasTakenBefore(SimBooks):
    def opening(self, run: int) -> BooksRecord:
        record = super().opening(run)
        fresh = {n: replace(a, taken=dict.fromkeys(a.taken, 0)) for n, a in record.accounts.items()}
        return replace(record, accounts=fresh)


class ForgetsWhatIsSettled(SimBooks):
    def settled(self, books: Books) -> Mapping[ConnectionId, int]:
        return {}


class ForgetsWhatRegionsSent(SimBooks):
    def sent_by_regions(self) -> dict[ConnectionId, int]:
        return dict.fromkeys(super().sent_by_regions(), 0)


class ForgetsWhatRegionsHold(SimBooks):
    def books(self, accounts: Mapping[ElementName, Account]) -> Books:
        found = super().books(accounts)
        return replace(found, taken_by_regions={c: TakenByRegion() for c in found.taken_by_regions})


class ReadsRecordsOfEarlierRuns(SimBooks):
    def saved_accounts(self) -> dict[ElementName, Account]:
        found = super().saved_accounts()
        return {**found, **{name: record.account for name, record in self.store.records.items()}}


class DoesNotCountSlices(SimBooks):
    def saved_accounts(self) -> dict[ElementName, Account]:
        found = super().saved_accounts()
        uncounted = {name for name, record in self.store.records.items() if record.uncounted}
        return {
            n: self.store.records[n].account if n in uncounted and a.in_flight else a
            for n, a in found.items()
        }


class ClosesWithoutCounting(SimBooks):
    def closing(self, accounts: Mapping[ElementName, Account]) -> BooksRecord:
        return replace(super().closing(accounts), accounts=accounts)


# --- defects of the loop, of connections and of the region's side ------------------------------------------------------


class SavesThePositionOfTheLastStep(AutonomousElement):
    def position_to_save(self) -> int:
        return self.position - (self.step.slice.bit_count() if self.step is not None else 0)


class DoesNotWaitForSpace(AutonomousElement):
    def _perform_next(self) -> bool:
        if self.must_wait() and isinstance(self.todo[0], SaveAccount):
            self.todo.popleft()
            return True
        return super()._perform_next()


class ThrowsAwayUncounted(SimConnection):
    def throw(self) -> None:
        lost = self.lost
        super().throw()
        self.lost = lost


class ForgetsWhatResetsCost(RegionElement):
    def taken_along(self, port: SimConnection) -> TakenByRegion:
        return TakenByRegion(port.taken, 0)


# --- defects of the accounts --------------------------------------------------------------------------------------------


def no_losses(*_: object) -> Iterable[Loss]:
    return ()


def covers_all(covered: Covered | None, account: Account) -> bool:
    return covered is not None


def since_any_pin(covered: Covered | None, account: Account, name: OperatorName, absorbed: int) -> int:
    """As if whatever was on its way had arrived."""
    rows = account.pinned[name].rows if name in account.pinned else 0
    return 0 if _covers(covered, account) else absorbed + account.in_flight - rows


def since_no_pin(covered: Covered | None, account: Account, name: OperatorName, absorbed: int) -> int:
    """As if nothing that was on its way ever arrived."""
    return 0 if _covers(covered, account) else absorbed + account.in_flight


def hunt(defect: type | None = None) -> SimulationFailed:
    simulator: type[MixedSimulator] = MixedSimulator
    if defect is not None:
        simulator = type("Defective", (MixedSimulator,), {place_of(defect): planted(defect)})
    return first_failure(lambda seed: simulator(seed).run(), SCHEDULES_MAX)


def place_of(defect: type) -> str:
    places = {
        AutonomousMachine: "machine_class", SimBooks: "books_class", AutonomousElement: "element_class",
        SimConnection: "connection_class", RegionElement: "region_class",
    }  # fmt: skip
    return next(place for base, place in places.items() if issubclass(defect, base))


def planted(defect: type) -> type:
    if issubclass(defect, RegionElement):
        return type("DefectiveRegion", (SimRegion,), {"element_class": defect})
    return defect


DEFECTS: dict[type, str] = {
    SavesAfterTheStep: "",
    ForgetsWhatIsInFlight: "missing",
    ForgetsWhatItTook: "at most",
    ForgetsWhatItSent: "missing",
    ForgetsThatItGaveRowsBack: "missing",
    ForgetsWhatOperatorsAbsorbed: "missing",
    CountsNoFailedStep: "missing",
    CountsNoSpoiledState: "missing",
    CountsSpoiledStateTwice: "at most",
    DoesNotRestoreSpoiledOperators: "has no state",
    StoresSpoiledState: "has no state",
    StoresStateBeforeItsAccount: "missing",
    ForgetsWhatCameDuringAnUpload: "missing",
    DiscardsUncounted: "missing",
    ForgetsWhatWasTakenBefore: "",
    ForgetsWhatIsSettled: "at most",
    ForgetsWhatRegionsSent: "",
    ForgetsWhatRegionsHold: "at most",
    ReadsRecordsOfEarlierRuns: "",
    DoesNotCountSlices: "missing",
    ClosesWithoutCounting: "missing",
    SavesThePositionOfTheLastStep: "a second time",
    DoesNotWaitForSpace: "",
    ThrowsAwayUncounted: "missing",
    ForgetsWhatResetsCost: "missing",
}


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
@pytest.mark.planted
def test_a_planted_defect_is_found(defect: type, tell: Callable[..., None]) -> None:
    failure = hunt(defect)
    tell(
        "planted defects",
        f"{defect.__name__}: schedule {failure.seed}: {failure.reason.splitlines()[0][:120]}",
    )
    assert DEFECTS[defect] in str(failure)
    assert f"holdfast.chaos.mixed --seed {failure.seed}" in str(failure)


@pytest.mark.parametrize(
    ("function", "defect", "told"),
    [
        ("_in_step", no_losses, "missing"),
        ("_in_states", no_losses, "missing"),
        ("_in_queues", no_losses, "missing"),
        ("_covers", covers_all, "missing"),
        ("_since", since_any_pin, "missing"),
        ("_since", since_no_pin, "at most"),
        ("_next", lambda connection, taken, books: taken, "at most"),
    ],
)
@pytest.mark.planted
def test_a_defect_of_the_accounts_is_found(
    monkeypatch: pytest.MonkeyPatch, function: str, defect: object, told: str
) -> None:
    monkeypatch.setattr(accounts, function, defect)
    assert told in str(hunt())
