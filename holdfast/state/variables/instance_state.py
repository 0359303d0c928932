"""The state of a Python operator hosted in the driver, as bytes.

By default the state is the operator's instance attributes (also slots) whose names do not start with "_", and the
variables that its class declares (variables.py); other attributes of the class are not state. An operator may take over with the pair `checkpoint()` / `reset(value)`, and with
`reset_to_initial_state()`. `open()` runs after every restore, also the first, to rebuild what is not state.

Life, by the caller: `pristine = initial_state(op)` on the fresh instance → `restore(op, data_or_None, pristine)` → steps,
`check_state(op)` after the first → `take_state(op)` at an epoch → `restore(…)` at a reset. Where variables are stored in
versions, `take_rest(op)` and `versions_of(op)` stand in for `take_state`, `give_value` and `open_again` for `restore`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.errors import StateError
from holdfast.state.values import codec
from holdfast.state.variables import versions as deltas
from holdfast.state.variables.declarations import declared, give_payloads, lives_of, payloads_of
from holdfast.state.variables.working_values import UNSET

MADE = "what checkpoint() returned"


def initial_state(op: Any) -> bytes:
    """The state of a fresh instance, before `open()`. Not asked of operators with `reset_to_initial_state()`."""
    _check_handlers(op)
    return codec.encode(None) if _has(op, "reset_to_initial_state") else take_state(op)


def take_state(op: Any) -> bytes:
    """The operator's state now. Raises StateError naming the attribute that is not data."""
    return freeze_state(op).encoded()


def freeze_state(op: Any) -> codec.Frozen:
    """The same, to be encoded while the operator goes on."""
    if makes_its_state(op):
        return codec.freeze(_made(op, prepared(op)), path=MADE)
    return codec.freeze_attributes({**public_attributes(op), **payloads_of(op)})


def makes_its_state(op: Any) -> bool:
    """Whether it has `checkpoint()` or `prepare_to_checkpoint()`."""
    return _has(op, "checkpoint") or _has(op, "prepare_to_checkpoint")


def is_prepared(op: Any) -> bool:
    """Whether its state may be encoded while it goes on: what `prepared` gave no longer changes."""
    return _has(op, "prepare_to_checkpoint")


def prepared(op: Any) -> Any:
    """The first, short part of a checkpoint of an operator that makes its state itself."""
    return op.prepare_to_checkpoint() if _has(op, "prepare_to_checkpoint") else op.checkpoint()


def encoded(op: Any, value: Any) -> bytes:
    """The second part: what `prepared` gave, as bytes."""
    return codec.encode(_made(op, value), path=MADE)


def _made(op: Any, value: Any) -> Any:
    both = _has(op, "prepare_to_checkpoint") and _has(op, "checkpoint")
    return op.checkpoint(value) if both else value


def check_state(op: Any) -> None:
    """Prove that the state comes back unchanged: encode, decode, compare. For the first step; it doubles the cost."""
    if makes_its_state(op):
        codec.check_round_trip(_made(op, prepared(op)), MADE)
        return
    for name, value in {**public_attributes(op), **payloads_of(op)}.items():
        codec.check_round_trip(value, f"attribute {name!r}")


def is_incremental(op: Any) -> bool:
    """Whether the operator has variables that can be stored in versions (versions.py). Not if it makes its state itself."""
    return not makes_its_state(op) and any(map(deltas.is_incremental, declared(type(op)).values()))


def versions_of(op: Any) -> dict[str, deltas.Versions]:
    """The variables that are stored in versions; good until variables are given to the operator again."""
    lives = lives_of(op)
    return {
        name: deltas.versions_of(variable, lives[name])
        for name, variable in declared(type(op)).items()
        if deltas.is_incremental(variable)
    }


def take_rest(op: Any) -> bytes:
    """The operator's state now, without what is stored in versions."""
    variables = declared(type(op))
    lives = lives_of(op)
    small = {name: lives[name].held() for name, each in variables.items() if not deltas.is_incremental(each)}
    kept = {name: held for name, held in small.items() if held is not UNSET}
    return codec.encode_attributes({**public_attributes(op), **kept})


def give_state(op: Any, data: bytes) -> None:
    """Put a stored state into the operator, replacing the one it has."""
    give_value(op, codec.decode(data))


def give_value(op: Any, value: Any) -> None:
    """The same of a state that is decoded already."""
    if _has(op, "reset"):
        op.reset(value)
        return
    if type(value) is not dict or not all(type(name) is str for name in value):
        raise StateError(
            f"the stored state of {type(op).__qualname__} was made by checkpoint(), and it has no reset().",
            cure="Keep the pair checkpoint()/reset(), or start from an empty store.",
        )
    _set_attributes(op, value)


def to_initial(op: Any, pristine: bytes) -> None:
    """Back to the initial state: by `reset_to_initial_state()` if there is one, else from `pristine`."""
    if _has(op, "reset_to_initial_state"):
        op.reset_to_initial_state()
    else:
        give_state(op, pristine)


def restore(op: Any, data: bytes | None, pristine: bytes) -> None:
    """A whole restore in order: the stored state (None: the initial one), then `open()`."""
    if data is None:
        to_initial(op, pristine)
    else:
        give_state(op, data)
    open_again(op)


def open_again(op: Any) -> None:
    """The operator has another state now: it may rebuild what is not state."""
    if _has(op, "open"):
        op.open()


def public_attributes(op: Any) -> dict[str, Any]:
    """Instance attributes and filled slots whose names do not start with "_"."""
    found = {name: getattr(op, name) for name in _public_slots(op) if hasattr(op, name)}
    found.update(
        (name, value) for name, value in getattr(op, "__dict__", {}).items() if not name.startswith("_")
    )
    return found


def fresh_attributes(op: Any, pristine: bytes) -> dict[str, Any] | None:
    """The plain attributes of a fresh instance, of which `pristine` is the state; None if it makes its state itself."""
    if makes_its_state(op) or _has(op, "reset_to_initial_state"):
        return None
    variables = declared(type(op))
    return {name: value for name, value in codec.decode(pristine).items() if name not in variables}


def _set_attributes(op: Any, stored: dict[str, Any]) -> None:
    if variables := declared(type(op)):
        give_payloads(op, {name: value for name, value in stored.items() if name in variables})
        stored = {name: value for name, value in stored.items() if name not in variables}
    for name in public_attributes(op):
        if name not in stored:
            delattr(op, name)
    for name, value in stored.items():
        try:
            setattr(op, name, value)
        except AttributeError as error:
            raise StateError(
                f"the stored attribute {name!r} cannot be set on {type(op).__qualname__}: {error}.",
                cure="Keep the attribute, or implement reset().",
            ) from error


def _public_slots(op: Any) -> Iterator[str]:
    for cls in type(op).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        yield from (
            name for name in ((slots,) if isinstance(slots, str) else slots) if not name.startswith("_")
        )


def _check_handlers(op: Any) -> None:
    if makes_its_state(op) != _has(op, "reset"):
        there, missing = ("checkpoint", "reset") if makes_its_state(op) else ("reset", "checkpoint")
        raise StateError(
            f"{type(op).__qualname__} has {there}() but no {missing}().",
            cure="The two belong together: what checkpoint() returns is what reset() gets.",
        )


def _has(op: Any, method: str) -> bool:
    return callable(getattr(type(op), method, None))
