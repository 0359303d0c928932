"""What users say about rows that end or hang the process which works at them: `poison="quarantine"`, `poison=hf.Poison("park", after=3)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from holdfast.durations import Duration, seconds
from holdfast.errors import TopologyError

PoisonThen = Literal["quarantine", "park"]


@dataclass(frozen=True, slots=True)
class Poison:
    """A row that ends its worker process, whatever else runs there: found after a step died `after` times in a row. `then`: "quarantine"
    puts it into `.errors` of the stream, and the operator goes on without it; "park" parks its region, or outside of regions its element, with
    the row named. `timeout`: a step that takes longer counts as dead; without it a step may take as long as it likes. Of operators in the
    driver: a row at which `process` raised `after` times in the same way, or took longer than `timeout` so often."""

    then: PoisonThen = "quarantine"
    after: int = 2
    timeout: Duration | None = None

    def __post_init__(self) -> None:
        if self.then not in get_args(PoisonThen):
            raise TopologyError(f"poison={self.then!r} is not known.", cure='Use "quarantine" or "park".')
        if isinstance(self.after, bool) or not isinstance(self.after, int) or self.after < 1:
            raise TopologyError(
                f"after must be a whole number above 0, not {self.after!r}.",
                cure="Give how often a step dies before the row is looked for; the default is 2.",
            )
        if self.timeout is not None:
            seconds(self.timeout, "timeout")

    @property
    def timeout_s(self) -> float | None:
        return None if self.timeout is None else seconds(self.timeout, "timeout")


def checked_poison(poison: Any) -> Poison | None:
    """The argument `poison=`."""
    if poison is None or isinstance(poison, Poison):
        return poison
    if not isinstance(poison, str):
        raise TopologyError(
            f"poison={poison!r} is not known.", cure='Use "quarantine", "park" or hf.Poison(…).'
        )
    return Poison(poison)  # type: ignore[arg-type]
