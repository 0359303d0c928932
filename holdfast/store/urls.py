"""From what a user writes to a store: `PATH`, `file:PATH`, `sqlite:PATH`, `redis://…`, `s3://…`, `memory:NAME`."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.errors import ConfigError, StoreError
from holdfast.store.base import Store
from holdfast.store.files.file_store import FileStore

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_CURE = "Use a path, file:PATH, sqlite:PATH, redis://HOST:PORT/DB?name=NAME, s3://BUCKET/PATH or memory:NAME."
_OBJECTS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
_REDIS = ("redis", "rediss", "unix")


def open_store(where: str | Path | Store) -> Store:
    """The store a path, URL or store object means. Nothing is created or read before its `open`."""
    if isinstance(where, Store):
        return where
    if isinstance(where, Path):
        return FileStore(where)
    match = _SCHEME.fullmatch(where)
    scheme, rest = (match[1].lower(), match[2]) if match else ("file", where)
    if "\0" in where or not rest:
        raise ConfigError("a store needs a place, but the path or name is empty or not a text.", cure=_CURE)
    try:
        if is_objects(scheme, rest):
            from holdfast.store.objects.object_store import ObjectStore

            return ObjectStore(where)
        if scheme in _REDIS:
            # Only where it is used: the client takes a while to load.
            from holdfast.store.redis.several_servers import open_redis

            return open_redis(where)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"this kind of store needs the package {error.name!r}.",
            cure="pip install 'holdfast[redis]'" if error.name == "redis" else f"pip install {error.name}",
        ) from error
    if scheme == "memory":
        return _in_memory(rest)
    if scheme == "file":
        return FileStore(_local_path(scheme, rest))
    if scheme == "sqlite":
        from holdfast.store.sqlite.sqlite_store import SqliteStore

        return SqliteStore(_local_path(scheme, rest))
    # The rest of an unknown URL is never printed: it may hold a password.
    raise ConfigError(f"there is no kind of store called {scheme!r}.", cure=_CURE)


def _in_memory(name: str) -> Store:
    from holdfast.store.memory import MemoryStore

    try:
        return MemoryStore(name)
    except StoreError as error:
        raise ConfigError(error.message, cure=error.cure) from error


def is_objects(scheme: str, rest: str) -> bool:
    """`memory:NAME` is a store of this process, `memory://NAME` an object store in memory."""
    return scheme in _OBJECTS or scheme.startswith("objects+") or (scheme == "memory" and rest[:2] == "//")


def _local_path(scheme: str, rest: str) -> str:
    """The path of a URL: `file:a/b`, `file:/a/b` and `file:///a/b` are accepted, another host is not."""
    if not rest.startswith("//"):
        return rest
    host, slash, path = rest[2:].partition("/")
    if host not in ("", "localhost") or not slash:
        raise ConfigError(f"a {scheme}: URL cannot name a host.", cure=f"Write {scheme}:/PATH. {_CURE}")
    return "/" + path
