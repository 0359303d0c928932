"""Does this Redis server keep what it is given? Asked before a run trusts it.

A durable server has `appendonly yes` and evicts nothing. With `appendfsync always` each answer comes after the disk;
with `everysec` the store asks for the disk's confirmation (WAITAOF, Redis 7.2) where it counts. Everything else is
refused, unless the URL says `durable=no`: then the store says so wherever it is shown.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from holdfast.errors import ConfigError, StoreError
from holdfast.store.redis.connection import Link, Unreachable

logger = logging.getLogger("holdfast")

_WANTED = ("appendonly", "appendfsync", "maxmemory-policy")
_WAITAOF_SINCE = (7, 2)


@dataclass(frozen=True)
class Settings:
    """What the server says about itself. None: it does not say."""

    version: tuple[int, ...]
    appendonly: str | None
    appendfsync: str | None
    policy: str | None

    @property
    def can_confirm(self) -> bool:
        return self.version >= _WAITAOF_SINCE


def read(link: Link) -> Settings:
    """Ask the server. Where CONFIG is forbidden, INFO tells some of it."""
    (text,) = link.ask(("INFO",))
    info = dict(line.split(":", 1) for line in text.decode().splitlines() if ":" in line)
    found: dict[str, str] = {}
    try:
        (reply,) = link.ask(("CONFIG", "GET", "append*"))
        (more,) = link.ask(("CONFIG", "GET", "maxmemory-policy"))
        words = [word.decode() for word in (*reply, *more)]
        found = {name: value for name, value in zip(words[::2], words[1::2], strict=True) if name in _WANTED}
    except Unreachable:
        raise
    except (ConfigError, StoreError):
        pass  # forbidden or renamed, as hosted servers do
    aof = {"1": "yes", "0": "no"}.get(info.get("aof_enabled", ""))
    return Settings(
        version=tuple(int(part) for part in info["redis_version"].split(".")[:2]),
        appendonly=found.get("appendonly", aof),
        appendfsync=found.get("appendfsync"),
        policy=found.get("maxmemory-policy", info.get("maxmemory_policy")),
    )


def complaint(settings: Settings) -> str | None:
    """What is wrong with a server's settings, as the end of a sentence. None: it keeps what it is given."""
    if settings.appendonly != "yes":
        return "keeps data in memory only (appendonly is not yes)"
    if settings.policy != "noeviction":
        return (
            f"may throw data away when memory is short (maxmemory-policy is {settings.policy or 'unknown'})"
        )
    if settings.appendfsync == "always":
        return None
    if settings.appendfsync == "no" or not settings.can_confirm:
        how = settings.appendfsync or "unknown"
        return (
            f"may lose the last second of epochs (appendfsync is {how}, and it cannot confirm single changes)"
        )
    return None


def check(link: Link) -> bool:
    """Refuse an unsafe server. Returns whether changes need the disk's confirmation."""
    settings = read(link)
    wrong = complaint(settings)
    if wrong is None:
        return settings.appendfsync != "always"
    if link.address.durable:
        raise ConfigError(
            f"the server of {link.address.url} {wrong}.",
            cure="Set appendonly yes, appendfsync always and maxmemory-policy noeviction,"
            " or add durable=no to the URL and accept the loss.",
        )
    logger.warning("the store %s is not durable: its server %s", link.address.url, wrong)
    return False
