"""From a Redis URL to an address, and what of it people may see.

    redis://[USER:PASSWORD@]HOST[:PORT]/[DB]?name=NAME      rediss:// for TLS
    unix:///PATH/TO/SOCKET?db=DB&name=NAME

Options: `name` (which store of the server, default "main"), `durable=no`, `insecure=yes`, `timeout` (seconds of one
exchange), `patience` (seconds an unreachable server is waited for), `lease` (seconds a silent owner counts as alive),
`ca` (file of certificates). A password may come from HOLDFAST_REDIS_PASSWORD instead. Anything unknown is refused.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from holdfast.errors import ConfigError, StoreError
from holdfast.store.names import check_name

PASSWORD_VARIABLE = "HOLDFAST_REDIS_PASSWORD"
PORT = 6379
_OPTIONS = ("name", "db", "durable", "insecure", "timeout", "patience", "lease", "ca")
_SHAPE = "Write redis://[USER:PASSWORD@]HOST:PORT/DB?name=NAME, rediss:// or unix:///SOCKET?name=NAME."


@dataclass(frozen=True)
class Address:
    """Where a store is. Picklable: executors connect with it. Never printed with its password."""

    host: str
    port: int
    db: int
    name: str
    socket: str = ""
    tls: bool = False
    ca: str = ""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    durable: bool = True
    insecure: bool = False
    timeout_s: float = 30.0
    patience_s: float = 15.0
    lease_s: float = 20.0

    @property
    def url(self) -> str:
        """For people: the password is left out, a store that is not durable says so."""
        label = "" if self.durable else "&durable=no"
        if self.socket:
            return f"unix://{self.socket}?db={self.db}&name={self.name}{label}"
        who = "" if self.user is None and self.password is None else f"{self.user or ''}:***@"
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "rediss" if self.tls else "redis"
        return f"{scheme}://{who}{host}:{self.port}/{self.db}?name={self.name}{label}"

    def mask(self, text: str) -> str:
        """A text of somebody else's without the password."""
        return text.replace(self.password, "***") if self.password else text


def parse(url: str) -> Address:
    """The address of a URL. ConfigError for anything that is not one; its text never holds the URL."""
    try:
        parts = urlsplit(url)
        port = parts.port or PORT
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        _refuse("a Redis URL cannot be read")
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        _refuse(f"a Redis URL has an option {unknown[0][:40]!r} nobody knows")
    if parts.fragment:
        _refuse("a Redis URL has a part behind a '#' (write %23 in a password)")
    address = _address(parts, port, options)
    _refuse_open(address)
    return address


def _address(parts: SplitResult, port: int, options: dict[str, str]) -> Address:
    is_unix = parts.scheme == "unix"
    path = unquote(parts.path)
    if is_unix and not path.startswith("/"):
        _refuse("a Redis URL names no socket")
    try:
        name = check_name("store", options.get("name", "main"))
    except StoreError as error:
        raise ConfigError(error.message, cure=error.cure) from None
    database = options.get("db", "0") if is_unix or path in ("", "/") else path[1:]
    if not database.isdecimal():
        _refuse("a Redis URL names a database that is not a number")
    return Address(
        host="" if is_unix else parts.hostname or "localhost",
        port=port,
        db=int(database),
        name=name,
        socket=path if is_unix else "",
        tls=parts.scheme == "rediss",
        ca=options.get("ca", ""),
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else os.environ.get(PASSWORD_VARIABLE) or None,
        durable=_flag(options, "durable", default="yes") == "yes",
        insecure=_flag(options, "insecure", default="no") == "yes",
        timeout_s=_seconds(options, "timeout", Address.timeout_s),
        patience_s=_seconds(options, "patience", Address.patience_s),
        lease_s=_seconds(options, "lease", Address.lease_s),
    )


def _refuse_open(address: Address) -> None:
    """State is user data: over a network it travels encrypted, to a server that asks for a password."""
    if address.socket or address.insecure or _is_loopback(address.host):
        return
    if not address.tls or address.password is None:
        raise ConfigError(
            f"the Redis server on {address.host} is on another machine: it needs rediss:// and a password.",
            cure="Use both, or add insecure=yes to the URL if the network is your own.",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _flag(options: dict[str, str], name: str, *, default: str) -> str:
    value = options.get(name, default)
    if value not in ("yes", "no"):
        _refuse(f"the option {name} of a Redis URL is neither yes nor no")
    return value


def _seconds(options: dict[str, str], name: str, default: float) -> float:
    try:
        value = float(options.get(name, default))
    except ValueError:
        value = 0.0
    if not 0 < value <= 3600:
        _refuse(f"the option {name} of a Redis URL is not a number of seconds up to 3600")
    return value


def _refuse(what: str) -> NoReturn:
    raise ConfigError(f"{what}.", cure=_SHAPE) from None
