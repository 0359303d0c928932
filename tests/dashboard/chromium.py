"""A real Chromium, driven over a pipe by its DevTools protocol: enough to open a page, ask it, and photograph it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Chromium:
    """One page."""

    def __init__(self, to: int, of: int) -> None:
        self._to, self._of = to, os.fdopen(of, "rb")
        self._number = 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = None
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if getattr(self, "_session", None) is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._read())
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found

    def _read(self) -> bytes:
        read = bytearray()
        while (one := self._of.read(1)) != b"\0":
            assert one, "Chromium is gone"
            read += one
        return bytes(read)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def ask(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def text(self, selector: str) -> str:
        return str(self.ask(f"(document.querySelector({json.dumps(selector)}) || {{}}).textContent || ''"))

    def await_text(self, selector: str, wanted: str, seconds: float = 90.0) -> str:
        """What stands there, as soon as it holds what is wanted; nobody reloads the page."""
        deadline = time.monotonic() + seconds
        while wanted not in (found := self.text(selector)):
            assert time.monotonic() < deadline, f"{selector} says {found!r}, never {wanted!r}"
            time.sleep(0.2)
        return found

    def press(self, key: str) -> None:
        """A key, as somebody without a mouse does."""
        codes = {"Tab": 9, "Enter": 13}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=codes[key], **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=codes[key])

    def photograph(self, path: Path, width: int, height: int, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def chromium(here: Path) -> Iterator[Chromium]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program is not None, "Chromium is missing: apt-get install chromium"
    (theirs, to), (of, ours) = os.pipe(), os.pipe()
    command = [
        program,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--remote-debugging-pipe",
        f"--user-data-dir={here}",
    ]
    quoted = " ".join(f"'{word}'" for word in command)
    process = subprocess.Popen(
        ["bash", "-c", f"exec {quoted} 3<&{theirs} 4>&{ours} 2>/dev/null"], pass_fds=(theirs, ours)
    )
    os.close(theirs)
    os.close(ours)
    try:
        yield Chromium(to, of)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(to)
