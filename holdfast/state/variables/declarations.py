"""What an operator declares about its state: the base of all declarations, and the variables of an instance at work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from holdfast.errors import StateError, TopologyError
from holdfast.state.variables.working_values import UNSET, Clock, Live

Length = int | Callable[[Any], int]
"""How many elements a structure has: a number, or a function of it."""

_LIVE = "_hf_live"
"""Attribute of an instance: the variables of the key at work, by name."""

_CONVERTED = frozenset({bool, int, float, str, bytes, list, tuple, dict, set, frozenset})


@dataclass(frozen=True, slots=True)
class VariableShape:
    """What must not change of a variable as long as there is a stored state: its form (value, map, list or window), the
    names of the types it holds, its lifetime or length."""

    form: str
    type: tuple[str, ...]
    ttl_us: int | None = None
    rows: int | None = None
    us: int | None = None

    @property
    def lengths(self) -> dict[str, int]:
        """Lifetime or length, by name, if there is one."""
        found = {"ttl_us": self.ttl_us, "rows": self.rows, "us": self.us}
        return {name: length for name, length in found.items() if length is not None}

    def __str__(self) -> str:
        return f"{self.form}({','.join([*self.type, *(f'{name}={n}' for name, n in self.lengths.items())])})"


class Variable:
    """What all declarations share: the types held, and what must not change. `sample`, `element_size` and `length` are
    hints for `state_size()`."""

    at_work: ClassVar[type[Any]]
    """Makes of a declaration, a payload (`UNSET`: as declared) and the clock what an operator works with."""

    def __init__(
        self,
        shape: VariableShape,
        kinds: tuple[type, ...],
        sample: int,
        element_size: int | None,
        length: Length | None,
    ) -> None:
        if type(sample) is not int or sample < 1:
            raise TopologyError(f"sample={sample!r} is no number of elements.", cure="Give 1 or more.")
        if element_size is not None and (type(element_size) is not int or element_size < 0):
            raise TopologyError(
                f"element_size={element_size!r} is no number of bytes.", cure="Give 0 or more."
            )
        self.name = self.owner = ""
        self.shape, self.kinds = shape, kinds
        self.needs_time = shape.ttl_us is not None or shape.us is not None
        """Whether it forgets by event time."""
        self.sample, self.element_size, self.length = sample, element_size, length

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.owner = owner.__name__

    def _of(self, instance: Any) -> Any:
        return lives_of(instance)[self.name]

    def _refuse(self, value: Any, wanted: type, place: str = "") -> StateError:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        if value is None:
            cure = "None is held only by a Value whose default is None."
        else:
            cure = (
                f"Convert it: {wanted.__name__}(…)."
                if wanted in _CONVERTED
                else "Give a value of that very type."
            )
        return StateError(
            f"variable {self.name!r} of {self.owner} holds {wanted.__name__}{place}, not {type(value).__name__} {shown}.",
            cure=cure,
        )


# --- the variables of an instance -----------------------------------------------------------------------------------


def declared(cls: type) -> dict[str, Variable]:
    """The variables of a class by name: those of its bases first, in the order they were written."""
    found: dict[str, Variable] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, Variable):
                found[name] = _public(base, name, value)
            else:
                found.pop(name, None)
    return found


def _public(cls: type, name: str, variable: Variable) -> Variable:
    if name.startswith("_"):
        raise TopologyError(
            f"the variable {name!r} of {cls.__name__} begins with '_', as what is no state does.",
            cure="Choose a name without it.",
        )
    return variable


class Lives(dict[str, Live]):
    """Variables at work, each made when it is first asked for."""

    def __init__(self, variables: Mapping[str, Variable], payloads: Mapping[str, Any], clock: Clock) -> None:
        super().__init__()
        self._variables = variables
        self._payloads = payloads
        self._clock = clock

    def __missing__(self, name: str) -> Live:
        variable = self._variables[name]
        self[name] = variable.at_work(variable, self._payloads.get(name, UNSET), self._clock)
        return self[name]

    def payloads(self, mark: int) -> dict[str, Any]:
        """What there is to store, in the order of the declarations, without what has ended at the watermark `mark`."""
        found = {}
        for name, variable in self._variables.items():
            at_work = name in self or variable.needs_time
            payload = self[name].payload(mark) if at_work else self._payloads.get(name, UNSET)
            if payload is not UNSET:
                found[name] = payload
        return found

    def held(self) -> dict[str, Any]:
        """The same, without looking for what has ended."""
        every = {
            name: self[name].held() if name in self else self._payloads.get(name, UNSET)
            for name in self._variables
        }
        return {name: held for name, held in every.items() if held is not UNSET}

    def ends(self, stored: Mapping[str, Any]) -> int | None:
        """When all that ends by itself, among what is `stored`, has ended; None if nothing does."""
        times = [self[name].ends() for name in stored if self._variables[name].needs_time]
        return max((time for time in times if time is not None), default=None)


def lives_of(instance: Any) -> Lives:
    """The variables at work of an instance; a fresh one has them as declared."""
    found = instance.__dict__.get(_LIVE)
    if found is None:
        found = instance.__dict__[_LIVE] = Lives(declared(type(instance)), {}, Clock())
    return found  # type: ignore[no-any-return]


def use(instance: Any, lives: Lives | None) -> None:
    """From now on the instance works with these; None: with fresh ones."""
    if lives is None:
        instance.__dict__.pop(_LIVE, None)
    else:
        instance.__dict__[_LIVE] = lives


def payloads_of(instance: Any) -> dict[str, Any]:
    """What there is to store of an instance's declared variables."""
    variables = declared(type(instance))
    return lives_of(instance).payloads(Clock().mark) if variables else {}


def give_payloads(instance: Any, payloads: Mapping[str, Any]) -> None:
    """Put stored variables into the instance, replacing those it has."""
    use(instance, Lives(declared(type(instance)), payloads, Clock()))
