"""A small TCP proxy before a server: passes bytes on, until a test says what shall go wrong with the next request."""

from __future__ import annotations

import socket
import threading
from types import TracebackType


class Proxy:
    """Between clients and a server on loopback. `fault` is used up by the first request that holds `marker`."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.marker = b"EXEC"
        self.fault = ""
        """lose_reply: the server does it, nobody hears. lose_request: it never gets there. late: it gets there when
        `deliver` is called. Afterwards the client's connection is closed."""
        self.fired = 0
        self._held: tuple[socket.socket, bytes] | None = None
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._listener, *self._sockets):
            each.close()

    def deliver(self) -> bytes:
        """Let the late request arrive at last; what the server says to it."""
        assert self._held is not None, "no request is held back"
        server, data = self._held
        server.sendall(data)
        server.settimeout(5)
        return server.recv(65536)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            self._sockets += [client, server]
            threading.Thread(target=self._requests, args=(client, server), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        muted = threading.Event()
        threading.Thread(target=self._replies, args=(server, client, muted), daemon=True).start()
        try:
            while data := client.recv(1 << 20):
                if self.fault and self.marker in data:
                    fault, self.fault = self.fault, ""
                    self.fired += 1
                    self._go_wrong(fault, client, server, data, muted)
                    return
                server.sendall(data)
        except OSError:
            pass
        if not muted.is_set():
            _shut(server)

    def _go_wrong(
        self, fault: str, client: socket.socket, server: socket.socket, data: bytes, muted: threading.Event
    ) -> None:
        muted.set()
        if fault == "lose_reply":
            server.sendall(data)
            server.recv(1)  # the answer is on its way: the server has done it
        elif fault == "late":
            self._held = (server, data)
        _shut(client)

    def _replies(self, server: socket.socket, client: socket.socket, muted: threading.Event) -> None:
        try:
            while not muted.is_set() and (data := _receive(server, muted)):
                client.sendall(data)
        except OSError:
            pass
        if not muted.is_set():
            _shut(client)


def _receive(server: socket.socket, muted: threading.Event) -> bytes:
    """Bytes from the server, but none once the connection is muted: those are for somebody else."""
    while not muted.is_set():
        server.settimeout(0.02)
        try:
            if server.recv(1, socket.MSG_PEEK) == b"":
                return b""
        except TimeoutError:
            continue
        return b"" if muted.is_set() else server.recv(1 << 20)
    return b""


def _shut(each: socket.socket) -> None:
    try:
        each.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
