"""From a URL to a place in an object store, by way of fsspec: s3, gs, az, memory, and others it knows.

    s3://BUCKET/PATH[?endpoint=URL]     gs://BUCKET/PATH     az://CONTAINER/PATH     memory://NAME
    objects+PROTOCOL://…                any other file system of fsspec, e.g. objects+file:///DIRECTORY

Options: `exclusive=no` (accept a file system that cannot create an object exclusively), `lease` (seconds a silent owner
counts as alive), `endpoint` (of an S3-compatible server). Credentials come from where the protocol's own library
looks for them (environment, profile, role); in a URL they are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

import fsspec

from holdfast.errors import ConfigError

PREFIX = "objects+"
EXCLUSIVE = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"})
"""Protocols whose servers create an object only if it is not there, as one action (conditional put)."""
OURS = frozenset({"file", "local", "memory"})
"""File systems for which this package knows how to do that itself."""
_OPTIONS = ("exclusive", "lease", "endpoint")
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
_SHAPE = "Write s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or objects+PROTOCOL://PATH."


@dataclass(frozen=True)
class Place:
    """Where a store is. Picklable: executors open it too."""

    protocol: str
    path: str
    endpoint: str = ""
    exclusive: bool = True
    lease_s: float = 20.0

    @property
    def url(self) -> str:
        """For people: a store without exclusive creation says so."""
        short = self.protocol in EXCLUSIVE or self.protocol == "memory"
        label = "" if self.exclusive else "?exclusive=no"
        return f"{'' if short else PREFIX}{self.protocol}://{self.path}{label}"

    def connect(self) -> Any:
        """The file system. ConfigError if its package is missing, or it cannot keep two owners apart."""
        if self.exclusive and self.protocol not in EXCLUSIVE | OURS:
            raise ConfigError(
                f"the file system {self.protocol!r} is not known to create an object only if it is not there;"
                " without that two runs could both write.",
                cure="Use s3, gs, az or redis, or add exclusive=no to the URL and start one run only.",
            )
        settings: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
        if self.endpoint:
            settings["client_kwargs"] = {"endpoint_url": self.endpoint}
        try:
            return fsspec.filesystem(self.protocol, **settings)
        except ImportError as error:
            package = _PACKAGES.get(self.protocol, "the package fsspec names")
            raise ConfigError(
                f"a store on {self.protocol}:// needs {package}: {error}.", cure=f"pip install {package}"
            ) from error
        except ValueError as error:
            raise ConfigError(f"there is no file system called {self.protocol!r}.", cure=_SHAPE) from error


def parse(url: str) -> Place:
    """The place of a URL. ConfigError for anything that is not one; its text never holds the URL."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        _refuse("the URL of an object store cannot be read")
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        _refuse(f"the URL of an object store has an option {unknown[0][:40]!r} nobody knows")
    if "@" in parts.netloc or parts.fragment:
        _refuse("the URL of an object store holds a user, a password or a '#'")
    path = (parts.netloc + unquote(parts.path)).rstrip("/")
    if not path or ".." in path.split("/"):
        _refuse("the URL of an object store names no place")
    if options.get("exclusive", "yes") not in ("yes", "no"):
        _refuse("the option exclusive is neither yes nor no")
    return Place(
        protocol=parts.scheme.removeprefix(PREFIX),
        path=path,
        endpoint=options.get("endpoint", ""),
        exclusive=options.get("exclusive", "yes") == "yes",
        lease_s=_seconds(options.get("lease", "20")),
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 3600:
        _refuse("the option lease is not a number of seconds up to 3600")
    return value


def _refuse(what: str) -> NoReturn:
    raise ConfigError(f"{what}.", cure=_SHAPE) from None
