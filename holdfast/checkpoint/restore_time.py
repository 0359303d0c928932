"""How long a restore will take: predicted from bytes, corrected by every restore that really happened. Pure.

*Restore time* runs from the decision to reset until the state is verified and readable and the sources are positioned.
A prediction that was too low is believed at once, one that was too high only slowly: a bound is a promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

MARGIN = 1.25
"""Bounds are kept with so much to spare: machines are not always equally fast."""
_FORGET = 0.2
"""How far one restore that was faster than predicted moves the correction."""
_SLOWEST, _FASTEST = 50.0, 0.2


@dataclass(frozen=True, slots=True)
class Speed:
    """What a restore takes. The defaults are on the slow side of what two cores and one disk do."""

    fixed_s: float = 0.1
    base_s_per_mb: float = 1 / 300
    """Reading, verifying, mapping."""
    delta_s_per_mb: float = 1 / 60
    """The same and merging: a delta's rows join what lies before them."""
    delta_s: float = 0.004
    """Of each delta, whatever its size."""
    correction: float = 1.0
    """Measured over predicted, learned from restores."""

    def base_seconds(self, bytes: int) -> float:
        return self.correction * MARGIN * (self.fixed_s + self.base_s_per_mb * bytes / 1e6)

    def delta_seconds(self, bytes: int, deltas: int = 1) -> float:
        """Of `deltas` deltas with together `bytes` bytes."""
        return self.correction * MARGIN * (self.delta_s * deltas + self.delta_s_per_mb * bytes / 1e6)

    def learned(self, predicted_s: float, measured_s: float) -> Speed:
        """The speed after a restore that was predicted to last `predicted_s` and did last `measured_s`."""
        if predicted_s <= 0:
            return self
        found = self.correction * MARGIN * measured_s / predicted_s
        share = 1.0 if found > self.correction else _FORGET
        correction = (1 - share) * self.correction + share * found
        return replace(self, correction=min(_SLOWEST, max(_FASTEST, correction)))

    def as_data(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_data(data: Mapping[str, Any] | None) -> Speed:
        return Speed(**data) if data else Speed()
