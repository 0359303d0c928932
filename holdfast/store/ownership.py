"""Whose store it is: one job's, and at any moment one owner's.

The *identity* says which job and topology; it is made once. The *owner* is a run that may write, known by a token that
only grows: whoever has an older one is fenced, and every change of its is refused.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from holdfast import durable
from holdfast.errors import FencedError, MismatchError, StoreError
from holdfast.failpoints import fp
from holdfast.ids import OwnerToken
from holdfast.store import refusals

FORMAT = 1
"""Number of the store's layout. A store with a higher number is refused untouched."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The store's first record. Written once, never re-minted: a missing one beside data is damage."""

    job_id: str
    topology: str
    format: int = FORMAT


class OwnedPlace(ABC):
    """A place that belongs to one job and to one owner at a time."""

    place: str
    """How errors name it: a path, or the URL."""
    _identity: Identity | None = None
    _token: OwnerToken | None = None

    def check(self, topology: str, *, take_over: bool = False) -> None:
        """Raise what `open` and `acquire` would raise, without a write. What is found may change until then."""
        if self._load_identity() is None:
            self._refuse_leftovers()
            return
        self._check_topology(topology)
        owner = self.owner()
        if owner is not None and owner.get("alive") and not take_over:
            raise refusals.owned(self.place, owner)

    def open(self, topology: str) -> Identity:
        """Create the store or check it: job identity, format. MismatchError for another topology or newer format,
        DamagedError if the identity is missing while data exists."""
        if self._load_identity() is None:
            self._refuse_leftovers()
            self._create(Identity(secrets.token_hex(16), topology))
        return self._check_topology(topology)

    def _check_topology(self, topology: str) -> Identity:
        self._identity = None
        identity = self.read_identity()
        if identity.topology != topology:
            raise MismatchError(
                f"{self.place} belongs to another topology"
                f" ({identity.topology[:60]}, this one is {topology[:60]}).",
                cure="Use another store for a changed graph, or run the graph this store was made for.",
            )
        return identity

    def read_identity(self) -> Identity:
        """The identity of a store that exists, for readers that do not know its topology."""
        if self._identity is None:
            self._identity = self._load_identity()
        if self._identity is None:
            self._refuse_leftovers()
            raise refusals.no_store(self.place)
        return self._identity

    @abstractmethod
    def _load_identity(self) -> Identity | None:
        """The identity, verified. None: there is none."""

    @abstractmethod
    def _refuse_leftovers(self) -> None:
        """Data without an identity is never taken for a new store, nor is a place that holds something else."""

    @abstractmethod
    def _create(self, identity: Identity) -> None:
        """Make a store with this identity. If another process was faster, its identity counts."""

    @property
    def _job(self) -> str:
        return self.read_identity().job_id

    def acquire(self, *, take_over: bool = False) -> OwnerToken:
        """Become the owner. A provably dead owner is replaced at once; a live one raises OwnedError naming it,
        unless `take_over`, which fences it."""
        if self._token is not None:
            raise StoreError(f"{self.place} is already owned by this very object.", cure="Release it first.")
        self.read_identity()
        with durable.translate_os_errors(self.place):
            fp("lease.acquire")
            self._token = self._claim(take_over)
            fp("lease.acquired")
        return self._token

    @abstractmethod
    def _claim(self, take_over: bool) -> OwnerToken:
        """Become the owner, as `acquire` says."""

    @abstractmethod
    def check_owner(self) -> None:
        """Raises FencedError if a newer owner exists."""

    def release(self) -> None:
        """Give ownership up (clean stop)."""
        if self._token is None:
            return
        try:
            with durable.translate_os_errors(self.place):
                self._give_up()
        except FencedError:
            pass  # the newer owner has it already
        finally:
            self._let_go()
            self._token = None

    @abstractmethod
    def _give_up(self) -> None:
        """Let others see that the owner stopped cleanly."""

    def close(self) -> None:
        """Let go of everything. Without `release` before, the store looks as after a crash."""
        self._let_go()
        self._token = None

    def _let_go(self) -> None:
        """Drop what shows that the owner lives, as its end would. Called also if nothing does."""

    @abstractmethod
    def owner(self) -> Mapping[str, Any] | None:
        """Who owns the store now: token, pid, host, since, alive. For status and error messages."""

    def _held(self) -> OwnerToken:
        """The token this object owns the store under."""
        if self._token is None:
            raise refusals.not_owned(self.place)
        return self._token

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One change of the owner."""
        self._held()
        with durable.translate_os_errors(self.place):
            yield
