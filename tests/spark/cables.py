"""Two network namespaces with a cable between them, which can be cut: nobody else's network is touched, and all is gone with the test.

Each namespace lives as long as a process that waits in it; the cable is a veth pair with one end in each.
"""

from __future__ import annotations

import errno
import os
import subprocess
import time
from pathlib import Path

from faults import fired

HOSTS = ("10.77.0.1", "10.77.0.2")
_ENDS = ("here", "there")


class Cable:
    """Between side 0 and side 1, which have these addresses."""

    def __init__(self) -> None:
        self._waiting: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cable:
        for _ in HOSTS:
            self._waiting.append(
                subprocess.Popen(
                    ["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
                )
            )
        for process in self._waiting:
            _until_apart(process.pid)
        far = str(self._waiting[1].pid)
        self._run(0, "ip", "link", "add", _ENDS[0], "type", "veth", "peer", "name", _ENDS[1], "netns", far)
        for side, (host, end) in enumerate(zip(HOSTS, _ENDS, strict=True)):
            self._run(side, "ip", "address", "add", f"{host}/24", "dev", end)
            for link in ("lo", end):
                self._run(side, "ip", "link", "set", link, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._waiting:
            process.kill()
            process.wait()

    def into(self, side: int) -> tuple[str, ...]:
        """What runs a command on one side."""
        return ("nsenter", f"--net=/proc/{self._waiting[side].pid}/ns/net")

    def cut(self) -> None:
        """What is sent stays away, connections are not told of it."""
        self._run(1, "ip", "link", "set", _ENDS[1], "down")
        assert not self.connected(), "the cable is cut and something goes through"
        fired("network cut between two hosts")

    def mend(self) -> None:
        self._run(1, "ip", "link", "set", _ENDS[1], "up")
        deadline = time.monotonic() + 30
        while not self.connected():
            assert time.monotonic() < deadline, "the cable is whole and nothing goes through"

    def connected(self) -> bool:
        """Whether the other side answers, if only to say that nobody listens at port 1."""
        probe = f"import socket; s = socket.socket(); s.settimeout(2); print(s.connect_ex(({HOSTS[1]!r}, 1)))"
        told = subprocess.run(
            [*self.into(0), "python3", "-c", probe], capture_output=True, text=True, check=True
        )
        return int(told.stdout) == _REFUSED

    def _run(self, side: int, *command: str) -> None:
        subprocess.run([*self.into(side), *command], check=True, capture_output=True)


_REFUSED = errno.ECONNREFUSED


def why_not() -> str:
    """Why there can be no cables here; '' if there can."""
    if os.getuid() != 0:
        return "needs root, to make network namespaces"
    try:
        with Cable() as cable:
            return "" if cable.connected() else "a cable between two namespaces carries nothing"
    except (OSError, subprocess.CalledProcessError, AssertionError) as error:
        return f"no network namespaces with a cable between them: {error}"


def _until_apart(pid: int) -> None:
    ours = os.readlink("/proc/self/ns/net")
    deadline = time.monotonic() + 10
    while not Path(f"/proc/{pid}/ns/net").exists() or os.readlink(f"/proc/{pid}/ns/net") == ours:
        assert time.monotonic() < deadline, "no namespace is made"
        time.sleep(0.01)
