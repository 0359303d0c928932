"""What an element's loop asks of its region."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.checkpoint.parts import ElementPart
from holdfast.ids import Attempt, ElementName, Epoch
from holdfast.protocol.messages import ControllerEvent
from holdfast.protocol.turning_points import Turn
from holdfast.runtime.element.epochs.storing import OnTheWay, Pinned
from holdfast.runtime.element.worker import Worker
from holdfast.runtime.telling.events import RunEvent


class RegionSide(Protocol):
    """What a loop asks of its region."""

    def tell(self, event: ControllerEvent) -> None: ...

    def upload(self, pinned: Pinned, worker: Worker) -> ElementPart: ...

    def restore(self, worker: Worker, epoch: Epoch, attempt: Attempt) -> OnTheWay: ...

    def epoch_wanted(self) -> None: ...

    def turned(self, element: ElementName, turn: Turn) -> None: ...

    def rows_replayed(self, rows: int) -> None: ...

    def announce(self, event: RunEvent) -> None: ...

    def wait_for_space(self, reason: str, give_up: Callable[[], bool]) -> None: ...

    def fatal(self, error: BaseException) -> None: ...

    @property
    def epoch(self) -> Epoch: ...

    @property
    def is_held(self) -> bool: ...
