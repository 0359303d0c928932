"""What decides over an element while its loop works: its region's protocol, or the element itself outside of regions.

Each life is the rim of a pure machine (`protocol/element.py`, `protocol/autonomous.py`): it feeds the machine and
performs its commands. The loop asks; it never decides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any

from holdfast.errors import PoisonFound, StepFailed
from holdfast.ids import ConnectionId
from holdfast.protocol.accounts import Account
from holdfast.runtime.element.evaluation import Outcome, Work
from holdfast.runtime.engines.engine import StepName
from holdfast.runtime.links.batch import Batch


class Life(ABC):
    """Called by the element's thread only."""

    looks_around: bool = True
    """While the element rests, something may become due that nobody tells: it has to look often."""

    @property
    @abstractmethod
    def waiting(self) -> str:
        """For people: what the element waits for when it rests."""

    @property
    @abstractmethod
    def may_step(self) -> bool: ...

    @property
    @abstractmethod
    def may_read_sources(self) -> bool: ...

    @abstractmethod
    def takes(self, connection: ConnectionId) -> bool:
        """True if batches of an input may be processed now."""

    def again(self) -> Work | None:
        """A step that has to be done before anything new; its batches are taken."""
        return None

    @abstractmethod
    def begin(self) -> None:
        """The thread begins."""

    @abstractmethod
    def turn(self) -> bool:
        """Do what comes before work: messages, markers. True if something was done."""

    @abstractmethod
    def name_step(self, number: int) -> StepName: ...

    @abstractmethod
    def step(self, work: Work) -> None:
        """Run a step, with what has to happen before and after it, also if it fails."""

    def sends(self, connection: ConnectionId, batch: Batch) -> None:
        """A batch is about to be handed on."""

    @abstractmethod
    def must_give_up(self) -> bool:
        """While the element waits in the middle of something: does it no longer matter?"""

    def must_hurry(self) -> bool:
        """While the element waits for space downstream: is there something that must not wait for it?"""
        return False

    def attempt(self, plan: Any) -> Any:
        """Run `plan`, which asks sources what they have; None if that failed and was dealt with."""
        return plan()

    @property
    def is_storing(self) -> bool:
        """A checkpoint of its own is due or on its way. Any thread may ask."""
        return False

    @abstractmethod
    def rest(self) -> None:
        """There is nothing to do; called before the thread waits."""

    @abstractmethod
    def is_over(self) -> bool:
        """True if the element has come to its end in order."""

    @abstractmethod
    def end(self) -> None:
        """It has: what remains to be done."""

    @abstractmethod
    def fatal(self, error: BaseException) -> None:
        """The run must end."""

    def close(self) -> None:
        """The thread ends, whatever the reason."""

    def done(self, work: Work, outcome: Outcome) -> None:
        """For people: a step was counted."""


class OutsideLife(Life):
    """A life outside of regions: what the run asks of it. `stop_when_possible`, `park`, `keep_all` and `is_starved` may be called from
    any thread."""

    failure: StepFailed | None = None
    """Why the element gave up."""
    bounded: bool = False
    """True if the element ends when its bounded sources are dry."""
    on_loss: Callable[[], None]
    """Called when rows were counted as lost: somebody may have a budget for them."""
    on_poison: Callable[[PoisonFound], None]
    """Called when a row was found that the user wants to look at."""

    @abstractmethod
    def stop_when_possible(self) -> None:
        """Read from sources no more than what they have received and could not give again; end when the inputs are closed and empty."""

    @abstractmethod
    def park(self, now: bool) -> None:
        """Take nothing, from the next turn on; or go on."""

    @property
    @abstractmethod
    def is_parked(self) -> bool: ...

    @abstractmethod
    def keep_all(self) -> None:
        """All operators store their states, now and at the end: they will go on in a region."""

    @property
    @abstractmethod
    def account(self) -> Account: ...

    @abstractmethod
    def last_account(self) -> Account:
        """The account when the thread has ended, with what nobody had counted."""

    @abstractmethod
    def count(self, account: Account) -> None:
        """The run is over; `account` tells what its end cost as well."""

    @abstractmethod
    def is_starved(self, silent: Collection[ConnectionId]) -> bool:
        """True if nothing more comes by itself; along connections in `silent` nothing will."""
