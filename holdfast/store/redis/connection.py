"""The connection to a Redis server: commands out, replies in, and one place where its errors become ours.

The client library is used for its connections only. Its pipelines report a connection that broke during a watched
transaction like a lost race; here the two are different: after `Unreachable` nobody knows what the server did.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast.errors import ConfigError, HoldfastError, NoSpaceError, StoreError
from holdfast.store import sealed_file
from holdfast.store.redis.url import Address

Command = tuple[str | bytes | int, ...]
T = TypeVar("T")

_WAIT_MAX_S = 1.0
_FIRST_WAIT_S = 0.02


class Unreachable(StoreError):
    """The server did not answer: what it did with the last command is not known."""


class Line:
    """One connection, held for a few exchanges."""

    def __init__(self, link: Link, connection: Any) -> None:
        self._link = link
        self._connection = connection

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands at once and read every reply. The first error among them is raised."""
        if not self._connection.is_connected:
            # The client would connect anew by itself, and what was watched would not be watched any more.
            raise self._link.unreachable("the connection was closed")
        replies: list[Any] = []
        try:
            self._connection.send_packed_command(self._connection.pack_commands(commands))
            for _ in commands:
                try:
                    replies.append(self._connection.read_response())
                except redis.ResponseError as error:
                    replies.append(error)
        except (redis.RedisError, OSError) as error:
            raise self._link.translated(error) from error
        for reply in replies:
            for part in reply if isinstance(reply, list) else [reply]:
                if isinstance(part, Exception):
                    raise self._link.translated(part) from part
        return replies


class Link:
    """A pool of connections to one server, for any number of threads; made anew in a forked process."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._pool = _pool(address)

    @contextmanager
    def line(self) -> Iterator[Line]:
        """A connection. After any error it is closed, so that neither watches nor late replies stay behind."""
        try:
            connection = self._pool.get_connection()
        except (redis.RedisError, OSError) as error:
            raise self.translated(error) from error
        try:
            yield Line(self, connection)
        except BaseException:
            connection.disconnect()
            raise
        finally:
            self._pool.release(connection)

    def ask(self, *commands: Command) -> list[Any]:
        """Replies to commands that only read, all of one moment. Asked again while the server is away."""
        if len(commands) == 1:
            return self.patiently(lambda: self._once(commands))
        # Watched rather than queued: a server without memory queues nothing, and must still be read.
        watch: Command = ("WATCH", *(key for command in commands for key in _keys(command)))
        asked = [watch, *commands, ("MULTI",), ("EXEC",)]
        while True:
            _, *replies, _, undisturbed = self.patiently(lambda: self._once(asked))
            if undisturbed is not None:
                return replies

    def _once(self, commands: Sequence[Command]) -> list[Any]:
        with self.line() as line:
            return line.exchange(commands)

    def patiently(self, work: Callable[[], T]) -> T:
        """Do `work` again while the server cannot be reached, up to the patience of the address."""
        patience = Patience(self.address.patience_s)
        while True:
            try:
                return work()
            except Unreachable as error:
                patience.wait(error)

    def close(self) -> None:
        self._pool.disconnect()

    def unreachable(self, why: str) -> Unreachable:
        return Unreachable(
            f"{self.address.url} cannot be reached: {self.address.server.mask(why)}.",
            cure="Start the server or mend the network, then run again: nothing published is lost.",
        )

    def translated(self, error: Exception) -> HoldfastError:
        """Our error for one of the client's. Its text is kept, a password in it is not."""
        place, text = self.address.url, self.address.server.mask(str(error)).rstrip(".")
        match error:
            case redis.AuthenticationError() | redis.exceptions.AuthorizationError():
                return ConfigError(
                    f"{place} refuses user or password: {text}.",
                    cure="Check both; the password may also be set in HOLDFAST_REDIS_PASSWORD.",
                )
            case redis.exceptions.NoPermissionError():
                return ConfigError(
                    f"{place} does not allow this user a command holdfast needs: {text}.",
                    cure="docs/formats/store-redis.md lists the commands.",
                )
            case redis.exceptions.MovedError() | redis.exceptions.AskError():
                return ConfigError(
                    f"{place} is a node of a cluster and keeps this store elsewhere: {text}.",
                    cure="Name the node that has the slot.",
                )
            case redis.exceptions.OutOfMemoryError():
                return _no_space(place, text)
            case redis.exceptions.ReadOnlyError():
                return StoreError(f"{place} is a read-only replica.", cure="Name the primary server.")
            case redis.ConnectionError() | redis.TimeoutError() | OSError():
                return self.unreachable(text)
        if text.startswith("MISCONF") and "space" in text:
            return _no_space(place, text)
        if text.startswith("WRONGTYPE"):
            return sealed_file.damaged(place, f"holds a value of another kind than was written ({text})")
        return StoreError(f"{place} refused a command: {text}.", cure="Look into the server's log.")


class Patience:
    """Waits longer and longer, and not for ever."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._next = _FIRST_WAIT_S

    def wait(self, error: Unreachable) -> None:
        """Sleep before the next try, or raise the error when it is time to give up."""
        if time.monotonic() + self._next > self._end:
            raise error
        time.sleep(self._next)
        self._next = min(2 * self._next, _WAIT_MAX_S)


def _keys(command: Command) -> tuple[str | bytes | int, ...]:
    return command[1:] if command[0] in ("EXISTS", "MGET") else command[1:2]


def _no_space(place: str, text: str) -> NoSpaceError:
    return NoSpaceError(
        f"no space left in {place}: {text}.",
        cure="Give the server more memory or disk; the run goes on by itself from the last published epoch.",
    )


def _pool(address: Address) -> redis.ConnectionPool:
    server = address.server
    settings: dict[str, Any] = {
        "db": server.db,
        "username": server.user,
        "password": server.password,
        "socket_timeout": address.timeout_s,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "client_name": "holdfast",
    }
    if server.socket:
        settings |= {"connection_class": redis.UnixDomainSocketConnection, "path": server.socket}
        return redis.ConnectionPool(**settings)
    settings |= {
        "host": server.host,
        "port": server.port,
        "socket_connect_timeout": min(5.0, address.timeout_s),
    }
    if server.tls:
        settings |= {"connection_class": redis.SSLConnection, "ssl_ca_certs": server.ca or None}
    return redis.ConnectionPool(**settings)
