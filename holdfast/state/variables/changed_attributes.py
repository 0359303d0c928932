"""Plain attributes of a Python operator that changed between two runs: which are filled in, and what is refused.

A checkpoint tells, beside the state, which attributes a fresh instance had when it was stored. So an attribute that the operator made or deleted while it ran is not taken for one that its author added or removed.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import MismatchError


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A stored state for today's operator, and the attributes that it did not have."""

    state: Mapping[str, Any]
    filled: tuple[str, ...] = ()


def taken_over(
    operator: str,
    stored: Mapping[str, Any],
    then: Collection[str] | None,
    fresh: Mapping[str, Any],
    variables: Collection[str],
) -> TakenOver:
    """`then`: attributes of a fresh instance when it was stored; None if nobody knows, and nothing is refused. `fresh`: those of one now, by
    name. `variables`: those that the operator declares; they are no matter of this. MismatchError if a stored attribute
    has no place any more."""
    known = stored.keys() if then is None else then
    filled = [name for name in fresh if name not in known and name not in stored]
    gone = [name for name in then or () if name in stored and name not in fresh and name not in variables]
    if gone:
        near = difflib.get_close_matches(gone[0], filled, 1, 0.4) or filled[:1]
        renamed = f"; {near[0]!r} is new: is that its new name?" if near else "."
        raise MismatchError(
            f"operator {operator!r} has no attribute {gone[0]!r} any more, but the store holds one{renamed}",
            cure=f"Let __init__ set {gone[0]!r} again (open() may hand its value on), define checkpoint() and reset(state), "
            "or let the operator begin anew: `holdfast checkpoints reset-operator`.",
        )
    return TakenOver({**stored, **{name: fresh[name] for name in filled}}, tuple(filled))
