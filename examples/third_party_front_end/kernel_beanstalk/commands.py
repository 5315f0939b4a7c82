"""Commands: the bytes of a beanstalk client, cut into commands.  No socket, no broker."""

from __future__ import annotations

from typing import NamedTuple

LONGEST_LINE = 224
"""The longest command line, its end included (beanstalkd's protocol.txt)."""


class Command(NamedTuple):
    """One command; ``error`` is what to answer to one that makes no sense."""

    name: str
    arguments: list[str]
    body: bytes = b""
    error: bytes = b""


class CommandReader:
    """Collects bytes and gives commands back, one at a time."""

    def __init__(self, largest_body: int) -> None:
        self._largest_body = largest_body
        self._data = bytearray()
        self._put: list[str] | None = None
        """The arguments of a ``put`` whose body is not complete."""
        self._skip = 0
        """Bytes of a body that is too large, to be thrown away."""

    def feed(self, data: bytes) -> None:
        """Take what was read."""
        self._data += data

    def next(self) -> Command | None:
        """Return the next command that is complete; None: there is none."""
        if self._skip:
            skipped = min(self._skip, len(self._data))
            del self._data[:skipped]
            self._skip -= skipped
            if self._skip:
                return None
        if self._put is not None:
            return self._body(self._put)
        end = self._data.find(b"\r\n", 0, LONGEST_LINE)
        if end < 0:
            if len(self._data) >= LONGEST_LINE:
                self._data.clear()
                return Command("", [], error=b"BAD_FORMAT\r\n")
            return None
        words = bytes(self._data[:end]).decode("latin-1").split(" ")
        del self._data[: end + 2]
        name, arguments = words[0], words[1:]
        if name != "put":
            return Command(name, arguments)
        if len(arguments) != 4 or not all(word.isascii() and word.isdigit() for word in arguments):
            return Command("", [], error=b"BAD_FORMAT\r\n")
        if int(arguments[3]) > self._largest_body:
            self._skip = int(arguments[3]) + 2
            return Command("", [], error=b"JOB_TOO_BIG\r\n")
        self._put = arguments
        return self._body(arguments)

    def _body(self, arguments: list[str]) -> Command | None:
        size = int(arguments[3])
        if len(self._data) < size + 2:
            return None
        self._put = None
        body, end = bytes(self._data[:size]), bytes(self._data[size : size + 2])
        del self._data[: size + 2]
        if end != b"\r\n":
            return Command("", [], error=b"EXPECTED_CRLF\r\n")
        return Command("put", arguments, body)
