"""What is said after the handshake of CURVE: each frame is the text of a box in a MESSAGE (26/CURVEZMQ).

The text of a box is an octet of flags and the body of a frame.  The flags are those of libzmq: MORE as in a frame,
and 2 for a command (SUBSCRIBE, PING), which 26/CURVEZMQ does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Buffer
from plugins.protocols.zmtp.boxes import (
    BOX_OVERHEAD,
    memory_of,
    new_memory,
    octets_of,
    seal_into,
    unseal_into,
)
from plugins.protocols.zmtp.frames import COMMAND, LONG_HEADER, MORE, SHORT_HEADER, Framing

SHORT_NONCE = 8
"""Octets of a nonce that go over the wire; what is in front of them is known."""
NAME = b"\x07MESSAGE"
_HEAD = len(NAME) + SHORT_NONCE
OVERHEAD = _HEAD + BOX_OVERHEAD + 1
"""Octets by which a MESSAGE is larger than the body in it."""

_KEPT = 4096
"""Octets of memory for texts that a conversation keeps between two reads."""

_SEALED_COMMAND = 2
_LAST, _MORE = b"\0", bytes((MORE,))
_SEALED_FLAGS = {0: _LAST, MORE: _MORE, COMMAND: bytes((_SEALED_COMMAND,))}
_PLAIN_FLAGS = {0: 0, MORE: MORE, _SEALED_COMMAND: COMMAND}

# libzmq sends MESSAGE without the flag COMMAND.
_HEADS = tuple(bytes((0, size)) + NAME for size in range(256))


class Nonces:
    """The numbers of one direction, which rise with each command."""

    def __init__(self) -> None:
        self.last = 0

    def next(self) -> bytes:
        """Return the next number of this side."""
        self.last += 1
        return self.last.to_bytes(SHORT_NONCE, "big")

    def check(self, short: bytes) -> None:
        """Take a number of the peer.  Raises ``RemoteProtocolError`` if it is not above the last one."""
        number = int.from_bytes(short, "big")
        if number <= self.last:
            raise RemoteProtocolError(f"nonce {number} after {self.last}: a command was sent twice")
        self.last = number


class Opener:
    """Opens what the peer has sealed."""

    def __init__(self, key: bytes, prefix: bytes, nonces: Nonces) -> None:
        self._key = key
        self._prefix = prefix
        self._nonces = nonces
        self._text: Any = new_memory("unsigned char[]", _KEPT)
        """Memory for the text of a box, which is used again."""
        self._read = b""
        """What was read last, and its memory: a read has many messages."""
        self._memory: Any = memory_of(self._read)

    def open(self, data: bytes, starts: int, ends: int) -> tuple[int, bytes]:
        """Open the MESSAGE between two places; return flags as in a frame, and the body.

        Raises ``RemoteProtocolError``.
        """
        box = starts + _HEAD
        size = ends - box - BOX_OVERHEAD
        if size < 1 or not data.startswith(NAME, starts):
            raise RemoteProtocolError("what is no MESSAGE of CURVE")
        short = data[box - SHORT_NONCE : box]
        self._nonces.check(short)
        if len(self._text) < size:
            self._text = new_memory("unsigned char[]", size)
        if data is not self._read:
            self._read, self._memory = data, memory_of(data)
        text = self._text
        if unseal_into(text, self._memory + box, size + BOX_OVERHEAD, self._prefix + short, self._key):
            raise RemoteProtocolError("a MESSAGE that does not open: it was changed on its way")
        flags = _PLAIN_FLAGS.get(text[0])
        if flags is None:
            raise RemoteProtocolError(f"a MESSAGE with flags {text[0]:#04x}")
        body: bytes = octets_of(text, size)[1:]
        return flags, body

    def end_read(self) -> None:
        """Let go of the memory that many messages of one read have shared."""
        self._read = b""
        self._memory = memory_of(self._read)
        if len(self._text) > _KEPT:
            self._text = new_memory("unsigned char[]", _KEPT)


class SealedFraming(Framing):
    """Writes frames of 3.1 as MESSAGE commands."""

    def __init__(self, key: bytes, prefix: bytes, nonces: Nonces) -> None:
        super().__init__(3)
        self._key = key
        self._prefix = prefix
        self._nonces = nonces

    def frame(self, body: bytes, flags: int = 0) -> bytes:
        """Return one whole frame."""
        return bytes(self._seal([(body,)], _SEALED_FLAGS[flags]))

    def encode(self, bodies: Sequence[Any], width: int = 0, before: Sequence[bytes] = ()) -> list[Buffer]:
        """Return messages of one part each, each behind the parts ``before``."""
        return self.encode_parts([(body,) for body in bodies], before)

    def encode_parts(
        self, messages: Sequence[tuple[Buffer, ...]], before: Sequence[bytes] = ()
    ) -> list[Buffer]:
        """Return messages of several parts each, each behind the parts ``before``."""
        return [self._seal([(*before, *parts) for parts in messages] if before else messages, _LAST)]

    def _seal(self, messages: Sequence[tuple[Buffer, ...]], last_flags: bytes) -> bytearray:
        """Return messages in one buffer, into which their boxes are written."""
        sizes = [len(part) + OVERHEAD for parts in messages for part in parts]
        short_limit = len(_HEADS)
        heads = [SHORT_HEADER if size < short_limit else LONG_HEADER for size in sizes]
        out = bytearray(sum(sizes) + sum(heads))
        memory = memory_of(out)
        key, prefix, nonces = self._key, self._prefix, self._nonces
        number, at, frames = nonces.last, 0, iter(sizes)
        try:
            for parts in messages:
                last = len(parts) - 1
                for index, part in enumerate(parts):
                    number += 1
                    size = next(frames)
                    short = number.to_bytes(SHORT_NONCE, "big")
                    head = (_HEADS[size] if size < short_limit else self.header(size) + NAME) + short
                    box = at + len(head)
                    out[at:box] = head
                    # ``bytes`` first: then the sum is bytes, whatever buffer the part is.
                    text = (_MORE if index < last else last_flags) + part
                    seal_into(memory + box, text, len(text), prefix + short, key)
                    at = box + len(text) + BOX_OVERHEAD
        # Also after an error: a number that was used must never be used again.
        finally:
            nonces.last = number
        return out
