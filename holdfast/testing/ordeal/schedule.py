"""Which faults a run has, and when: drawn from a seed. Pure: the same seed, kinds and number give the same schedule.

When is a share of the input, not a time: the pace of the machine does not change it. Where in the program a fault strikes is a draw from the
failpoints, of which `resolved` takes the first that the program is known to reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, get_args

from holdfast.errors import ConfigError
from holdfast.failpoints import NAMES

Fault = Literal["worker", "driver", "jvm", "executor", "store", "disk", "slow"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
NEEDS_SPARK: frozenset[Fault] = frozenset({"worker", "jvm", "executor"})
FIRST, LAST = 0.15, 0.75
"""Faults lie between these shares of the input: in the middle."""

PLACES: dict[Fault, tuple[str, ...]] = {
    "driver": ("step.", "ckpt.", "sink.", "entered.", "log.", "persist."),
    "store": ("ckpt.op.put", "ckpt.manifest.tmp_written"),
    "disk": ("sink.write", "sink.prepare", "sink.commit.begin", "ckpt.op.put", "log.write"),
    "slow": ("step.", "ckpt.", "sink.", "log.write"),
}
"""Failpoints where a fault of a kind may strike; prefixes."""
ACTIONS: dict[Fault, str] = {"driver": "kill", "store": "eio", "disk": "enospc", "slow": "sleep"}


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault to come. `place`: a draw of the failpoint that it strikes at; None: whatever is under way."""

    number: int
    fault: Fault
    share: float
    """Of the input."""
    delay_s: float
    place: float | None
    seconds: float
    """How long something stands still, if it does."""


def planned(seed: int, faults: Sequence[Fault], count: int) -> tuple[Planned, ...]:
    """So many faults, in turn of all kinds in an order drawn from the seed."""
    rng = Random(f"ordeal {seed}")
    kinds = list(faults)
    rng.shuffle(kinds)
    slot = (LAST - FIRST) / max(count, 1)
    return tuple(
        Planned(
            number,
            kinds[number % len(kinds)],
            round(FIRST + slot * (number + rng.uniform(0.1, 0.7)), 4),
            round(rng.uniform(0.0, 0.3), 3),
            _place(kinds[number % len(kinds)], rng),
            round(rng.uniform(0.5, 2.5), 2),
        )
        for number in range(count)
    )


def _place(fault: Fault, rng: Random) -> float | None:
    """Drivers die at a failpoint or at any moment; half of what is slow stands still."""
    at, anywhere = rng.random(), rng.random() < 0.4
    if fault in ("store", "disk"):
        return at
    return None if anywhere or fault not in ACTIONS else at


def resolved(each: Planned, reached: Sequence[str]) -> str | None:
    """The failpoint of a planned fault, given those that the program reaches. None: there is none of its kind, or none is meant."""
    if each.place is None:
        return None
    known = [name for name in NAMES if name.startswith(PLACES[each.fault])]
    # In an order of its own for each fault: what the program reaches now and then does not move all the others.
    Random(f"place {each.place}").shuffle(known)
    return next((name for name in known if name in reached), None)


def kinds_of(text: str) -> tuple[Fault, ...]:
    """Of `--faults worker,driver`."""
    found = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name not in FAULTS:
            raise ConfigError(f"there is no fault {name!r}.", cure=f"There are: {', '.join(FAULTS)}.")
        found.append(name)
    return tuple(dict.fromkeys(found))
