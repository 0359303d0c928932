"""Elements that restart alone: thousands of schedules, and defects that must be found in them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from many_schedules import first_failure
from sampling import Extent

from holdfast.chaos.independent import IndependentSimulator, Rows, SimStep
from holdfast.chaos.outcome import Outcome, added_up
from holdfast.protocol.preserved import Journal, NotRepeated, Preserved


@pytest.mark.always
@pytest.mark.fault("N03", "O02")
def test_no_schedule_loses_or_doubles_a_row(extent: Extent) -> None:
    """A hundred thousand in `make chaos`."""
    chunks = extent.of([range(first, first + 500) for first in range(0, 100_000, 500)], keep=8)
    total = added_up(Outcome(), (IndependentSimulator(seed).run() for chunk in chunks for seed in chunk))
    assert total.resets > total.schedules
    assert total.epochs_begun > total.epochs_published > total.schedules


class LetsGoOfWhatIsTaken(Preserved[Rows]):
    def take(self) -> Rows:
        taken = super().take()
        if self.taken % 5 == 0:
            self.retained.clear()
        return taken


class GivesBackInAnotherOrder(Preserved[Rows]):
    def take_back(self, number: int) -> list[Rows]:
        back = super().take_back(number)
        for _ in back:
            self.waiting.popleft()
        self.waiting.extendleft(reversed(back))
        return back


class GivesNothingBack(Preserved[Rows]):
    def take_back(self, number: int) -> list[Rows]:
        self.taken = number
        return []


class TakesWhatIsSentAgain(Preserved[Rows]):
    def put(self, item: Rows, rows: int) -> bool:
        self.highest = self.sent
        return super().put(item, rows)


class ForgetsWhatItDid(Journal[SimStep]):
    def restored(self, epoch: int) -> None:
        super().restored(epoch)
        while self._entries and self._first + len(self._entries) > self._done:
            self._entries.pop()


DEFECTS = [
    LetsGoOfWhatIsTaken, GivesBackInAnotherOrder, GivesNothingBack, TakesWhatIsSentAgain, ForgetsWhatItDid
]  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
@pytest.mark.planted
def test_a_planted_defect_is_found(defect: type, tell: Callable[..., None]) -> None:
    options = {"link_class" if issubclass(defect, Preserved) else "journal_class": defect}
    failure = first_failure(lambda seed: IndependentSimulator(seed, **options).run(), 400)
    tell(
        "planted defects",
        f"{defect.__name__}: schedule {failure.seed}: {failure.reason.splitlines()[0][:120]}",
    )
    assert f"holdfast.chaos.independent --seed {failure.seed}" in str(failure)


@pytest.mark.fault("I05")
def test_another_batch_in_place_of_the_one_that_was_sent_is_refused() -> None:
    link: Preserved[Rows] = Preserved()
    assert link.put((1, 2), 2)
    link.send_again(0)
    with pytest.raises(NotRepeated, match="3 rows were sent again as batch 1, which had 2"):
        link.put((1, 2, 3), 3)
