"""Frames of the TCP connection between sender and receiver.

A frame is a type (1 byte), the size of its payload (4 bytes, big-endian) and the payload. What frames mean is
in ``docs/decisions/0013-one-to-many.md``. Over multicast a unit has its number in front, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Any

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Buffer

VERSION = 1
NO_FEED = bytes(8)
NUMBER = Struct("!Q")
CONTROL_LIMIT = 1024
"""The largest payload of all frames but UNIT."""

_HEAD, _UNIT_HEAD = Struct("!BI"), Struct("!BIQ")
_HELLO, _WELCOME, _ACK = Struct("!B8sQQ"), Struct("!8sQ"), Struct("!QQ")
_TSI = 8


class Kind(IntEnum):
    """Types of frames."""

    HELLO = 1
    WELCOME = 2
    UNIT = 3
    PREPARE = 4
    READY = 5
    MULTICAST = 6
    UNICAST = 7
    MISSING = 8
    ACK = 9


def hello(feed: bytes, received: int, confirmed: int) -> bytes:
    """Return a HELLO, a receiver's first frame."""
    return _frame(Kind.HELLO, _HELLO.pack(VERSION, feed, received, confirmed))


def read_hello(payload: bytes) -> tuple[bytes, int, int]:
    """Decode a HELLO: feed, next number, and first number that is not confirmed."""
    version, feed, received, confirmed = _unpack(_HELLO, Kind.HELLO, payload)
    # Nothing can be confirmed that was not received.
    if version != VERSION or not confirmed <= received:
        raise RemoteProtocolError(
            f"invalid HELLO: version {version}, {confirmed} of {received} units confirmed"
        )
    return feed, received, confirmed


def welcome(feed: bytes, first: int) -> bytes:
    """Return a WELCOME, the answer to HELLO."""
    return _frame(Kind.WELCOME, _WELCOME.pack(feed, first))


def read_welcome(payload: bytes) -> tuple[bytes, int]:
    """Decode a WELCOME: feed and first number."""
    feed, first = _unpack(_WELCOME, Kind.WELCOME, payload)
    return feed, first


def unit_header(number: int, size: int) -> bytes:
    """Return the header of a UNIT."""
    return _UNIT_HEAD.pack(Kind.UNIT, NUMBER.size + size, number)


def prepare(source: bytes, group: str) -> bytes:
    """Return a PREPARE: join ``group`` (``epgm://239.192.1.1:5555``) and receive the source with this TSI."""
    return _frame(Kind.PREPARE, source + group.encode())


def read_prepare(payload: bytes) -> tuple[bytes, str]:
    """Decode a PREPARE: TSI and group."""
    # A text that is no address is reported when the group is joined, and the receiver stays on TCP.
    return payload[:_TSI], payload[_TSI:].decode(errors="replace")


def numbered(kind: Kind, number: int) -> bytes:
    """Return MULTICAST, UNICAST or MISSING."""
    return _frame(kind, NUMBER.pack(number))


def read_number(kind: Kind, payload: bytes) -> int:
    """Decode the number of a MULTICAST, UNICAST or MISSING."""
    (number,) = _unpack(NUMBER, kind, payload)
    return int(number)


def ready() -> bytes:
    """Return a READY: the source's packets arrive here."""
    return _frame(Kind.READY, b"")


def ack(received: int, confirmed: int) -> bytes:
    """Return an ACK: the first number that is missing, and the first that is not confirmed."""
    return _frame(Kind.ACK, _ACK.pack(received, confirmed))


def read_ack(payload: bytes) -> tuple[int, int]:
    """Decode an ACK."""
    received, confirmed = _unpack(_ACK, Kind.ACK, payload)
    return received, confirmed


def _frame(kind: Kind, payload: bytes) -> bytes:
    return _HEAD.pack(kind, len(payload)) + payload


def _unpack(layout: Struct, kind: Kind, payload: bytes) -> tuple[Any, ...]:
    if len(payload) != layout.size:
        raise RemoteProtocolError(f"{kind.name} of {len(payload)} bytes")
    return layout.unpack(payload)


class Deframer:
    """Splits the bytes of a connection into frames."""

    def __init__(self, max_unit: int) -> None:
        self._max_unit = max_unit
        self._rest = b""

    def frames(self, data: Buffer) -> Iterator[tuple[Kind, bytes]]:
        """Add bytes; yield the complete frames. Raises ``RemoteProtocolError`` for what is no frame."""
        data = self._rest + bytes(data)
        self._rest = b""
        at, end = 0, len(data)
        while end - at >= _HEAD.size:
            number, size = _HEAD.unpack_from(data, at)
            kind = self._checked(number, size)
            begin = at + _HEAD.size
            if end - begin < size:
                break
            at = begin + size
            yield kind, data[begin:at]
        self._rest = data[at:]

    def _checked(self, number: int, size: int) -> Kind:
        try:
            kind = Kind(number)
        except ValueError:
            raise RemoteProtocolError(f"a frame of the unknown type {number}") from None
        # Checked as soon as the header is here, before the payload is stored: a peer cannot make us collect a
        # frame that would be refused.
        most = self._max_unit + NUMBER.size if kind is Kind.UNIT else CONTROL_LIMIT
        if kind is Kind.UNIT and size < NUMBER.size:
            raise RemoteProtocolError("a UNIT without a number")
        if size > most:
            raise RemoteProtocolError(f"{kind.name} of {size} bytes; at most {most} are allowed")
        return kind
