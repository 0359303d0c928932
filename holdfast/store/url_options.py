"""The URL of a store on a network: split, its options checked. What is refused is never printed: it may hold a
password."""

from __future__ import annotations

from collections.abc import Collection
from typing import NoReturn
from urllib.parse import parse_qsl, urlsplit

from holdfast.errors import ConfigError

_SECONDS_MAX = 3600.0


class Options:
    """What stands behind the '?' of a URL. Only known options are accepted, each as what it is."""

    def __init__(self, what: str, url: str, known: Collection[str], shape: str) -> None:
        """`what` names the kind of URL in errors; `shape` is the cure."""
        self._what = what
        self._shape = shape
        try:
            self.parts = urlsplit(url)
            query = self.parts.query
            self._given = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
        except ValueError:
            self.refuse("cannot be read")
        unknown = sorted(set(self._given) - set(known))
        if unknown:
            self.refuse(f"has an option {unknown[0][:40]!r} nobody knows")

    def text(self, name: str, default: str = "") -> str:
        return self._given.get(name, default)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._given.get(name, "yes" if default else "no")
        if value not in ("yes", "no"):
            self.refuse(f"has an option {name} that is neither yes nor no")
        return value == "yes"

    def seconds(self, name: str, default: float) -> float:
        try:
            value = float(self._given.get(name, default))
        except ValueError:
            value = 0.0
        if not 0 < value <= _SECONDS_MAX:
            self.refuse(f"has an option {name} that is not a number of seconds up to {_SECONDS_MAX:.0f}")
        return value

    def refuse(self, why: str) -> NoReturn:
        """Raise the error for a URL that cannot be used."""
        raise ConfigError(f"{self._what} {why}.", cure=self._shape) from None
