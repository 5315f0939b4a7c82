"""Chromium without a window, and its protocol for developer tools."""

from __future__ import annotations

import json
import queue
import re
import subprocess
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

TIMEOUT = 120.0
"""Seconds until a browser that does nothing is taken for stuck."""


@contextmanager
def chromium(folder: Path, *options: str) -> Iterator[str]:
    """Run Chromium, whose files are in a folder of the test; the address of its developer tools."""
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    # With the port it stays until somebody ends it.
    command += [f"--user-data-dir={folder}/profile", "--remote-debugging-port=0"]
    browser = subprocess.Popen(
        [*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    address: queue.Queue[str] = queue.Queue()
    reader = threading.Thread(target=_read, args=(browser, address))
    reader.start()
    try:
        found = address.get(timeout=TIMEOUT)
        assert found.startswith("ws://"), f"Chromium has ended: {found}"
        yield found
    finally:
        browser.terminate()
        browser.wait(TIMEOUT)
        reader.join(TIMEOUT)


def _read(browser: subprocess.Popen[str], address: queue.Queue[str]) -> None:
    """Read what Chromium says until it ends, or it would wait with a full pipe."""
    assert browser.stderr is not None
    said = []
    with browser.stderr:
        for line in browser.stderr:
            said.append(line)
            if found := re.search(r"DevTools listening on (ws://\S+)", line):
                address.put(found[1])
    address.put("".join(said[-20:]))


TIME_LIMIT = 30.0
"""Seconds for which a page may take to show something."""


class Tab:
    """One page of a browser."""

    def __init__(self, wire: ClientConnection) -> None:
        self.seen: list[dict[str, Any]] = []
        """What the browser has reported."""
        self._wire = wire
        self._number = 0
        self._session: str | None = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> Any:
        """Have the browser do something; return its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._wire.send(json.dumps(message))
        while True:
            heard = self._hear()
            if heard.get("id") == self._number:
                assert "error" not in heard, heard
                return heard["result"]

    def heard(self, event: str) -> Any:
        """Return the first event of a kind, which the browser may still have to report."""
        while True:
            for seen in self.seen:
                if seen.get("method") == event:
                    return seen["params"]
            self._hear()

    def _hear(self) -> Any:
        heard = json.loads(self._wire.recv(TIMEOUT))
        if "method" in heard:
            self.seen.append(heard)
        return heard

    def open(self, url: str) -> None:
        """Show a page."""
        self.ask("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript."""
        found = self.ask(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until a condition of JavaScript is true."""
        waiting = f"""new Promise((done) => {{
          const end = Date.now() + {TIME_LIMIT * 1000};
          const look = () => {{
            if ({condition}) done(true);
            else if (Date.now() > end) done(false);
            else setTimeout(look, 20);
          }};
          look();
        }})"""
        assert self.value(waiting), f"{condition} has not become true: {self.text()}"

    def text(self) -> str:
        """Return what a reader sees."""
        return str(self.value("document.body.innerText"))

    def press(self, key: str, text: str = "") -> None:
        """Press a key."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        one = {"key": key, "windowsVirtualKeyCode": codes.get(key, 0)}
        if key == "Enter":
            text = "\r"
        self.ask("Input.dispatchKeyEvent", type="keyDown", text=text, **one)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **one)

    def type(self, text: str) -> None:
        """Write into what has the focus."""
        self.ask("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """Save a picture of the window."""
        data = self.ask("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(b64decode(data))


@contextmanager
def tab(folder: Path) -> Iterator[Tab]:
    """Open Chromium with one empty page."""
    with chromium(folder) as address, connect(address, max_size=None) as wire:
        yield Tab(wire)
