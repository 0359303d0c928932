"""Which cases of a large set a run takes: all of them in `make chaos`, in `make test` a sample drawn by a seed.

Four ways to say so. A test with a long list of cases takes the fixture `extent` and runs what `extent.of(cases)` gives. A
test that is parametrised has the marker `sampled`: of its cases `keep` are drawn, or with `per` that many for each value of
those parameters. A test of properties has `examples(count)` instead of hypothesis' own settings, and half as many in `make test`. What takes long
(`long_tests.py`) is drawn, too. Every run draws anew and prints its seed; HOLDFAST_SAMPLE=n repeats the draws of an earlier one.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import settings

SEED = "HOLDFAST_SAMPLE"

Case = TypeVar("Case")


@dataclass
class Extent:
    """All cases of a test, or a sample of them. `told` is for the tables of the run."""

    everything: bool
    name: str
    told: list[str] = field(default_factory=list)

    def of(
        self, cases: Sequence[Case], keep: int = 1, per: Callable[[Case], Hashable] = lambda _: None
    ) -> list[Case]:
        """`keep` cases for each value of `per`, in the order in which they were given."""
        if self.everything:
            return list(cases)
        groups: dict[Hashable, list[int]] = defaultdict(list)
        for number, case in enumerate(cases):
            groups[per(case)].append(number)
        chosen = sorted(n for group, numbers in groups.items() for n in draw(self.name, group, numbers, keep))
        self.told.append(f"{len(chosen)} of {len(cases)} cases: {self.name}")
        return [cases[number] for number in chosen]


def draw(name: str, group: Hashable, numbers: Sequence[int], keep: int) -> list[int]:
    """The same for the same seed, whatever else is drawn and in whichever process."""
    return random.Random(f"{os.environ[SEED]} {name} {group}").sample(numbers, min(keep, len(numbers)))


@pytest.fixture(params=["sample", pytest.param("all", marks=pytest.mark.chaos)])
def extent(request: pytest.FixtureRequest, tell: Callable[..., None]) -> Any:
    name = request.node.nodeid.removesuffix("[sample]").rpartition("::")[2]
    made = Extent(request.param == "all", name)
    yield made
    if made.told:
        tell("samples", *made.told)


@dataclass
class Asked:
    """What this run was asked for, known before tests are imported."""

    everything: bool = False


ASKED = Asked()


def examples(count: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Above `given`: so many examples when everything is asked for, else half of them; hypothesis draws anew each time."""
    most = settings(max_examples=count if ASKED.everything else (count + 1) // 2)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        sized: Callable[..., None] = most(test)
        return pytest.mark.chaos(sized) if ASKED.everything else sized

    return decorate


def pytest_configure(config: pytest.Config) -> None:
    """Processes of xdist find the seed in their environment."""
    ASKED.everything = "not chaos" not in config.option.markexpr
    settings.register_profile("no deadline", deadline=None)  # a busy machine is no defect
    settings.load_profile("no deadline")
    os.environ.setdefault(SEED, str(random.SystemRandom().randrange(1 << 32)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"samples were drawn with {SEED}={os.environ[SEED]}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cases of a `sampled` test that were not drawn are chaos tests; if those are asked for, so are all of its cases."""
    groups: dict[Hashable, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if (marker := item.get_closest_marker("sampled")) is not None:
            assert isinstance(item, pytest.Function)
            values = tuple(repr(item.callspec.params[name]) for name in marker.kwargs.get("per", ()))
            groups[item.nodeid.partition("[")[0], values, marker.kwargs.get("keep", 1)].append(item)
    for (name, values, keep), cases in groups.items():
        drawn = [] if ASKED.everything else draw(name, values, range(len(cases)), keep)
        for number, item in enumerate(cases):
            if number not in drawn:
                item.add_marker(pytest.mark.chaos)
