"""Defects that are planted are noticed. `make test` has a sample; `make mutants` plants all and prints a table."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sampling import Extent

from mutants.plants import PLANTS
from mutants.run import red


@pytest.mark.timeout(900)
@pytest.mark.fault("PD01", "PD02", "PD04", "PD05", "PD06", "PD07", "PD08", "PD09", "PD10", "PD13")
def test_a_planted_defect_turns_a_test_red(extent: Extent, tell: Callable[..., None]) -> None:
    for plant in extent.of(PLANTS, keep=2):
        found = red(plant)
        assert found, f"{plant.about}: none of {plant.tests} fails"
        tell("planted defects", f"{plant.about}: {found[:120]}")
