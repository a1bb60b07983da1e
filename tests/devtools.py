"""A headless Chromium, driven over the DevTools protocol, for tests that click and type."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

_OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--remote-debugging-port=0")  # fmt: skip
_KEYS = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "ArrowRight": 39, " ": 32}
_PATIENCE = 60.0


class Tab:
    """A tab of the browser; all requests and console messages are kept.

    Attributes:
        requests: URLs of all requests.
        complaints: Errors of the console, of scripts and of the content security policy.
    """

    def __init__(self, socket: Any) -> None:
        self._socket, self._ids = socket, itertools.count(1)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=_PATIENCE))
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self._keep(message)

    def _keep(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(parameters["exceptionDetails"]))
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                self.complaints.append(parameters["entry"]["text"])

    def open(self, url: str) -> None:
        """Open a page."""
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + _PATIENCE
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < end, f"never true: {expression}\n{self.value('document.body.innerText')}"
            time.sleep(0.02)

    def press(self, *keys: str) -> None:
        """Press keys."""
        for key in keys:
            text = {"Enter": "\r", " ": " "}.get(key, "")
            named = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": _KEYS[key]}
            self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **named)
            self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def type(self, text: str) -> None:
        """Type a text."""
        for letter in text:
            self.call("Input.dispatchKeyEvent", type="char", text=letter)

    def look(self, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Set the size of the window and the color scheme."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self, path: Path) -> None:
        """Write a PNG of the window."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def chromium(folder: Path) -> Iterator[Tab]:
    """Start a headless Chromium with an empty profile, and yield a tab."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium on this machine (apt-get install chromium)")
    connect = pytest.importorskip("websockets.sync.client", reason="needs the extra serve").connect
    profile = folder / "profile"
    with (folder / "chromium.log").open("w") as log:
        process = subprocess.Popen(
            [program, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"],
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            with connect(_tab_url(profile / "DevToolsActivePort", process), max_size=None) as socket:
                yield Tab(socket)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()


def _tab_url(port_file: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the WebSocket URL of the first tab."""
    import httpx

    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError, ValueError, IndexError, httpx.HTTPError):
            port = int(port_file.read_text().splitlines()[0])
            tabs = httpx.get(f"http://127.0.0.1:{port}/json", trust_env=False).json()
            return str(next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page"))
        time.sleep(0.05)
    raise AssertionError(f"Chromium did not start; its log is {port_file.parent.parent / 'chromium.log'}")
