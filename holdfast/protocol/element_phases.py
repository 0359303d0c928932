"""The phases of an element in a region, and the moves between them.

new ──reset──▶ resetting ──all markers──▶ restored ──GoOn──▶ running
                                             │                  │
                                             └───first marker───┤
                                                                ▼
running ◀──token: all markers here or overtaking, pin────── aligning ◀──next epoch──┐
                                                                │                    │
                                                       drain: data markers           │
                                                                ▼                    │
running ◀──Resume── paused ◀──control markers, pin────────── drained                 │
                      └──────────────────────────────────────────────────────────────┘
running ──Prepare──▶ readying ──operators are ready──▶ held ──next epoch──▶ aligning
running ◀──stored── storing ◀──cascade: all markers, pin──── aligning (or drained, if there are control links, or operators
                                                             that may not be checkpointed yet)
any phase ──newer reset──▶ resetting
any phase ──Broke──▶ broken, which only a newer reset ends
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class ElementPhase(StrEnum):
    NEW = "new"  # knows nothing; only a reset gives it a state
    RESETTING = "resetting"  # a reset is under way; batches sent before it are dropped
    RESTORED = "restored"  # state is that of an epoch; sources wait for GoOn
    RUNNING = "running"
    READYING = "readying"  # an epoch is wanted; operators may not be checkpointed yet, so the element goes on
    HELD = "held"  # they may: nothing is taken until the pin
    ALIGNING = "aligning"  # an epoch is under way; links that delivered its marker wait
    DRAINED = "drained"  # all data is in; control links still have to deliver markers, or operators to come to a point
    PAUSED = "paused"  # drain style: pinned; sources wait for Resume
    STORING = "storing"  # cascade style: pinned; everything waits until that is durable
    BROKEN = "broken"  # state is worthless; only a newer reset helps


_N, _T, _S, _R = ElementPhase.NEW, ElementPhase.RESETTING, ElementPhase.RESTORED, ElementPhase.RUNNING
_A, _D, _P, _B = ElementPhase.ALIGNING, ElementPhase.DRAINED, ElementPhase.PAUSED, ElementPhase.BROKEN
_O, _Y, _H = ElementPhase.STORING, ElementPhase.READYING, ElementPhase.HELD

ELEMENT_MOVES: Mapping[ElementPhase, frozenset[ElementPhase]] = {
    _N: frozenset({_T, _B}),
    _T: frozenset({_T, _S, _B}),
    _S: frozenset({_R, _A, _Y, _T, _B}),
    _R: frozenset({_A, _Y, _T, _B}),
    _Y: frozenset({_H, _T, _B}),
    _H: frozenset({_A, _T, _B}),
    _A: frozenset({_D, _R, _O, _T, _B}),
    _D: frozenset({_P, _O, _T, _B}),
    _P: frozenset({_R, _A, _Y, _T, _B}),
    _O: frozenset({_R, _T, _B}),
    _B: frozenset({_T}),
}

STATELESS = frozenset({_N, _T, _B})
"""Phases in which the element has no state a batch could be applied to."""
