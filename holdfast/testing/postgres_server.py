"""A real PostgreSQL server of one's own, for tests and benchmarks: on a free loopback port, with its data in a directory of its own.

    with PostgresServer(directory) as server:
        sink = hf.DatabaseSink(server.url, "orders")

It is as durable as a server is by default, can be killed with all its processes and started again on the same data. As root it
runs as the user `postgres` or `nobody`, for the server refuses to run as root. It ends with the `with` block, by its process ids.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from holdfast.sinks.database.address import Address
from holdfast.sinks.database.postgres.connections import Connection, driver

MISSING = (
    "no initdb and postgres on PATH or in /usr/lib/postgresql (Debian, Ubuntu: apt-get install postgresql)"
)
PASSWORD = "s3cret/pass%word"
_QUOTED = "s3cret%2Fpass%25word"
_START_S = 60.0
_WATCH = """
import os, shutil, signal, sys
sys.stdin.buffer.read()  # it has an end when the other process has
try:
    os.killpg(int(sys.argv[1]), signal.SIGKILL)
finally:
    shutil.rmtree(sys.argv[2], ignore_errors=True)
"""


def program(name: str) -> str | None:
    """A program of the server. None: there is none on this machine."""
    elsewhere = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return shutil.which(name) or next(map(str, elsewhere), None)


def is_there() -> bool:
    return program("initdb") is not None and program("postgres") is not None


class PostgresServer:
    """One server and the directory it keeps its data in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PostgresServer:
        self._make()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return self.url_of("tester")

    def url_of(self, user: str, database: str = "postgres") -> str:
        return f"postgresql://{user}:{_QUOTED}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start on the data that is there; the port stays the same over restarts."""
        found = program("postgres")
        assert found is not None, MISSING
        for _ in range(5):
            port = self.port or _free_port()
            with open(self.directory / "log", "ab") as log:
                self._process = subprocess.Popen(
                    [found, "-D", str(self.directory / "data"), "-p", str(port), "-h", "127.0.0.1", "-k", ""],
                    **self._ran(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0,
                )  # fmt: skip
            self._watch()
            if self._answers(port):
                self.port = port
                return
            self.kill()
        raise AssertionError(f"the server did not start: {(self.directory / 'log').read_text()[-2000:]}")

    def kill(self) -> None:
        """SIGKILL to the server and all its processes, as a power cut without the disk's part."""
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.communicate()
            self._watcher = None
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._process.wait()
            self._process = None

    def _watch(self) -> None:
        """Let the server end with this process, however that ends: nobody else would end it."""
        assert self._process is not None
        self._watcher = subprocess.Popen(
            [sys.executable, "-S", "-c", _WATCH, str(self._process.pid), str(self.directory)],
            stdin=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def restart(self) -> None:
        self.kill()
        self.start()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What a reader sees."""
        with closing(Connection(Address.of(self.url))) as connection:
            return connection.rows(query)

    def run(self, *statements: str) -> None:
        with closing(Connection(Address.of(self.url))) as connection:
            for statement in statements:
                connection.execute(statement)

    def _make(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        secret = self.directory / "secret"
        secret.write_text(PASSWORD + "\n")
        if (user := _user()) is not None:
            for path in (self.directory, secret):
                os.chown(path, user.pw_uid, user.pw_gid)
        found = program("initdb")
        assert found is not None, MISSING
        arguments = [
            "-D",
            str(self.directory / "data"),
            "-A",
            "scram-sha-256",
            "-U",
            "tester",
            f"--pwfile={secret}",
        ]
        subprocess.run(
            [found, *arguments, "--no-sync", "-E", "UTF8", "--locale=C"],
            check=True,
            capture_output=True,
            **self._ran(),
        )

    def _ran(self) -> dict[str, Any]:
        user = _user()
        who = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        return {"cwd": self.directory, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}, **who}

    def _answers(self, port: int) -> bool:
        """True once the server takes queries. False: it ended."""
        assert self._process is not None
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                Connection(Address.of(f"postgresql://tester:{_QUOTED}@127.0.0.1:{port}/postgres")).close()
                return True
            except driver().Error:
                time.sleep(0.05)
        return False


def _user() -> pwd.struct_passwd | None:
    """Whom the server runs as; None: this user."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
