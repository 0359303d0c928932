"""The context of a Python operator at work: where it is, and what its threads ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.compiler.plan import Plan
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.context import Context

if TYPE_CHECKING:
    from holdfast.runtime.runs.hosted.own_threads import Slot


class RunContext(Context):
    """As `Context`; the epoch is looked up. What only threads need is in `ThreadContext`."""

    def __init__(self, place: Context, epoch: Callable[[], int]) -> None:
        super().__init__(place.operator, place.region, place.mode, place.trigger, place.is_start)
        self._epoch = epoch

    @property
    def epoch(self) -> int:
        return self._epoch()


class ThreadContext(RunContext):
    """Given to one thread of an operator; threads that it starts itself may use it too."""

    def __init__(self, context: RunContext, slot: Slot) -> None:
        super().__init__(context, context._epoch)
        self._slot = slot

    @property
    def thread(self) -> int:
        return self._slot.number

    @property
    def stopping(self) -> bool:
        return self._slot.permits.ended

    def permit(self, *, shared: bool = False) -> AbstractContextManager[None]:
        return self._permit(shared)

    @contextmanager
    def _permit(self, shared: bool) -> Iterator[None]:
        permits = self._slot.permits
        permits.acquire(shared)
        self._slot.generation = permits.generation
        try:
            yield
        finally:
            permits.release()

    def submit(self, rows: Any, port: int | str = 0) -> None:
        self._slot.submit(rows, port)

    def make_consistent(self) -> None:
        check_may_ask(self)
        self._slot.ask_for_epoch()

    def wait(self, seconds: float) -> bool:
        permits = self._slot.permits
        with permits.condition:
            permits.condition.wait_for(lambda: permits.ended, seconds)
            return permits.ended


def check_may_ask(context: Context) -> None:
    """TopologyError if the operator has no epoch to ask for."""
    where = f"operator {context.operator!r} asks for an epoch, but"
    if not context.in_region:
        raise TopologyError(f"{where} it is outside of regions.", cure="Ask context.in_region before.")
    if context.trigger != "operator":
        raise TopologyError(
            f"{where} its region {context.region!r} has trigger={context.trigger!r}.",
            cure='Give the region trigger="operator".',
        )
    if not context.is_start:
        raise TopologyError(
            f"{where} its region {context.region!r} does not begin at it.",
            cure="Let the start ask: what is behind it cannot tell where the start would be.",
        )


def place_of(plan: Plan, operator: OperatorName) -> Context:
    """Where an operator is, of a compiled topology."""
    for region in plan.regions:
        if operator in region.members:
            settings = region.settings
            return Context(operator, region.name, settings.mode, settings.trigger, operator in region.starts)
    return Context(operator)
