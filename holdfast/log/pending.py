"""An append on its way, and what became of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.errors import HoldfastError, StoreError


@dataclass(frozen=True, slots=True)
class Appended:
    """Rows that are durable."""

    partition: int
    position: int | None
    """Of the first row. None: it was stored earlier, and where is not remembered."""
    rows: int
    sequence: int
    is_new: bool = True
    """False: rows with this sequence were there already."""


class Pending:
    """Rows that were handed over, but are not known to be durable yet. Forward them only after `result`."""

    def __init__(
        self,
        changed: threading.Condition,
        partition: int,
        done: Appended | None = None,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        """`told`: called, with the lock held, when its failure is raised."""
        self.partition = partition
        self._changed = changed
        self._done = done
        self._told = told
        self._error: HoldfastError | None = None

    def settle(self, done: Appended) -> None:
        """Called with the lock of the condition held."""
        self._done = done

    def fail(self, error: HoldfastError) -> None:
        self._error = error

    @property
    def is_done(self) -> bool:
        return self._done is not None or self._error is not None

    def result(self, timeout_s: float | None = None) -> Appended:
        """Wait until the rows are durable. Raises what kept them from it."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while not self.is_done:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise StoreError(
                        "the append is still on its way.", cure="Ask again later: it was not given up."
                    )
                self._changed.wait(left)
            if self._error is not None:
                self._told()
        if self._error is not None:
            raise type(self._error)(self._error.message, cure=self._error.cure) from self._error
        assert self._done is not None
        return self._done
