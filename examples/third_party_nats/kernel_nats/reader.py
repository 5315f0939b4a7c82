"""Control lines and payloads out of a stream of bytes, however it is cut."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_nats.options import NatsOptions

LINE_END = b"\r\n"


class Fault(Exception):
    """What the client did wrong, in the words of the -ERR that ends the connection."""


class CommandReader:
    """Gives a command at a time: its name in capitals, its arguments, and the payload if it has one."""

    def __init__(self, options: NatsOptions) -> None:
        self._max_line = options.max_control_line
        self._max_payload = options.max_payload
        self._pieces: list[bytes] = []
        self._size = 0
        self._needed = 0
        """Bytes without which the command at the beginning is not complete; 0: the end of its line."""

    def __bool__(self) -> bool:
        """Whether a command has begun and is not complete."""
        return self._size > 0

    def feed(self, data: bytes) -> Iterator[tuple[bytes, list[bytes], bytes]]:
        """Take bytes and give the commands that are complete now.  Read to the end; raises ``Fault``."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size < self._needed or not (self._needed or b"\n" in data):
            if not self._needed and self._size > self._max_line:
                raise Fault("Maximum Control Line Exceeded")
            return
        buffer = b"".join(self._pieces)
        at = 0
        self._needed = 0
        while (end := buffer.find(b"\n", at)) >= 0:
            if end - at > self._max_line:
                raise Fault("Maximum Control Line Exceeded")
            arguments = buffer[at:end].split(None, 1)
            name = arguments[0].upper() if arguments else b""
            end += 1
            if name not in (b"PUB", b"HPUB"):
                at = end
                if arguments:
                    yield name, arguments[1:], b""
                continue
            arguments = arguments[1].split() if len(arguments) > 1 else []
            size = self._size_of(arguments)
            if len(buffer) < end + size + 2:
                self._needed = end + size + 2 - at
                break
            payload = buffer[end : end + size]
            if buffer[end + size : end + size + 2] != LINE_END:
                raise Fault("Parser Error")
            at = end + size + 2
            yield name, arguments, payload
        rest = buffer[at:]
        if not self._needed and len(rest) > self._max_line:
            raise Fault("Maximum Control Line Exceeded")
        self._pieces = [rest]
        self._size = len(rest)

    def _size_of(self, arguments: list[bytes]) -> int:
        """Return the size of the payload, which is the last argument."""
        if not arguments:
            raise Fault("Parser Error")
        size = number(arguments[-1])
        if size > self._max_payload:
            raise Fault("Maximum Payload Violation")
        return size


def number(text: bytes) -> int:
    """Return what digits say; raises ``Fault``."""
    if not text.isdigit() or len(text) > 9:
        raise Fault("Parser Error")
    return int(text)
