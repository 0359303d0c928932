"""From a Redis URL to an address, and what of it people may see.

    redis://[USER:PASSWORD@]HOST[:PORT]/[DB]?name=NAME      rediss:// for TLS
    redis://[USER:PASSWORD@]HOST:PORT,HOST:PORT,…/[DB]?name=NAME      one store over several servers (several_servers.py)
    unix:///PATH/TO/SOCKET?db=DB&name=NAME

Options: `name` (which store of the server, default "main"), `durable=no`, `insecure=yes`, `timeout` (seconds of one
exchange), `patience` (seconds an unreachable server is waited for), `lease` (seconds a silent owner counts as alive),
`ca` (file of certificates). A password may come from HOLDFAST_REDIS_PASSWORD instead. Anything unknown is refused.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field, replace
from urllib.parse import unquote, urlsplit

from holdfast.errors import ConfigError, StoreError
from holdfast.store.names import check_name
from holdfast.store.url_options import Options

PASSWORD_VARIABLE = "HOLDFAST_REDIS_PASSWORD"
PORT = 6379
_OPTIONS = ("name", "db", "durable", "insecure", "timeout", "patience", "lease", "ca")
_SHAPE = "Write redis://[USER:PASSWORD@]HOST:PORT/DB?name=NAME, rediss:// or unix:///SOCKET?name=NAME."


@dataclass(frozen=True)
class Server:
    """Where a server listens, and how one logs in. Never printed with its password."""

    host: str
    port: int
    db: int
    socket: str = ""
    tls: bool = False
    ca: str = ""
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def url(self, query: str, others: tuple[Server, ...] = ()) -> str:
        """For people: without the password."""
        if self.socket:
            return f"unix://{self.socket}?db={self.db}&{query}"
        who = "" if self.user is None and self.password is None else f"{self.user or ''}:***@"
        hosts = ",".join(each.listens_at for each in (self, *others))
        return f"redis{'s' if self.tls else ''}://{who}{hosts}/{self.db}?{query}"

    @property
    def listens_at(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def mask(self, text: str) -> str:
        """A text of somebody else's without the password."""
        return text.replace(self.password, "***") if self.password else text


@dataclass(frozen=True)
class Address:
    """Where a store is, and how it is treated. Picklable: executors connect with it."""

    server: Server
    name: str
    durable: bool = True
    timeout_s: float = 30.0
    patience_s: float = 15.0
    lease_s: float = 20.0
    others: tuple[Server, ...] = ()
    """Further servers that the store is spread over."""

    @property
    def url(self) -> str:
        """For people: a store that is not durable says so."""
        return self.server.url(f"name={self.name}{'' if self.durable else '&durable=no'}", self.others)

    def each(self) -> list[Address]:
        """The address of every server, alone."""
        return [replace(self, server=server, others=()) for server in (self.server, *self.others)]


def parse(url: str) -> Address:
    """The address of a URL. ConfigError for anything that is not one; its text never holds the URL."""
    options = Options("a Redis URL", url, _OPTIONS, _SHAPE)
    if options.parts.fragment:
        options.refuse("has a part behind a '#' (write %23 in a password)")
    try:
        name = check_name("store", options.text("name", "main"))
    except StoreError as error:
        raise ConfigError(error.message, cure=error.cure) from None
    servers = _servers(options)
    if not options.flag("insecure", default=False):
        for each in servers:
            _refuse_open(each)
    return Address(
        server=servers[0],
        others=tuple(servers[1:]),
        name=name,
        durable=options.flag("durable", default=True),
        timeout_s=options.seconds("timeout", Address.timeout_s),
        patience_s=options.seconds("patience", Address.patience_s),
        lease_s=options.seconds("lease", Address.lease_s),
    )


def _servers(options: Options) -> list[Server]:
    hosts = options.parts.netloc.rpartition("@")[2].split(",")
    if options.parts.scheme == "unix" or len(hosts) == 1:
        return [_server(options)]
    if len(set(hosts)) < len(hosts) or not all(hosts):
        options.refuse("names a server twice, or none between two commas")
    return [_server(options, host) for host in hosts]


def _server(options: Options, host: str | None = None) -> Server:
    """The server of a URL; `host`: which one, if it names several."""
    parts, path = options.parts, unquote(options.parts.path)
    is_unix = parts.scheme == "unix"
    if is_unix and not path.startswith("/"):
        options.refuse("names no socket")
    database = options.text("db", "0") if is_unix or path in ("", "/") else path[1:]
    if not database.isdecimal():
        options.refuse("names a database that is not a number")
    try:
        at = parts if host is None else urlsplit(f"//{host}")
        port = at.port or PORT
    except ValueError:
        options.refuse("names a port that is not one")
    return Server(
        host="" if is_unix else at.hostname or "localhost",
        port=port,
        db=int(database),
        socket=path if is_unix else "",
        tls=parts.scheme == "rediss",
        ca=options.text("ca"),
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else os.environ.get(PASSWORD_VARIABLE) or None,
    )


def _refuse_open(server: Server) -> None:
    """State is user data: over a network it travels encrypted, to a server that asks for a password."""
    if server.socket or _is_loopback(server.host):
        return
    if not server.tls or server.password is None:
        raise ConfigError(
            f"the Redis server on {server.host} is on another machine: it needs rediss:// and a password.",
            cure="Use both, or add insecure=yes to the URL if the network is your own.",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
