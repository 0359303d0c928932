"""Calls to services, many at a time: `orders.async_map(ask, "id long, risk double", concurrency=32, timeout="5 seconds")`.

The calls of a step end within it, so that an epoch never cuts through one: it knows of a row either nothing or its result. After a
failure rows are replayed and their calls made again: a service that changes something must bear that.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from holdfast.durations import Duration, seconds
from holdfast.errors import TopologyError
from holdfast.language.builder import Verbs
from holdfast.language.graph import HostedSpec
from holdfast.language.hosted import OnError, Operator, checked_on_error, maker
from holdfast.language.schema import to_arrow

if TYPE_CHECKING:
    from holdfast.language.stream import Stream

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0
_LONGEST_NOTE = 200


class CalledRow(dict[str, Any]):
    """A row as services like it, a dict, which is asked as rows of other Python operators are too: `row.id`."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"this row has no column {name!r}; it has {', '.join(self)}")

    def asDict(self) -> dict[str, Any]:
        return dict(self)


def called_rows(table: pa.Table) -> list[dict[str, Any]]:
    return [CalledRow(row) for row in table.to_pylist()]


class CallTimeout(TimeoutError):
    """A call took longer than the `timeout` of its operator: that is a matter of its row, not of a service that is away."""


class Answer(NamedTuple):
    """What a row became, or why it became nothing."""

    row: dict[str, Any]
    rows: list[Any]
    error: Exception | None = None


class AsyncMap(Operator):
    """Hosted in the driver. `fn(row)` is a function, called in threads, or a coroutine function. No state. `catches`: a row whose call
    failed for good is an answer too."""

    def __init__(
        self,
        fn: Callable[[dict[str, Any]], Any],
        concurrency: int,
        timeout_s: float | None,
        retries: int,
        ordered: bool,
        catches: bool = False,
    ) -> None:
        self._fn = fn
        self._called_as = f"{getattr(fn, '__name__', type(fn).__name__)}()"
        self._concurrency = concurrency
        self._timeout_s = timeout_s
        self._retries = retries
        self._ordered = ordered
        self._catches = catches
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: ThreadPoolExecutor | None = None

    def process_batch(self, table: pa.Table, port: int) -> Iterable[Any]:
        """All calls for these rows; the first that fails for good ends the others and is raised."""
        return [made for answer in self.process_each(table, port) for made in answer.rows]

    def process_each(self, table: pa.Table, port: int) -> list[Answer]:
        """What each row became, in their order, or as calls ended."""
        return self._loop_of_its_own().run_until_complete(self._answers(called_rows(table)))

    def _loop_of_its_own(self) -> asyncio.AbstractEventLoop:
        """One for the operator's life: clients of services belong to a loop."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        if self._loop is not None and not self._loop.is_running():
            self._loop.close()

    async def _answers(self, rows: list[dict[str, Any]]) -> list[Answer]:
        gate = asyncio.Semaphore(self._concurrency)
        finished: list[Answer] = []

        async def one(row: dict[str, Any]) -> Answer:
            async with gate:
                try:
                    answer = Answer(row, as_rows(await self._called(row)))
                except Exception as error:
                    if not self._catches:
                        raise
                    answer = Answer(row, [], error)
            finished.append(answer)
            return answer

        tasks = [asyncio.ensure_future(one(row)) for row in rows]
        try:
            answers = await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        return answers if self._ordered else finished

    async def _called(self, row: dict[str, Any]) -> Any:
        """One call, made again after a failure as often as was asked for."""
        for failures in range(self._retries + 1):
            try:
                return await asyncio.wait_for(self._call(row), self._timeout_s)
            except Exception as error:
                if isinstance(error, TimeoutError) and not str(error):  # wait_for's has no words
                    error = CallTimeout(f"a call for {row!r} took longer than {self._timeout_s} s")
                if failures == self._retries:
                    if not getattr(error, "__notes__", None):
                        error.add_note(f"in a call for {row!r}"[:_LONGEST_NOTE])
                    raise error from None
            await asyncio.sleep(min(FIRST_WAIT_S * 2**failures, LONGEST_WAIT_S))
        raise AssertionError("unreachable")

    def _call(self, row: dict[str, Any]) -> Awaitable[Any]:
        if inspect.iscoroutinefunction(self._fn):
            called: Awaitable[Any] = self._fn(row)
            return called
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._concurrency, thread_name_prefix="holdfast-call")
        return asyncio.get_running_loop().run_in_executor(self._pool, self._fn, row)


def as_rows(result: Any) -> list[Any]:
    """What a call returned: nothing, one row, or several in a list."""
    if result is None:
        return []
    return list(result) if isinstance(result, list) else [result]


class AsyncVerbs(Verbs):
    """Verbs of `Stream`."""

    __slots__ = ()

    def async_map(
        self,
        fn: Callable[
            [dict[str, Any]], Awaitable[Any] | Mapping[str, Any] | list[Any] | tuple[Any, ...] | None
        ],
        schema: Any,
        *,
        concurrency: int = 16,
        timeout: Duration | None = None,
        retries: int = 0,
        ordered: bool = True,
        on_error: OnError = "fail",
        name: str | None = None,
    ) -> Stream:
        """Call a service for each row, `concurrency` calls at a time: `orders.async_map(ask, "id long, risk double")`.

        `fn(row)` takes a dict (`row.id` is `row["id"]`) and returns a row (dict or tuple), a list of rows, or None; an `async def` runs in an event
        loop, any other function in threads. A call may take `timeout`; one that fails is made again `retries` times, after
        0.1 s, 0.2 s, … at most 5 s. What fails then fails the step, as in other Python operators; with `on_error="stream"` its row is in
        `.errors` of the stream, unless the service is away (ConnectionError and the like): then the step is tried again. Rows leave in the order in
        which they came, or with `ordered=False` as calls end. Runs in the driver, without state; the calls of a step end
        within it. After a failure rows are replayed and their calls made again. A thread whose call took too long cannot be
        stopped: give the service's client a timeout of its own."""
        if not callable(fn):
            raise TopologyError(
                f"async_map() takes a function, not {fn!r}.", cure="Write async_map(ask, schema)."
            )
        for what, number, least in (("concurrency", concurrency, 1), ("retries", retries, 0)):
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise TopologyError(
                    f"{what}={number!r} is no number of calls.", cure=f"Give {least} or more."
                )
        timeout_s = None if timeout is None else seconds(timeout, "timeout")
        checked = checked_on_error(on_error, False, "async_map")
        make, _ = maker(partial(AsyncMap, fn, concurrency, timeout_s, retries, ordered, checked == "stream"))
        why = "" if ordered else "has ordered=False: its rows leave as calls end"
        columns = (to_arrow(schema, "the schema of async_map"),)
        spec = HostedSpec(make, columns, AsyncMap.__name__, on_error=checked, untimed=why)
        return self._then(spec, name, outputs=len(spec.ports))
