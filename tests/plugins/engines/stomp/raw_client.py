"""A client that sends any frame, sensible or not, and tells what came back.  It reads by rules of its own."""

from __future__ import annotations

import socket
from typing import Self

import msgspec

TIMEOUT = 60.0
"""Seconds until a server that says nothing is taken for stuck."""
_ESCAPES = {"\\n": "\n", "\\r": "\r", "\\c": ":", "\\\\": "\\"}


class Frame(msgspec.Struct):
    """A frame that came."""

    command: str
    headers: dict[str, str]
    body: bytes

    def __getitem__(self, name: str) -> str:
        return self.headers[name]


def frame(command: str, body: bytes = b"", /, **headers: object) -> bytes:
    """Return a frame.  In names of headers ``_`` stands for ``-``; values are sent as they are."""
    lines = [f"{name.strip('_').replace('_', '-')}:{value}" for name, value in headers.items()]
    return "\n".join([command, *lines, "", ""]).encode() + body + b"\0"


class RawStomp:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        self.heart_beats = 0
        """Ends of lines that came between frames."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def connect(self, version: str = "1.2", **headers: object) -> Frame:
        """Log in as guest; return what came."""
        login = {"accept_version": version, "login": "guest", "passcode": "guest", "host": "/", **headers}
        if version == "1.0":
            del login["accept_version"]
        self.send("CONNECT", **{name: value for name, value in login.items() if value is not None})
        return self.next()

    def send(self, command: str, body: bytes = b"", /, **headers: object) -> None:
        """Send a frame."""
        self.socket.sendall(frame(command, body, **headers))

    def ask(self, command: str, body: bytes = b"", /, **headers: object) -> Frame:
        """Send a frame with a receipt, and return the next frame, which should be that."""
        self.send(command, body, **{"receipt": "asked", **headers})
        return self.next()

    def next(self) -> Frame:
        """Return the next frame.  ``EOFError``: the server has closed the connection."""
        while True:
            without = self._data.lstrip(b"\r\n")
            self.heart_beats += len(self._data) - len(without)
            self._data = without
            found = self._whole()
            if found is not None:
                return found
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                raise EOFError(f"after {self._data!r}")
            self._data += data

    def next_of(self, command: str) -> Frame:
        """Skip other frames."""
        while (found := self.next()).command != command:
            pass
        return found

    def is_closed(self) -> bool:
        """Wait for the end of the connection, and say whether nothing came before it."""
        try:
            self.next()
        except EOFError:
            return True
        return False

    def _whole(self) -> Frame | None:
        head, blank, rest = self._data.partition(b"\n\n")
        if not blank:
            return None
        command, *lines = head.decode().split("\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers.setdefault(_unescaped(name), _unescaped(value))
        length = int(headers.pop("content-length", rest.find(b"\0")))
        if length < 0 or len(rest) <= length:
            return None
        assert rest[length] == 0
        self._data = rest[length + 1 :]
        return Frame(command, headers, rest[:length])


def _unescaped(text: str) -> str:
    parts = text.split("\\\\")
    for escape, meaning in _ESCAPES.items():
        parts = [part.replace(escape, meaning) for part in parts] if escape != "\\\\" else parts
    return "\\".join(parts)
