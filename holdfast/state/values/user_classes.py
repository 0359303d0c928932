"""Classes of the user that may be part of a state: dataclasses and Enums, by a registered name.

A stored dataclass is its name and its fields; it is rebuilt without running `__init__`. A field added later takes its
default; a stored field that the class no longer has is refused, because dropping it would lose data silently.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, TypeVar, overload

from holdfast.errors import StateError

C = TypeVar("C", bound=type)

_names: dict[type, str] = {}
_classes: dict[str, type] = {}


class _Register:
    """A decorator with or without a name, for one kind of class."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    @overload
    def __call__(self, cls: C, name: str | None = None) -> C: ...

    @overload
    def __call__(self, cls: None = None, name: str | None = None) -> _Named: ...

    def __call__(self, cls: C | None = None, name: str | None = None) -> C | _Named:
        return _Named(self._kind, name) if cls is None else _Named(self._kind, name)(cls)


@dataclasses.dataclass(frozen=True)
class _Named:
    kind: str
    name: str | None

    def __call__(self, cls: C) -> C:
        fits = dataclasses.is_dataclass(cls) if self.kind == "dataclass" else issubclass(cls, enum.Enum)
        if not fits or not isinstance(cls, type):
            raise StateError(
                f"{cls!r} is not a{'n' if self.kind == 'Enum' else ''} {self.kind}.",
                cure="Register it after decorating it.",
            )
        name = self.name or f"{cls.__module__}.{cls.__qualname__}"
        other = _classes.get(name)
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise StateError(f"the name {name!r} already belongs to {other!r}.", cure="Choose another name=.")
        _names[cls] = name
        _classes[name] = cls
        return cls


register_dataclass = _Register("dataclass")
"""`@register_dataclass`, `@register_dataclass(name="order")` or `register_dataclass(cls, name=None)`."""

register_enum = _Register("Enum")
"""The same for Enums: a member is stored by its name."""


def is_registered(kind: type) -> bool:
    return kind in _names


def enum_member(value: Any) -> tuple[str, str] | None:
    """(registered name, member name) of an Enum member; None if the value is a dataclass."""
    if not isinstance(value, enum.Enum):
        return None
    name = value.name
    if name is None or type(value).__members__.get(name) is not value:
        raise StateError(
            f"{value!r} is a combination of members without a name of its own.", cure="Store its parts."
        )
    return _names[type(value)], name


def dataclass_fields(value: Any, place: str) -> tuple[str, dict[str, Any]]:
    """(registered name, field → content) of a dataclass instance."""
    fields = [field.name for field in dataclasses.fields(value)]
    extra = sorted(set(getattr(value, "__dict__", ())) - set(fields))
    if extra:
        raise StateError(
            f"{place} has attributes that are not fields of {type(value).__qualname__}: {', '.join(extra)}.",
            cure="Declare them as fields.",
        )
    return _names[type(value)], {name: getattr(value, name) for name in fields if hasattr(value, name)}


def build_dataclass(name: str, stored: dict[str, Any]) -> Any:
    cls = _class_named(name)
    if not dataclasses.is_dataclass(cls):
        raise StateError(
            f"{name!r} is stored as a dataclass, but registered as something else.", cure="Rename one."
        )
    fields = {field.name: field for field in dataclasses.fields(cls)}
    unknown = [field for field in stored if field not in fields]
    if unknown:
        raise StateError(
            f"the stored {name} has a field {unknown[0]!r} that the class no longer has.",
            cure="Keep the field, or register the new class under another name.",
        )
    value = object.__new__(cls)
    for field in fields.values():
        content = stored[field.name] if field.name in stored else _default(field, name)
        object.__setattr__(value, field.name, content)
    return value


def _default(field: dataclasses.Field[Any], name: str) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    raise StateError(f"the stored {name} has no field {field.name!r}.", cure="Give the new field a default.")


def build_enum(name: str, member: str) -> Any:
    cls = _class_named(name)
    members: dict[str, Any] = getattr(cls, "__members__", {})
    if member not in members:
        raise StateError(f"the stored {name} {member!r} is not a member any more.", cure="Keep the member.")
    return members[member]


def _class_named(name: str) -> type:
    cls = _classes.get(name) if isinstance(name, str) else None
    if cls is None:
        raise StateError(
            f"the state holds a {name!r}, and no class is registered under that name.",
            cure="Import the module that registers it before the run starts.",
        )
    return cls


def registration(kind: type) -> tuple[str, str, type] | None:
    """(kind of class, registered name, class): what another process needs to register it as well."""
    if kind not in _names:
        return None
    return ("Enum" if issubclass(kind, enum.Enum) else "dataclass"), _names[kind], kind


def register_again(kind: str, name: str, cls: type) -> None:
    """Register a class that came from another process."""
    if _classes.get(name) is not cls:
        _Named(kind, name)(cls)
