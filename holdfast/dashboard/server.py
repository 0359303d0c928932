"""The page of a store: a small server of this process, and who may ask it for what.

    /            the page          /state       all that is known now, as JSON
    /page.css    /page.js          /changes     what comes, as server-sent events; `Last-Event-ID` is a number of the event log
    POST /command/stop, /command/resume, /command/epoch     only where commands are allowed

Must hold: nothing is written but commands that are allowed; memory does not grow with the length of a run; a page that is served to other
machines asks for a token; other pages in the same browser can neither read nor command.
"""

from __future__ import annotations

import errno
import hmac
import ipaddress
import json
import secrets
import socket
import threading
from collections import deque
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from holdfast.dashboard.story import Plain
from holdfast.dashboard.watched import Watched
from holdfast.errors import ConfigError, HoldfastError
from holdfast.store.base import Store
from holdfast.store.locks import signed

LOOK_S = 1.0
CHANGES_KEPT = 1000
WATCHERS_MAX = 32
SILENCE_S = 15.0
"""After so long a stream says that it is still there."""
PORT = 4050
COMMANDS = ("stop", "resume", "epoch")
PAGES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Page:
    """A page that is served until it is closed: `url` is where."""

    def __init__(
        self,
        store: str | Store,
        host: str = "127.0.0.1",
        port: int | None = None,
        allow_commands: bool = False,
    ) -> None:
        self.watched = Watched(store)
        self.allow_commands = allow_commands
        self.token = None if _is_loopback(host) else secrets.token_urlsafe(18)
        self.news = threading.Condition()
        self.changes: deque[tuple[int, Plain]] = deque(maxlen=CHANGES_KEPT)
        """(number of the event, what it changed), guarded by `news` as all that follows."""
        self.standing: Plain = {}
        self.looks = 0
        self.watchers = 0
        self.closed = False
        self._look(first=True)
        self._server = _listen(host, port, self)
        self.port = int(self._server.server_address[1])
        self.host = host
        self._threads = [
            threading.Thread(target=body, name=name, daemon=True)
            for name, body in (("page", self._server.serve_forever), ("page-look", self._watch))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/" + ("" if self.token is None else f"?token={self.token}")

    def close(self) -> None:
        with self.news:
            self.closed = True
            self.news.notify_all()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join(5)

    def state(self) -> Plain:
        """All that is known now."""
        with self.news:
            story, standing = self.watched.story.as_dict(), self.standing
            plan = self.watched.plan()
        return {**story, "standing": standing, "plan": plan, "commands": self.allow_commands}

    def _watch(self) -> None:
        """Thread body."""
        while True:
            with self.news:
                if self.closed or self.news.wait_for(lambda: self.closed, LOOK_S):
                    return
            self._look()

    def _look(self, first: bool = False) -> None:
        with self.news:
            found = self.watched.look(first)
            self.changes.extend((change["number"], change) for change in found)
            standing = self.watched.standing()
            if standing != self.standing or any("moment" in change for change in found):
                self.standing = standing
                self.looks += 1
            self.news.notify_all()


def _listen(host: str, port: int | None, page: Page) -> ThreadingHTTPServer:
    handler = type("Handler", (_Handler,), {"page": page})
    for number in (PORT, 0) if port is None else (port,):
        try:
            return _server(host, number, handler)
        except OSError as error:
            if port is None and number:
                continue
            is_elsewhere = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
            raise ConfigError(
                f"the page cannot be shown at {host if is_elsewhere else f'{host}:{number}'}: {error.strerror or error}.",
                cure="Give an address of this machine: 127.0.0.1, or 0.0.0.0 for all."
                if is_elsewhere
                else "Give another --port, or none.",
            ) from error
    raise AssertionError


def _server(host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

    return Server((host, port), handler)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Handler(BaseHTTPRequestHandler):
    """One request. `page` is set by a subclass."""

    page: Page
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        if not self._may():
            return
        if place.path in PAGES:
            name, kind = PAGES[place.path]
            self._answer(
                files("holdfast.dashboard").joinpath("page", name).read_bytes(), f"{kind}; charset=utf-8"
            )
        elif place.path == "/state":
            self._answer(json.dumps(self.page.state(), default=str).encode(), "application/json")
        elif place.path == "/changes":
            self._stream(self._after(place.query))
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def do_POST(self) -> None:
        command = urlsplit(self.path).path.removeprefix("/command/")
        if not self._may():
            return
        # Only a page of ours can set this header: a form of another page cannot, and its script is not allowed to.
        if not self.page.allow_commands or self.headers.get("X-Holdfast") != "command":
            self._refuse(HTTPStatus.FORBIDDEN, "commands are not allowed: holdfast ui --allow-commands")
        elif command not in COMMANDS:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such command")
        else:
            try:
                self.page.watched.store.post(command, {"by": f"the page of {signed()}"})
                self._answer(b"{}", "application/json")
            except HoldfastError as error:
                self._refuse(HTTPStatus.CONFLICT, str(error))

    # --- who may ask --------------------------------------------------------------------------------------------

    def _may(self) -> bool:
        """Answers itself if not."""
        token = self.page.token
        if token is None:
            # A name that somebody else let point to this machine is not ours.
            if self._host() in ("localhost", "127.0.0.1", "::1", self.page.host):
                return True
            self._refuse(HTTPStatus.FORBIDDEN, "this page is for this machine only")
            return False
        given = parse_qs(urlsplit(self.path).query).get("token", [""])[0] or self._cookie()
        if hmac.compare_digest(given.encode(), token.encode()):
            return True
        self._refuse(
            HTTPStatus.FORBIDDEN,
            "the token is missing or wrong: it is in the address that holdfast ui printed",
        )
        return False

    def _host(self) -> str:
        try:
            return urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        except ValueError:
            return ""

    def _cookie(self) -> str:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(f"holdfast-{self.page.port}")
        except CookieError:
            return ""
        return "" if found is None else found.value

    # --- answers ------------------------------------------------------------------------------------------------

    def _answer(self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        self._headers(kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _headers(self, kind: str) -> None:
        self.send_header("Content-Type", kind)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if self.page.token is not None and self.page.token in self.path:
            cookie = f"holdfast-{self.page.port}={self.page.token}; HttpOnly; SameSite=Strict; Path=/"
            self.send_header("Set-Cookie", cookie)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self.close_connection = True
        self._answer(why.encode() + b"\n", "text/plain; charset=utf-8", status)

    def _after(self, query: str) -> int:
        """Behind which event the page stands."""
        given = self.headers.get("Last-Event-ID") or parse_qs(query).get("after", ["-1"])[0]
        try:
            return int(given)
        except ValueError:
            return -1

    def _stream(self, after: int) -> None:
        page = self.page
        with page.news:
            if page.watchers >= WATCHERS_MAX:
                is_full = True
            else:
                is_full, page.watchers = False, page.watchers + 1
        if is_full:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are open")
            return
        try:
            self.close_connection = True
            self.send_response(HTTPStatus.OK)
            self._headers("text/event-stream")
            self.end_headers()
            self._tell(after)
        except OSError:
            pass  # the page is gone
        finally:
            with page.news:
                page.watchers -= 1

    def _tell(self, after: int) -> None:
        page, seen = self.page, -1
        while True:
            with page.news:
                page.news.wait_for(
                    lambda after=after, seen=seen: (
                        page.closed  # type: ignore[misc]
                        or page.watched.story.number > after
                        or page.looks != seen
                    ),
                    SILENCE_S,
                )
                if page.closed:
                    return
                newest, looks, standing = page.watched.story.number, page.looks, page.standing
                found = [change for number, change in page.changes if number > after]
                is_behind = (
                    bool(page.changes)
                    and len(page.changes) == CHANGES_KEPT
                    and page.changes[0][0] > after + 1
                )
            if is_behind or newest < after:
                self._say("anew", {}, newest)
                return
            for change in found:
                self._say("change", change, change["number"])
            if looks != seen:
                self._say("standing", standing, max(newest, after))
            if not found and looks == seen:
                self.wfile.write(b": still here\n\n")
                self.wfile.flush()
            after, seen = max(newest, after), looks

    def _say(self, kind: str, data: Plain, number: int) -> None:
        body = json.dumps(data, default=str)
        self.wfile.write(f"id: {number}\nevent: {kind}\ndata: {body}\n\n".encode())
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a token may stand in the address."""
