"""Composites: a Python function that adds a part of a graph, and can be used several times.

    @hf.composite
    def cleaned(orders, least):
        return orders.filter(f"cents > {least}", name="large").dedup("id", name="once")

    web = cleaned(web_orders, 10, name="web")          # operators web.large, web.once
    shop = cleaned(shop_orders, 0, name="shop")        # operators shop.large, shop.once

With `@hf.composite(consistent=dict(period="5 seconds"))` the composite begins a region, as `.consistent(…)` does on a stream:
at those of its operators that read nothing, or only streams from outside of it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar, overload

from holdfast.errors import TopologyError
from holdfast.language.annotations import region_settings
from holdfast.language.builder import Builder
from holdfast.language.graph import RegionSettings
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Composite(Protocol[R_co]):
    """The function with one more argument: the name of the call."""

    def __call__(self, *args: Any, name: str | None = None, **more: Any) -> R_co: ...


@overload
def composite(function: Callable[..., R], /) -> Composite[R]: ...
@overload
def composite(
    *, consistent: Mapping[str, Any] | None = None
) -> Callable[[Callable[..., R]], Composite[R]]: ...
def composite(function: Any = None, /, *, consistent: Mapping[str, Any] | None = None) -> Any:
    """Let a function that takes streams, or a topology, and adds operators be called several times: the names of what it
    adds begin with the name of the call (`name=…`, else the function's) and a dot. `consistent`: the arguments of
    `.consistent(…)`, if it begins a region."""
    settings = None if consistent is None else _settings(consistent)
    if function is None:
        return lambda given: _composite(given, settings)
    return _composite(function, settings)


def _settings(consistent: Any) -> RegionSettings:
    if not isinstance(consistent, Mapping):
        raise TopologyError(
            f"consistent={consistent!r} of a composite is no set of settings.",
            cure="Write consistent=dict(period='5 seconds').",
        )
    known = inspect.signature(region_settings).parameters
    unknown = [key for key in consistent if key not in known]
    if unknown:
        raise TopologyError(
            f"consistent= of a composite has no setting {unknown[0]!r}.",
            cure=f"There are {', '.join(known)}.",
        )
    return region_settings(**consistent)


def _composite(function: Any, settings: RegionSettings | None) -> Any:
    if not callable(function):
        raise TopologyError(f"{function!r} is not a function.", cure="Write @hf.composite before a def.")
    passes_name = "name" in inspect.signature(function).parameters
    called = getattr(function, "__name__", "composite").strip("_<>") or "composite"

    @functools.wraps(function)
    def call(*args: Any, name: str | None = None, **more: Any) -> Any:
        builder = _builder_of((*args, *more.values()), called)
        with builder.within(name, called, settings):
            return function(*args, **more, **({"name": name} if passes_name else {}))

    return call


def _builder_of(given: Iterable[Any], called: str) -> Builder:
    """Of the topology that the arguments belong to."""
    for each in given:
        if isinstance(each, Topology | Stream):
            return each._builder
        if isinstance(each, list | tuple | dict):
            try:
                return _builder_of(each.values() if isinstance(each, dict) else each, called)
            except TopologyError:
                continue
    raise TopologyError(
        f"The composite {called!r} was given neither a stream nor a topology.",
        cure="Pass what it should be connected to, or the topology that it adds sources to.",
    )
