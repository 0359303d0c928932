"""`HttpLines`: listens on a port; every line of what somebody posts is a row."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from holdfast.sources.network.received_lines import ReceivedLines


class HttpLines(ReceivedLines):
    """Rows (`line string`): the lines of the bodies of POST requests, in UTF-8.

    Example::

        events = topology.source(hf.HttpLines(8080), name="events")     # curl --data-binary @events.jsonl localhost:8080

    It listens on the loopback interface unless `host` says otherwise. The lines of a request are taken in all together or
    not at all. 200 says that they are; 503 that there was no room for them for `patience` seconds, or that the run ends: try again; 413 that they are more than
    `buffer` lines or `largest` bytes; 411 that the request has no Content-Length. A line that is no UTF-8, or
    longer than `longest` bytes, is left out and counted. Outside of regions only."""

    def __init__(
        self,
        port: int,
        host: str = "127.0.0.1",
        *,
        buffer: int = 100_000,
        longest: int = 1 << 20,
        largest: int = 64 << 20,
        patience: float = 10.0,
    ) -> None:
        super().__init__(port, host, buffer, longest)
        self._largest, self._patience_s = largest, patience
        self._server: ThreadingHTTPServer | None = None
        self._answering = 0
        """Requests whose lines are being taken in; changes under `_condition`."""

    def _listen(self) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_POST(self) -> None:
                length = self.headers.get("Content-Length", "")
                body = (
                    self.rfile.read(int(length))
                    if length.isdigit() and int(length) <= outer._largest
                    else None
                )
                status, answer = outer._answer(length, body)
                self.close_connection = status in (411, 413)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                if status == 503:
                    self.send_header("Retry-After", "1")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer((self.host, self.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name=f"http-lines-{self.port}", daemon=True
        ).start()

    def _answer(self, length: str, body: bytes | None) -> tuple[int, dict[str, Any]]:
        if not length.isdigit():
            return 411, {"error": "the request has no Content-Length"}
        if body is None:
            return 413, {"error": f"more than {self._largest} bytes"}
        if len(body) < int(length):
            return 400, {"error": "the request ended too early; nothing of it was taken"}
        lines = body.split(b"\n")
        lines = lines[:-1] if not lines[-1] else lines
        if len(lines) > self._buffer_rows:
            return 413, {"error": f"more than {self._buffer_rows} lines"}
        with self._condition:
            if self._finishing:
                return 503, {"error": "the run ends; nothing of it was taken"}
            self._answering += 1
        try:
            if not self._put(lines, self._patience_s):
                return 503, {"error": "no room; nothing of it was taken"}
        finally:
            with self._condition:
                self._answering -= 1
                self._condition.notify_all()
        return 200, {"lines": len(lines)}

    def _await_receivers(self) -> None:
        with self._condition:
            self._condition.wait_for(lambda: not self._answering)

    def close(self) -> None:
        super().close()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def describe(self) -> str:
        return f"lines over HTTP, port {self.port}"
