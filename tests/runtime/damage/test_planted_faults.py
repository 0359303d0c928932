"""The campaign itself is tested: with a defect planted into the runtime, at least one of its runs must turn red."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import campaign
import pytest
from campaign import Place
from defects import DEFECTS
from sound_plants import sound

pytestmark = pytest.mark.slow

FAULTS = (
    "step.end=raise",
    "sink.commit.begin=kill",
    "ckpt.epoch.published=kill@2",
    "ckpt.op.put_done=raise@3",
)


def turns_red(place: Place, defect: str | None, fault: str) -> str:
    """What the oracle or the runtime complains about; '' if the run looks right."""
    options = {"defect": defect, "mode": "async"}
    try:
        for number in range(6):
            fp = fault if number < 3 else ""
            life = campaign.live(
                place, fp=fp, arm_after_row=40 * (number + 1), schedule=number < 3, **options
            )
            campaign.check(place, complete=life.exit == 0)
            if life.exit == 0:
                return ""
            if not life.killed:
                return f"exit {life.exit}: {life.report}"
    except AssertionError as error:
        return str(error)
    return f"exit {life.exit}"


@pytest.mark.parametrize("defect", DEFECTS)
@pytest.mark.fault("O01", "PD03", "PD11", "PD12")
@pytest.mark.planted
def test_a_planted_defect_turns_the_campaign_red(
    place: Place, defect: str, tell: Callable[..., None]
) -> None:
    for fault in FAULTS:
        if told := sound(defect, turns_red(place, defect, fault)):
            tell("planted defects", f"{defect}: real run with {fault}: {told.splitlines()[0][:100]}")
            return
        shutil.rmtree(place.root)
    raise AssertionError(f"no fault of {FAULTS} revealed the defect {defect!r}: the campaign has a gap")


@pytest.mark.parametrize("fault", FAULTS)
def test_without_a_defect_the_same_runs_stay_green(place: Place, fault: str) -> None:
    assert turns_red(place, None, fault) == ""
