"""Redis URLs: what they mean, what is refused, and that a password is shown nowhere."""

from __future__ import annotations

import logging
import shutil
import subprocess
import traceback
from pathlib import Path

import pytest

from holdfast.errors import ConfigError, HoldfastError, StoreError
from holdfast.ids import Epoch, RegionName
from holdfast.store.redis.redis_store import RedisStore
from holdfast.store.redis.url import PASSWORD_VARIABLE, parse
from holdfast.store.urls import open_store

from . import redis_server
from .redis_server import RedisServer

SECRET = "hunter2%2Fx"
CLEAR = "hunter2/x"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost", "redis://localhost:6379/0?name=main"),
        ("redis://127.0.0.1:7000/3?name=job", "redis://127.0.0.1:7000/3?name=job"),
        ("redis://[::1]:7000/?name=job&db=2", "redis://[::1]:7000/2?name=job"),
        ("redis://u:p@localhost/0", "redis://u:***@localhost:6379/0?name=main"),
        ("redis://:p@localhost/0?durable=no", "redis://:***@localhost:6379/0?name=main&durable=no"),
        ("rediss://u:p@far.example:1/0?ca=/c.pem", "rediss://u:***@far.example:1/0?name=main"),
        ("redis://far.example/0?insecure=yes", "redis://far.example:6379/0?name=main"),
        ("unix:///run/redis.sock?db=1&name=job", "unix:///run/redis.sock?db=1&name=job"),
    ],
)
def test_a_url_names_a_store_and_is_shown_without_its_password(url: str, shown: str) -> None:
    store = open_store(url)
    assert isinstance(store, RedisStore)
    assert store.url == shown


@pytest.mark.parametrize(
    "url",
    [
        f"redis://u:{SECRET}@far.example/0",
        f"redis://u:{SECRET}@localhost:port/0",
        f"redis://u:{SECRET}@localhost/zero",
        f"redis://u:{SECRET}@localhost/0?surprise=1",
        f"redis://u:{SECRET}@localhost/0?name=../x",
        f"redis://u:{SECRET}@localhost/0?durable=maybe",
        f"redis://u:{SECRET}@localhost/0?timeout=never",
        f"redis://u:{SECRET}@localhost/0?timeout=-1",
        f"redis://u:{SECRET}#@localhost/0",
        "redis://far.example/0",
        "rediss://far.example/0",
        "unix:?db=0",
    ],
)
@pytest.mark.fault("SR12")
def test_other_urls_are_refused_with_a_cure_and_without_the_secret(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(url)
    assert caught.value.cure
    for text in (str(caught.value), "".join(traceback.format_exception(caught.value))):
        assert "hunter2" not in text.replace(url, "")


def test_the_password_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "from outside")
    assert parse("redis://localhost").server.password == "from outside"
    assert parse("redis://:p@localhost").server.password == "p"
    assert "outside" not in repr(parse("redis://localhost"))


@pytest.mark.fault("SR12", "U08")
def test_a_password_appears_in_no_text_of_a_run(
    redis_program: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    with RedisServer(tmp_path / "server", password="hunter2") as server:
        url = server.url("job", "&patience=0.05&durable=no").replace("redis://:", "redis://default:")
        store = open_store(url)
        store.open("t")
        store.acquire()
        assert isinstance(store, RedisStore)
        store.append_events([("e", {"store": store.url})])
        texts += [repr(store), repr(store.address), store.url, store.describe("e", "k"), repr(store.events())]
        texts += [repr(store.owner()), repr(store.segment_writer())]
        wrong = open_store(url.replace("hunter2", "hunter2-wrong"))
        attempts = [
            lambda: wrong.open("t"),
            lambda: open_store(url).acquire(),
            lambda: store.put("absent", {"k": b""}),
            lambda: store.publish(RegionName("main"), Epoch(-1), b""),
            lambda: open_store(url).open("other"),
        ]
        for attempt in attempts:
            with pytest.raises(HoldfastError) as caught:
                attempt()
            texts += ["".join(traceback.format_exception(caught.value)), caught.value.cure]
        server.kill()
        with pytest.raises(HoldfastError) as caught:
            store.publish(RegionName("main"), Epoch(1), b"")
        texts.append("".join(traceback.format_exception(caught.value)))
        assert "cannot be reached" in texts[-1]
        store.close()
    texts += [caplog.text, *capfd.readouterr()]
    assert len(texts) > 15
    assert not [text for text in texts if "hunter2" in text]


@pytest.mark.fault("K15", "U08")
def test_a_wrong_password_is_a_setting_to_mend(redis_program: str, tmp_path: Path) -> None:
    with RedisServer(tmp_path / "server", password=CLEAR.replace("/", "_")) as server:
        for url in (server.url("job").replace("hunter2_x", "other"), f"redis://127.0.0.1:{server.port}/0"):
            with pytest.raises(ConfigError, match="refuses user or password"):
                open_store(url).open("t")


def test_a_socket_of_the_file_system_does_as_well(redis_program: str, tmp_path: Path) -> None:
    socket = tmp_path / "s"
    settings = ("--unixsocket", str(socket), "--unixsocketperm", "700")
    with RedisServer(tmp_path / "server", settings=settings):
        store = open_store(f"unix://{socket}?name=job")
        store.open("t")
        assert store.acquire() == 1
        store.close()


@pytest.mark.fault("K15", "SR06")
def test_an_encrypted_connection_trusts_the_named_certificates_only(
    redis_program: str, tmp_path: Path
) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    key, certificate = tmp_path / "key", tmp_path / "cert"
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext subjectAltName=IP:127.0.0.1"
    command = [openssl, *words.split(), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    port = redis_server.free_port()
    settings = (
        "--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key),
        "--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no",
    )  # fmt: skip
    with RedisServer(tmp_path / "server", password="pw", settings=settings):
        url = f"rediss://:pw@127.0.0.1:{port}/0?name=job&patience=0.05"
        store = open_store(f"{url}&ca={certificate}")
        store.open("t")
        assert store.acquire() == 1
        store.close()
        with pytest.raises(StoreError, match="certificate"):
            open_store(url).open("t")
