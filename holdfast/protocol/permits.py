"""Permits of one operator with threads: who may change its state now. Pure; the rim waits and wakes.

    open ──close──▶ closing ──last permit released──▶ closed ──open──▶ open
      └──close, nobody has one──────────────────────────▲
                      closing ──open──▶ open

What must hold:

- Threads get permits while it is open only. So once it is closed no thread changes state or submits: the operator can be
  checkpointed, or given another state.
- A permit that is not shared is had alone. The *owner*, who processes rows and checkpoints, is one who asks among the
  others, but is let in also when it is closed.
- Nobody overtakes: whoever may be let in is, in the order of asking. A thread that takes one permit after the other
  therefore cannot keep the owner out, nor the owner the threads.
- Who has a permit and asks again gets it, whatever the phase: else it would wait for itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from holdfast.protocol.phases import Machine

Who = Hashable

OWNER: Who = "owner"


class PermitPhase(StrEnum):
    OPEN = "open"
    CLOSING = "closing"  # no new permits; some are still out
    CLOSED = "closed"  # no thread has one


_O, _C, _Z = PermitPhase.OPEN, PermitPhase.CLOSING, PermitPhase.CLOSED

PERMIT_MOVES: Mapping[PermitPhase, frozenset[PermitPhase]] = {
    _O: frozenset({_C, _Z}),
    _C: frozenset({_Z, _O}),
    _Z: frozenset({_O}),
}


@dataclass(frozen=True, slots=True)
class Asked:
    who: Who
    shared: bool


class PermitMachine(Machine[PermitPhase]):
    """Begins closed: nobody works before the operator has a state."""

    def __init__(self, operator: str) -> None:
        super().__init__(f"permits of {operator}", PERMIT_MOVES, PermitPhase.CLOSED)
        self._holders: dict[Who, int] = {}
        """How often each has one."""
        self._alone: Who | None = None
        """Who has one that is not shared."""
        self._queue: list[Asked] = []

    def has(self, who: Who) -> bool:
        return who in self._holders

    @property
    def threads(self) -> tuple[Who, ...]:
        """The threads that have a permit."""
        return tuple(who for who in self._holders if who != OWNER)

    @property
    def waiting(self) -> tuple[Who, ...]:
        return tuple(asked.who for asked in self._queue)

    # --- events ---------------------------------------------------------------------------------------------------

    def ask(self, who: Who, shared: bool = False) -> None:
        """`has(who)` tells whether it was let in; if not, it will be as soon as that is possible."""
        self._note(("ask", who, shared))
        if who in self._holders:
            if self._alone != who and not shared:
                raise self._violation(f"{who} has a shared permit and asks for one that is not")
            self._holders[who] += 1
            return
        if who in self.waiting:
            raise self._violation(f"{who} asks twice")
        self._queue.append(Asked(who, shared))
        self._let_in()

    def withdraw(self, who: Who) -> None:
        """It no longer wants what it asked for, or gives back what it was given meanwhile."""
        self._note(("withdraw", who))
        if who in self._holders:
            self.release(who)
            return
        self._queue = [asked for asked in self._queue if asked.who != who]
        self._let_in()

    def release(self, who: Who) -> None:
        self._note(("release", who))
        if who not in self._holders:
            raise self._violation(f"{who} releases a permit that it does not have")
        self._holders[who] -= 1
        if self._holders[who]:
            return
        del self._holders[who]
        if self._alone == who:
            self._alone = None
        if self.phase is PermitPhase.CLOSING and not self.threads:
            self._move(PermitPhase.CLOSED)
        self._let_in()

    def close(self) -> None:
        """No more permits for threads."""
        self._note("close")
        if self.phase is PermitPhase.OPEN:
            self._move(PermitPhase.CLOSING if self.threads else PermitPhase.CLOSED)
            self._let_in()

    def open(self) -> None:
        self._note("open")
        if self.phase is not PermitPhase.OPEN:
            self._move(PermitPhase.OPEN)
            self._let_in()

    def _let_in(self) -> None:
        left: list[Asked] = []
        blocked = False
        for asked in self._queue:
            may = asked.who == OWNER or self.phase is PermitPhase.OPEN
            if may and not blocked and self._fits(asked):
                self._holders[asked.who] = 1
                self._alone = None if asked.shared else asked.who
                continue
            blocked = blocked or may
            left.append(asked)
        self._queue = left

    def _fits(self, asked: Asked) -> bool:
        return self._alone is None and (asked.shared or not self._holders)
