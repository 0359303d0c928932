"""From a URL to a place in an object store, by way of fsspec: s3, gs, az, memory, and others it knows.

    s3://BUCKET/PATH[?endpoint=URL]     gs://BUCKET/PATH     az://CONTAINER/PATH     memory://NAME
    objects+PROTOCOL://…                any other file system of fsspec, e.g. objects+file:///DIRECTORY

Options: `exclusive=no` (accept a file system that cannot create an object exclusively), `lease` (seconds a silent owner
counts as alive; three times as many while its run is idle), `commands` (seconds until an idle run looks for them, at
most), `endpoint` (of an S3-compatible server). Credentials come from where the protocol's own library looks for them
(environment, profile, role); in a URL they are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import fsspec

from holdfast.errors import ConfigError
from holdfast.store.url_options import Options

PREFIX = "objects+"
EXCLUSIVE = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"})
"""Protocols whose servers create an object only if it is not there, as one action (conditional put)."""
OURS = frozenset({"file", "local", "memory"})
"""File systems for which this package knows how to do that itself."""
_OPTIONS = ("exclusive", "lease", "commands", "endpoint")
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
    commands_s: float = 10.0

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
    options = Options("the URL of an object store", url, _OPTIONS, _SHAPE)
    parts = options.parts
    if "@" in parts.netloc or parts.fragment:
        options.refuse("holds a user, a password or a '#'")
    path = (parts.netloc + unquote(parts.path)).rstrip("/")
    if not path or ".." in path.split("/"):
        options.refuse("names no place")
    return Place(
        protocol=parts.scheme.removeprefix(PREFIX),
        path=path,
        endpoint=options.text("endpoint"),
        exclusive=options.flag("exclusive", default=True),
        lease_s=options.seconds("lease", Place.lease_s),
        commands_s=options.seconds("commands", Place.commands_s),
    )
