"""How long a restore will take: predicted from bytes, corrected by every restore that really happened. Pure.

*Restore time* runs from the decision to reset until the state is verified and readable and the sources are positioned.
A prediction that was too low is believed at once, one that was too high only slowly: a bound is a promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

MARGIN = 1.25
"""Bounds are kept with this much to spare: machines are not always equally fast."""
_FORGET = 0.2
"""How far one restore that was faster than predicted moves the correction."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What a restore takes. The defaults are on the slow side of what two cores and one disk do."""

    fixed_s: float = 0.1
    base_s_per_mb: float = 1 / 600
    """Reading, verifying, mapping."""
    delta_s_per_mb: float = 1 / 100
    """The same and merging: a delta's rows join what lies before them."""
    delta_s: float = 0.004
    """Of each delta, whatever its size."""
    correction: float = 1.0
    """Measured over predicted where bytes matter, learned from restores."""

    def base_seconds(self, bytes: int) -> float:
        return MARGIN * (self.fixed_s + self.correction * self.base_s_per_mb * bytes / 1e6)

    def delta_seconds(self, bytes: int, deltas: int = 1) -> float:
        """Of `deltas` deltas with together `bytes` bytes."""
        return MARGIN * self.correction * (self.delta_s * deltas + self.delta_s_per_mb * bytes / 1e6)

    def learned(self, predicted_s: float, measured_s: float, operators: int = 1) -> Speed:
        """The speed after a restore of some operators that was predicted to last `predicted_s` and did `measured_s`.
        A small restore teaches what is fixed, a large one what bytes take."""
        fixed = MARGIN * self.fixed_s * operators
        by_bytes = predicted_s - fixed
        if not operators or predicted_s <= 0:
            return self
        if by_bytes <= fixed:
            found = max(0.0, MARGIN * measured_s - by_bytes) / (MARGIN * operators)
            return replace(self, fixed_s=_moved(self.fixed_s, found, 0.02, 60.0))
        found = self.correction * max(0.0, MARGIN * measured_s - fixed) / by_bytes
        return replace(self, correction=_moved(self.correction, found, 0.2, 50.0))

    def as_data(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_data(data: Mapping[str, Any] | None) -> Speed:
        return Speed(**data) if data else Speed()


def _moved(known: float, found: float, least: float, most: float) -> float:
    share = 1.0 if found > known else _FORGET
    return min(most, max(least, (1 - share) * known + share * found))
