"""A pin on its way into the store, in the background: one at a time, answered by a message to the element."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from holdfast.errors import NoSpaceError
from holdfast.protocol import messages
from holdfast.runtime.element.epochs.storing import Pinned
from holdfast.runtime.element.worker import Worker
from holdfast.runtime.failures import is_fatal, may_pass, story_of
from holdfast.runtime.region.region_side import RegionSide


class Uploading:
    """Of one element. Called by its thread; `send` delivers the answer to it."""

    def __init__(
        self, worker: Worker, region: RegionSide, send: Callable[[messages.ElementEvent], None]
    ) -> None:
        self._worker = worker
        self._region = region
        self._send = send
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=f"upload-{worker.element.name}")
        self._under_way: Future[None] | None = None

    def begin(self, pinned: Pinned) -> None:
        self._under_way = self._threads.submit(self._upload, pinned)

    def wait(self) -> None:
        """A late upload of an old attempt must not meet the sinks' roll-back."""
        if self._under_way is not None:
            self._under_way.exception()
            self._under_way = None

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _upload(self, pinned: Pinned) -> None:
        try:
            part = self._region.upload(pinned, self._worker)
            self._send(messages.UploadFinished(pinned.epoch, pinned.attempt, part))
        except NoSpaceError as error:
            self._send(messages.UploadBroke(pinned.epoch, pinned.attempt, True, str(error)))
        except BaseException as error:
            if is_fatal(error):
                self._region.fatal(error)
            why = (story_of(error), may_pass(error))
            self._send(messages.UploadBroke(pinned.epoch, pinned.attempt, False, *why))
