"""`UdpLines`: listens on a port; every line of a datagram is a row."""

from __future__ import annotations

import socket
import threading
import time

from holdfast.sources.network.received_lines import ReceivedLines

DATAGRAM_BYTES = 1 << 16
"""None is larger."""
DATAGRAMS_AT_ONCE = 1000
LOOK_S = 0.2
GRACE_S = 3.0
"""How long the end of a run takes in what has arrived."""


class UdpLines(ReceivedLines):
    """Rows (`line string`): the lines of the datagrams that arrive over UDP, in UTF-8.

    Example::

        lines = topology.source(hf.UdpLines(5140), name="lines")        # echo hello | nc -u -w0 localhost 5140

    It listens on the loopback interface unless `host` says otherwise. A datagram has one line or several; the last needs no line end.
    UDP has no way to let senders wait: what arrives while `buffer` lines wait is dropped by the operating system when its own
    buffer (`receive_bytes`) is full, and nobody counts it. A line that is no UTF-8, or longer than `longest` bytes, is left out and
    counted. Outside of regions, or with `.preserve(…)`."""

    def __init__(
        self,
        port: int,
        host: str = "127.0.0.1",
        *,
        buffer: int = 100_000,
        longest: int = 1 << 16,
        receive_bytes: int = 4 << 20,
    ) -> None:
        super().__init__(port, host, buffer, longest)
        self._receive_bytes = receive_bytes
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def _listen(self) -> None:
        made = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_bytes)
        made.settimeout(LOOK_S)
        try:
            made.bind((self.host, self.port))
        except OSError:
            made.close()
            raise
        self._socket, self.port = made, made.getsockname()[1]
        self._thread = threading.Thread(
            target=self._receive, args=(made,), name=f"udp-lines-{self.port}", daemon=True
        )
        self._thread.start()

    def _receive(self, listening: socket.socket) -> None:
        until = None
        while not self._closed:
            is_last = self._finishing
            if is_last and until is None:
                until = time.monotonic() + GRACE_S
                listening.settimeout(0)  # only what has arrived
            datagrams = self._arrived(listening)
            if datagrams and not self._put([line for each in datagrams for line in _lines(each)]):
                return
            if is_last and (not datagrams or time.monotonic() > (until or 0)):
                return

    def _arrived(self, listening: socket.socket) -> list[bytes]:
        """Waits for one, and takes those that are there besides."""
        found: list[bytes] = []
        flags = 0
        try:
            while len(found) < DATAGRAMS_AT_ONCE:
                found.append(listening.recv(DATAGRAM_BYTES, flags))
                flags = socket.MSG_DONTWAIT
        except OSError:
            pass  # nothing more just now, or closed
        return found

    def _await_receivers(self) -> None:
        if self._thread is not None:
            self._thread.join(GRACE_S + LOOK_S)

    def close(self) -> None:
        super().close()
        if self._thread is not None:
            self._thread.join(1.0)
            self._thread = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def describe(self) -> str:
        return f"lines over UDP, port {self.port}"


def _lines(datagram: bytes) -> list[bytes]:
    lines = datagram.split(b"\n")
    return lines if lines[-1] else lines[:-1]
