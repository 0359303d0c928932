"""Changes of a store in Redis: each is one transaction that the server performs only for the current owner.

    WATCH owner …       read identity, owner, clock and what the change needs
    decide              here, from what was read: refuse, or name the commands
    MULTI … EXEC        done as a whole, or not at all if a watched key was touched meanwhile

What must hold:
1. Every change watches the owner record and compares its token: a new owner touches it, so that nothing an earlier
   owner has under way can still be performed.
2. If the server did not answer, what it did is looked up. Before looking, the owner record is written again as it is:
   a transaction still on its way then fails, so that what is seen stays true. `decide` is called once more and
   recognises its own work.
3. The clock counts changes. A value below one that was acknowledged: the server lost changes it had confirmed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.errors import StoreError
from holdfast.ids import OwnerToken
from holdfast.store import refusals
from holdfast.store.redis.connection import Command, Line, Link, Patience, Unreachable
from holdfast.store.redis.values import Layout, Sealer

Decide = Callable[[list[Any], bool], Sequence[Command]]
"""From the replies to the reads, and whether this is another try, to the commands of the change (none: all is done)."""

_CONFIRM_MS = 10_000


@dataclass(frozen=True)
class _Change:
    """A change: what it reads, what may not be touched meanwhile, and what it does then."""

    decide: Decide
    watch: Sequence[str]
    reads: Sequence[Command]
    confirm: bool
    as_owner: bool


class _Raced(Exception):
    """A watched key was touched: read again."""


class Session:
    """A job's store on a server, written under one token. Used by a driver, and by each of its executors."""

    def __init__(self, link: Link, identity: bytes, job: str) -> None:
        self.link = link
        self.place = link.address.url
        self.layout = Layout(link.address.name)
        self.sealer = Sealer(self.place, job)
        self.identity = identity
        self.token: OwnerToken | None = None
        self.confirms = False
        """True: a confirmed change waits until the server has it on disk (WAITAOF)."""
        self._seen = 0
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def change(
        self,
        decide: Decide,
        *,
        watch: Sequence[str] = (),
        reads: Sequence[Command] = (),
        confirm: bool = False,
        as_owner: bool = True,
    ) -> None:
        """Perform a change. A confirmed one is on the server's disk when this returns."""
        change = _Change(decide, watch, reads, confirm, as_owner)
        again = False
        patience = Patience(self.link.address.patience_s)
        while True:
            try:
                if again:
                    self._settle(change)
                with self.link.line() as line:
                    self._try(line, change, again)
                return
            except _Raced:
                continue
            except Unreachable as error:
                patience.wait(error)
                again = True

    def check_owner(self) -> None:
        """FencedError if a newer owner exists, DamagedError if the store is not the one it was."""
        seen = self._seen
        (reply,) = self.link.ask(self._state_command())
        self._check(reply, seen, as_owner=True)

    def read_owner(self, value: Any) -> dict[str, Any]:
        return dict(self.sealer.open_json(value, "owner"))

    def _try(self, line: Line, change: _Change, again: bool) -> None:
        _, *replies = self._look(line, change.as_owner, change.watch, change.reads)
        commands = list(change.decide(replies, again))
        if not commands:
            line.exchange([("UNWATCH",)])
            return
        done = _perform(line, [*commands, ("INCR", self.layout.clock)])
        with self._lock:
            self._seen = max(self._seen, int(done[-1]))
        self._confirm(line, change)

    def _settle(self, change: _Change) -> None:
        """Touch the owner record: whatever is still on its way to the server is not performed any more."""
        with self.link.line() as line:
            (owner,) = self._look(line, change.as_owner)
            _perform(line, [("SET", self.layout.owner, owner)])
            self._confirm(line, change)

    def _look(
        self, line: Line, as_owner: bool, watch: Sequence[str] = (), reads: Sequence[Command] = ()
    ) -> list[Any]:
        """The owner record, and the replies to some reads. Watched from before on: who may write, and `watch`."""
        seen = self._seen
        watched: Command = ("WATCH", self.layout.identity, self.layout.owner, *watch)
        _, state, *replies = line.exchange([watched, self._state_command(), *reads])
        self._check(state, seen, as_owner)
        return [state[1], *replies]

    def _confirm(self, line: Line, change: _Change) -> None:
        if not change.confirm or not self.confirms:
            return
        local, _ = line.exchange([("WAITAOF", 1, 0, _CONFIRM_MS)])[0]
        if not local:
            raise self.link.unreachable(f"its disk did not confirm a change within {_CONFIRM_MS // 1000} s")

    def _state_command(self) -> Command:
        return ("MGET", self.layout.identity, self.layout.owner, self.layout.clock)

    def _check(self, state: Sequence[Any], seen: int, as_owner: bool) -> None:
        identity, owner, clock = state
        if as_owner and self.token is None:
            raise refusals.not_owned(self.place)
        if as_owner and self._pid != os.getpid():
            raise StoreError(f"{self.place} is owned by process {self._pid}, of which this one is a copy.")
        if identity is None:
            raise self.sealer.damaged("has lost its identity: the server was emptied or lost its data")
        if identity != self.identity:
            raise self.sealer.damaged("holds another store than the one this run began with")
        found = self.read_owner(owner)["token"]
        if clock is None or not bytes(clock).isdigit():
            raise self.sealer.damaged("has lost its clock")
        if as_owner and found != self.token and found > (self.token or 0):
            raise refusals.fenced(self.place, self.token)
        if int(clock) < seen or (as_owner and found != self.token):
            raise self.sealer.damaged(
                "went back in time: the server lost changes it had confirmed"
                " (restarted from older data, or a replica took its place)"
            )


def _perform(line: Line, commands: Sequence[Command]) -> list[Any]:
    """Do all of it, unless something watched was touched."""
    done = line.exchange([("MULTI",), *commands, ("EXEC",)])[-1]
    if done is None:
        raise _Raced
    return list(done)
