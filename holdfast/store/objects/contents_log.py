"""What a store of objects holds, as one value, and the log in which each new value gets its number.

    log/<number>     sealed JSON: the whole table of contents after that change, and the owner's token
    head             sealed number that the log had reached when an owner came or an epoch was published

A change is the creation of the next number, which succeeds once: whoever comes second reads what is there and sees
whether a newer owner wrote it. So a change is made by the current owner, on top of the newest state, or not at all.

What must hold:
1. The newest number is the truth; what lies below it is history.
2. History is deleted from the oldest on, and the newest KEEP stay. After creating a number, the one before it must
   still be there: if it is gone, the number was free only because a newer owner had cleared it away.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.errors import DamagedError, StoreError
from holdfast.store import refusals, sealed_file
from holdfast.store.objects.bucket import Bucket

KEEP = 16
LOG = "log"
HEAD = "head"
LATER = frozenset({"blobs", "segments", "head", "events"})
"""What exists only after the first change. An owner's sign of life comes before it."""
_TRIES = 200
"""A busy owner wins many races against one that takes over, but not all."""

Ref = tuple[str, int, int, int]
"""Where bytes are: object, first byte, size, checksum."""


@dataclass(frozen=True)
class State:
    """A table of contents. Never changed; `replace` makes the next one."""

    number: int = 0
    token: int = 0
    owner: Mapping[str, Any] = field(default_factory=dict)
    entries: Mapping[str, Mapping[str, Ref]] = field(default_factory=dict)
    epochs: Mapping[str, Mapping[int, Ref]] = field(default_factory=dict)
    records: Mapping[str, Ref] = field(default_factory=dict)

    def refs(self) -> set[str]:
        """Every object that something here refers to."""
        parts: list[Mapping[Any, Ref]] = [*self.entries.values(), *self.epochs.values(), self.records]
        return {ref[0] for part in parts for ref in part.values()}

    def with_entry(self, entry: str, keys: Mapping[str, Ref]) -> State:
        return replace(self, entries={**self.entries, entry: keys})

    def with_region(self, region: str, epochs: Mapping[int, Ref]) -> State:
        return replace(self, epochs={**self.epochs, region: epochs})

    def encode(self) -> bytes:
        fields = {
            "token": self.token, "owner": self.owner, "entries": self.entries, "epochs": self.epochs,
            "records": self.records, "nonce": secrets.token_hex(8),
        }  # fmt: skip
        return json.dumps(fields, separators=(",", ":")).encode()


def decode(number: int, payload: bytes) -> State:
    """A state from the bytes of its log object, which were verified."""
    with sealed_file.understood(f"the state {number}"):
        fields = json.loads(payload)
        return State(
            number=number,
            token=int(fields["token"]),
            owner=fields["owner"],
            entries={e: {k: _ref(r) for k, r in keys.items()} for e, keys in fields["entries"].items()},
            epochs={g: {int(n): _ref(r) for n, r in ns.items()} for g, ns in fields["epochs"].items()},
            records={name: _ref(ref) for name, ref in fields["records"].items()},
        )


def _ref(fields: list[Any]) -> Ref:
    name, start, size, crc = fields
    return str(name), int(start), int(size), int(crc)


class Log:
    """The numbered states of one store."""

    def __init__(self, bucket: Bucket, job: str) -> None:
        self.bucket = bucket
        self.job = job
        self._state: State | None = None
        self._lock = threading.RLock()

    def newest(self) -> State:
        """The newest state there is. DamagedError if the log is gone."""
        for _ in range(_TRIES):
            numbers = self._numbers()
            if not numbers:
                self._refuse_loss()
                return State()
            state = self._read(numbers[-1])
            if state is not None:
                return state
        raise StoreError(f"{self.bucket.url} changes faster than it can be read.")

    def change(self, token: int | None, step: Callable[[State], State | None]) -> State:
        """Make the next state by `step` (None: nothing to change), as the owner with this token. None: as nobody."""
        with self._lock:
            for _ in range(_TRIES):
                state = self._state or self.newest()
                self._check(state, token)
                following = step(state)
                if following is None:
                    self._state = None if token is None else state
                    return state
                following = replace(following, number=state.number + 1)
                if self._create(following):
                    self._state = following
                    self._clear_history(following.number)
                    return following
                self._state = None
            raise StoreError(f"{self.bucket.url} changes faster than this run can change it.")

    def check_owner(self, token: int) -> None:
        """FencedError if a newer owner exists. Looks at the store, not at what is remembered."""
        with self._lock:
            state = self.newest()
            if self._state is not None and state.number < self._state.number:
                raise self._went_back()
            self._check(state, token)
            self._state = state

    def seen(self) -> State:
        """The state of the last look or change; the newest one if there was none."""
        with self._lock:
            if self._state is None:
                self._state = self.newest()
            return self._state

    def forget(self) -> None:
        """Remember nothing: the next change looks."""
        with self._lock:
            self._state = None

    def note_head(self) -> None:
        """Leave a hint how far the log had come."""
        with self._lock:
            if self._state is not None:
                number = str(self._state.number).encode()
                self.bucket.replace(HEAD, sealed_file.seal("head", self.job, HEAD, number))

    def check_head(self) -> None:
        """DamagedError if the log ends before the place where it was seen to be."""
        data = self.bucket.read(HEAD)
        if data is None:
            return
        seen = int(sealed_file.unseal(data, f"{self.bucket.url}/{HEAD}", "head", self.job, HEAD))
        if self.newest().number < seen:
            raise self._went_back()

    def _refuse_loss(self) -> None:
        """Without a log there can be nothing else: a store begins with its identity alone."""
        left = set(self.bucket.names()) & LATER
        if left and not self._numbers():
            raise sealed_file.damaged(f"{self.bucket.url}/{LOG}", f"is gone, but {min(left)} is there")

    def _create(self, state: State) -> bool:
        name = number_name(state.number)
        data = sealed_file.seal("log", self.job, name, state.encode())
        if not self.bucket.create(f"{LOG}/{name}", data):
            return False
        if state.number > 1 and not self.bucket.exists(f"{LOG}/{number_name(state.number - 1)}"):
            self._withdraw(state)
            return False
        return True

    def _withdraw(self, state: State) -> None:
        """The number before a new one is gone: it was free only because others are far ahead and had cleared it away
        (then look again), or the store lost what it had confirmed."""
        newest = self.newest()
        self.bucket.delete([f"{LOG}/{number_name(state.number)}"])
        if newest.number <= state.number:
            raise self._went_back()
        if newest.token > state.token:
            raise refusals.fenced(self.bucket.url, state.token)

    def _check(self, state: State, token: int | None) -> None:
        if token is not None and state.token > token:
            raise refusals.fenced(self.bucket.url, token)
        if token is not None and state.token < token:
            raise self._went_back()

    def _went_back(self) -> DamagedError:
        return sealed_file.damaged(
            self.bucket.url, "went back in time: it lost changes it had confirmed, or holds an older copy"
        )

    def _read(self, number: int) -> State | None:
        name = number_name(number)
        data = self.bucket.read(f"{LOG}/{name}")
        if data is None:
            return None  # cleared away since it was listed
        place = f"{self.bucket.url}/{LOG}/{name}"
        try:
            return decode(number, sealed_file.unseal(data, place, "log", self.job, name))
        except (ValueError, KeyError, TypeError) as error:
            raise sealed_file.damaged(place, "does not hold a table of contents") from error

    def _numbers(self) -> list[int]:
        return sorted(int(name) for name in self.bucket.names(LOG) if name.isdigit())

    def _clear_history(self, number: int) -> None:
        if number % KEEP == 0:
            old = [n for n in self._numbers() if n <= number - KEEP]
            self.bucket.delete(f"{LOG}/{number_name(n)}" for n in old)


def number_name(number: int) -> str:
    return f"{number:015d}"
