"""`TcpLines`: listens on a port; every line that somebody sends is a row."""

from __future__ import annotations

import socket
import threading
import time

from holdfast.sources.network.received_lines import ReceivedLines

READ_BYTES = 1 << 16
LOOK_S = 0.2
LAST_BYTES = 8 << 20
"""A sender that does not pause is cut off when so much came from it after the run was asked to end: more than the operating
system had for us then."""
GRACE_S = 3.0
"""How long the end of a run waits for that."""


class TcpLines(ReceivedLines):
    """Rows (`line string`): what arrives over TCP, one row per line, in UTF-8.

    Example::

        lines = topology.source(hf.TcpLines(9999), name="lines")

    It listens on the loopback interface unless `host` says otherwise. When `buffer` lines wait, nothing more is read and
    the senders have to wait. A line that is no UTF-8, or longer than `longest` bytes, is left out and counted
    (`malformed` in the status). The last line of a connection needs no line end. Outside of regions only."""

    def __init__(
        self, port: int, host: str = "127.0.0.1", *, buffer: int = 100_000, longest: int = 1 << 20
    ) -> None:
        super().__init__(port, host, buffer, longest)
        self._socket: socket.socket | None = None
        self._threads: list[threading.Thread] = []

    def _listen(self) -> None:
        self._socket = socket.create_server((self.host, self.port))
        self._socket.settimeout(LOOK_S)
        self.port = self._socket.getsockname()[1]
        self._begin(self._accept, self._socket)

    def _begin(self, body: object, connection: socket.socket) -> None:
        thread = threading.Thread(target=body, args=(connection,), name=f"tcp-lines-{self.port}", daemon=True)  # type: ignore[arg-type]
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()

    def _accept(self, listening: socket.socket) -> None:
        while not self._closed:
            is_last = self._is_finishing(listening)
            try:
                connection, _ = listening.accept()
            except (TimeoutError, BlockingIOError):
                if is_last:
                    return  # nobody else had come
                continue
            except OSError:
                return  # closed
            self._begin(self._receive, connection)

    def _is_finishing(self, connection: socket.socket) -> bool:
        """True if the run is to end: from here, only what has arrived already is taken."""
        if self._finishing:
            connection.settimeout(0)
        return self._finishing

    def _receive(self, connection: socket.socket) -> None:
        rest, left = b"", LAST_BYTES
        too_long = False
        connection.settimeout(LOOK_S)
        with connection:
            while not self._closed:
                is_last = self._is_finishing(connection)
                try:
                    data = connection.recv(READ_BYTES)
                except (TimeoutError, BlockingIOError):
                    if is_last:
                        too_long = too_long or bool(rest)  # a line without its end is none
                        break
                    continue
                except OSError:
                    data = b""  # the sender is gone; what it began to send is its last line
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                if lines and too_long:
                    lines[0], too_long = b"\n" * (self._longest + 1), False
                if len(rest) > self._longest:
                    rest, too_long = b"", True  # its end is awaited, nothing of it kept
                if lines and not self._put(lines):
                    return
                left -= len(data) if is_last else 0
                if left <= 0:
                    too_long = too_long or bool(rest)
                    break
            if rest or too_long:
                self._put([b"\n" * (self._longest + 1) if too_long else rest])

    def _await_receivers(self) -> None:
        until = time.monotonic() + GRACE_S
        while alive := [each for each in self._threads if each.is_alive()]:
            if time.monotonic() > until:
                return
            alive[0].join(LOOK_S)

    def close(self) -> None:
        super().close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        for thread in self._threads:
            thread.join(1.0)

    def describe(self) -> str:
        return f"lines over TCP, port {self.port}"
