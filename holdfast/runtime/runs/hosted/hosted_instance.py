"""The user's instance behind a Python operator in the driver: made, compared with what was stored, given a state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.errors import StateError
from holdfast.ids import OperatorName
from holdfast.state.values import codec
from holdfast.state.variables import instance_state
from holdfast.state.variables.changed_attributes import taken_over
from holdfast.state.variables.declarations import declared


class HostedInstance:
    """`value` is the instance, None before it is made. Another one may take its place; what belongs to the class stays."""

    def __init__(self, operator: OperatorName) -> None:
        self.value: Any = None
        self._operator = operator
        self._initial: Any = None
        self.attributes: list[str] | None = None
        """Of a fresh instance: stored with every state. None: it makes its state itself."""
        self.filled: tuple[str, ...] = ()
        """Attributes that the state restored last did not have: they are as in a fresh instance."""
        self.is_unopened = False
        """It took the place of one that hung, and is opened when it has a state."""
        self._is_checked = False

    def take(self, instance: Any) -> None:
        """A fresh instance is the one."""
        self._initial = instance_state.initial_state(instance)
        fresh = instance_state.fresh_attributes(instance, self._initial)
        self.attributes = None if fresh is None else sorted(fresh)
        self.value = instance

    def to_initial(self) -> None:
        instance_state.to_initial(self.value, self._initial)

    def give(self, state: bytes) -> None:
        """It goes on from this state, in the middle of a run."""
        instance_state.give_state(self.value, state)
        if self.is_unopened:
            self.is_unopened = False
            instance_state.open_again(self.value)

    def taken_over(self, stored: Mapping[str, Any]) -> Any:
        """The stored state, for an operator whose attributes may be others now. MismatchError if it is not for this one."""
        state = codec.decode(stored["state"])
        fresh = instance_state.fresh_attributes(self.value, self._initial)
        if fresh is None or type(state) is not dict:
            return state
        known = declared(type(self.value))
        taken = taken_over(self._operator, state, stored.get("attributes"), fresh, known)
        self.filled = taken.filled
        return dict(taken.state)

    def check_once(self, is_at_a_point: Callable[[], bool]) -> None:
        """The state survives encoding, or the user hears which attribute does not."""
        if self._is_checked or not is_at_a_point():
            return
        try:
            instance_state.check_state(self.value)
        except StateError as error:
            raise StateError(f"operator {self._operator!r}: {error.message}", cure=error.cure) from error
        self._is_checked = True
