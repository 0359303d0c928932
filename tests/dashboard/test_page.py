"""The server of the page: what it answers, to whom, and that it stays small."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.dashboard import server
from holdfast.dashboard.server import Page
from holdfast.errors import ConfigError
from holdfast.store.urls import open_store
from holdfast.testing import run_local
from holdfast.testing.local import submit_local


def topology(name: str) -> hf.Topology:
    made = hf.Topology("sums")
    rows = made.source(hf.Rows([(n % 5, n) for n in range(100)], "k long, n long"), name="rows").consistent(
        "r"
    )
    rows.aggregate("k", s=hf.sum("n"), name="sums").sink(hf.MemorySink(name), name="out")
    return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    run_local(topology("page"), f"file:{tmp_path}/store")
    yield f"file:{tmp_path}/store"
    hf.MemorySink.clear("page")


@pytest.fixture
def page(store: str) -> Iterator[Page]:
    made = Page(store, port=0)
    yield made
    made.close()


def asked(page: Page, path: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), dict(answer.headers)


def changes(page: Page, after: int, want: int) -> list[tuple[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
    connection.request("GET", "/changes", headers={"Last-Event-ID": str(after)})
    answer, found, kind = connection.getresponse(), [], ""
    while len(found) < want:
        line = answer.readline().decode().rstrip()
        if line.startswith("event: "):
            kind = line[7:]
        elif line.startswith("data: "):
            found.append((kind, json.loads(line[6:])))
    connection.close()
    return found


def test_it_shows_a_run_that_has_ended(page: Page) -> None:
    status, html, headers = asked(page, "/")
    assert (status, "<title>holdfast" in html) == (200, True)
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert asked(page, "/page.js")[0] == asked(page, "/page.css")[0] == 200
    state = json.loads(asked(page, "/state")[1])
    assert (state["standing"]["state"], state["standing"]["alive"]) == ("ended", False)
    assert state["plan"]["sinks"][0]["guarantee"] == "exactly-once"
    assert [element["region"] for element in state["plan"]["elements"]] == ["r"]
    assert state["epochs"]["r"][-1]["elements"]
    assert state["commands"] is False
    for path in ("/../server.py", "/page/page.js", "/etc/passwd", "/state/"):
        assert asked(page, path)[0] == 404


def test_what_comes_is_told_from_the_place_where_the_page_stands(page: Page, store: str) -> None:
    state = json.loads(asked(page, "/state")[1])
    place = open_store(store)
    place.open("sums")
    place.acquire()
    try:
        place.append_events(
            [
                ("region.parked", {"region": "r", "reason": "no more"}),
                ("run.failed", {"error": "E", "message": "m"}),
            ]
        )
        kinds = changes(page, state["number"], 3)
        told = [data["moment"]["kind"] for kind, data in kinds if kind == "change"]
        assert told[:2] == ["region.parked", "run.failed"][: len(told)]
        again = [data["number"] for kind, data in changes(page, state["number"] + 1, 2) if kind == "change"]
        assert again == [state["number"] + 2]
    finally:
        place.release()


def test_a_page_that_is_far_behind_begins_anew(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CHANGES_KEPT", len(page.changes))
    assert changes(page, -2, 1) == [("anew", {})]
    assert changes(page, 10**9, 1) == [("anew", {})], "another store stands there now"


@pytest.mark.fault("SR08")
def test_other_names_of_this_machine_are_refused(page: Page) -> None:
    assert asked(page, "/state", Host="evil.example")[0] == 403
    assert asked(page, "/state", Host=f"localhost:{page.port}")[0] == 200


@pytest.mark.fault("SR08")
def test_commands_are_refused_unless_they_are_allowed(store: str, page: Page) -> None:
    assert asked(page, "/command/stop", "POST", **{"X-Holdfast": "command"})[0] == 403
    allowed = Page(store, port=0, allow_commands=True)
    try:
        assert asked(allowed, "/command/stop", "POST")[0] == 403, "a form of another page has no such header"
        assert asked(allowed, "/command/drop", "POST", **{"X-Holdfast": "command"})[0] == 404
        assert asked(allowed, "/command/resume", "POST", **{"X-Holdfast": "command"})[0] == 200
    finally:
        allowed.close()


@pytest.mark.fault("SR08")
def test_others_need_a_token(store: str) -> None:
    open_to_all = Page(store, host="0.0.0.0", port=0)
    try:
        assert open_to_all.token is not None
        assert asked(open_to_all, "/state")[0] == 403
        assert asked(open_to_all, "/state?token=wrong")[0] == 403
        status, _, headers = asked(open_to_all, f"/?token={open_to_all.token}")
        assert status == 200
        cookie = headers["Set-Cookie"].split(";")[0]
        assert "HttpOnly; SameSite=Strict" in headers["Set-Cookie"]
        assert asked(open_to_all, "/state", Cookie=cookie)[0] == 200
        assert open_to_all.url.endswith(f"?token={open_to_all.token}")
    finally:
        open_to_all.close()


def test_too_many_pages_are_refused_and_those_that_leave_make_room(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "WATCHERS_MAX", 1)
    monkeypatch.setattr(server, "SILENCE_S", 0.05)
    watching = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
    watching.request("GET", "/changes")
    answer = watching.getresponse()
    answer.readline()
    assert asked(page, "/changes")[0] == 503
    answer.close()
    watching.close()
    deadline = time.monotonic() + 20
    while page.watchers:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_client_that_says_nothing_does_not_keep_the_page_open(store: str) -> None:
    made = Page(store, port=0)
    with socket.create_connection(("127.0.0.1", made.port)) as silent:
        silent.sendall(b"GET /sta")
        made.close()


def test_a_port_that_is_taken_is_told_and_another_is_found_if_none_is_named(page: Page, store: str) -> None:
    with pytest.raises(ConfigError, match="cannot be shown"):
        Page(store, port=page.port)
    pages = [Page(store) for _ in range(2)]
    assert len({each.port for each in pages}) == 2
    for each in pages:
        each.close()


def test_a_handle_shows_its_run(tmp_path: Path) -> None:
    run = submit_local(topology("handle-page"), f"file:{tmp_path}/store")
    shown = run.ui(port=0)
    try:
        deadline = time.monotonic() + 30
        while json.loads(asked(shown, "/state")[1])["status"] is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert json.loads(asked(shown, "/state")[1])["standing"]["state"] == "running"
    finally:
        run.stop()
        shown.close()
        hf.MemorySink.clear("handle-page")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("page")]
    alone = hf.Topology("alone")
    alone.source(hf.Rows([(1,)], "n long"), name="rows").sink(hf.MemorySink("handle-page"), name="out")
    without = submit_local(alone, until="available")
    with pytest.raises(ConfigError, match="without a store"):
        without.ui()
    without.close()


@pytest.mark.parametrize("host", ["192.0.2.1", "300.1.1.1"])
def test_an_address_of_another_machine_is_not_blamed_on_the_port(store: str, host: str) -> None:
    with pytest.raises(ConfigError, match="cannot be shown") as refused:
        Page(store, host=host, port=0)
    assert "address of this machine" in str(refused.value.cure)
    assert ":0" not in refused.value.message
