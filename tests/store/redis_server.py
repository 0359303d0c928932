"""A real Redis server of one's own, for tests: on a free loopback port, with its data in a given directory.

    with RedisServer(tmp_path) as server:
        store = open_store(server.url("job"))

It keeps data as a durable server does (appendonly yes, appendfsync always) unless told otherwise, can be killed,
started again on the same data, or emptied. It ends with the `with` block, by its own process id.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

PROGRAMS = ("redis-server", "valkey-server")
MISSING = "no redis-server or valkey-server on PATH (Debian, Ubuntu: apt-get install redis-server)"
_START_S = 20.0


def program() -> str | None:
    """The server's program. None: there is none on this machine."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class RedisServer:
    """One server process, and the directory it keeps its data in."""

    def __init__(self, directory: Path, *, password: str = "", settings: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.password = password
        self.port = 0
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def url(self, name: str = "main", options: str = "") -> str:
        """The URL of a store on this server."""
        who = f":{self.password}@" if self.password else ""
        return f"redis://{who}127.0.0.1:{self.port}/0?name={name}{options}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server does not run"
        return self._process.pid

    def start(self) -> None:
        """Start on the data that is there; the port stays the same over restarts."""
        found = program()
        assert found is not None, MISSING
        self.directory.mkdir(parents=True, exist_ok=True)
        for _ in range(5):
            port = self.port or free_port()
            self._process = subprocess.Popen(
                [found, *self._arguments(port)],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            if self._answers(port):
                self.port = port
                return
            self.kill()
        raise AssertionError(f"the server did not start: {self.log()[-2000:]}")

    def kill(self) -> None:
        """SIGKILL, as a power cut without the disk's part."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """A clean end."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Kill and start again on the same data."""
        self.kill()
        self.start()

    def wipe(self) -> None:
        """Delete the data of a server that does not run."""
        assert self._process is None, "stop the server first"
        shutil.rmtree(self.directory / "appendonlydir", ignore_errors=True)
        for path in self.directory.glob("*.rdb"):
            path.unlink()

    def log(self) -> str:
        path = self.directory / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _arguments(self, port: int) -> list[str]:
        arguments = [
            "--port", str(port), "--bind", "127.0.0.1", "--dir", str(self.directory), "--daemonize", "no",
            "--logfile", "server.log", "--save", "", "--appendonly", "yes", "--appendfsync", "always",
            "--maxmemory-policy", "noeviction", *self._settings,
        ]  # fmt: skip
        return [*arguments, "--requirepass", self.password] if self.password else arguments

    def _answers(self, port: int) -> bool:
        """True once the server has loaded its data. False: it ended."""
        assert self._process is not None
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=1.0) as client:
                    client.sendall(b"PING\r\n")
                    if client.recv(64).startswith((b"+PONG", b"-NOAUTH")) and self._process.poll() is None:
                        return True
            except OSError:
                pass
            time.sleep(0.01)
        return False

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait()


def free_port() -> int:
    """A port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
