"""What is said after the handshake of CURVE: each frame is the text of a box in a MESSAGE (26/CURVEZMQ).

The text of a box is an octet of flags and the body of a frame.  The flags are those of libzmq: MORE as in a
frame, and 2 for a command (SUBSCRIBE, PING), which 26/CURVEZMQ does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from struct import Struct
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
from plugins.protocols.zmtp.faults import HandshakeFault
from plugins.protocols.zmtp.frames import COMMAND, LONG, MORE, Framing

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
_SHORT_HEADS = tuple(bytes((0, size)) + NAME for size in range(256))


def _head_of(text: int) -> bytes:
    """Return what stands before the nonce of a MESSAGE with a text of this size."""
    size = text + _HEAD + BOX_OVERHEAD
    if size < len(_SHORT_HEADS):
        return _SHORT_HEADS[size]
    return bytes((LONG,)) + size.to_bytes(8, "big") + NAME


def plain_flags(octet: int) -> int:
    """Return the flags as in a frame.  Raises ``RemoteProtocolError``."""
    flags = _PLAIN_FLAGS.get(octet)
    if flags is None:
        raise RemoteProtocolError(f"a MESSAGE with flags {octet:#04x}")
    return flags


# Peers choose sizes, so the table has a limit.
@lru_cache(1024)
def _cutter(before: int, box: int) -> Struct:
    """Return what cuts frames into nonce and box; ``before``: octets in front of them."""
    return Struct(f"{before}x{SHORT_NONCE}s{box}s")


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
            raise HandshakeFault(
                f"nonce {number} after {self.last}: a command was sent twice", "invalid-sequence"
            )
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
        body: bytes = octets_of(text, size)[1:]
        return plain_flags(text[0]), body

    def open_run(self, data: bytes, begin: int, head: int, size: int, count: int) -> tuple[bytearray, int]:
        """Open up to ``count`` frames that look alike and follow each other, the first at ``begin``.

        ``head``: octets of a header; ``size``: octets of the MESSAGE in each frame.  Return the
        texts, one behind the other, and how many there are.  It ends before a frame that does not
        open: ``open`` says why.
        """
        box_size = size - _HEAD
        text_size = box_size - BOX_OVERHEAD
        # Memory for what has come already, so a peer cannot make it large by an announcement.
        texts = bytearray(text_size * count)
        memory = memory_of(texts)
        prefix, key, opened = self._prefix, self._key, 0
        last = self._nonces.last.to_bytes(SHORT_NONCE, "big")
        cutter = _cutter(head + len(NAME), box_size)
        for short, box in cutter.iter_unpack(memoryview(data)[begin : begin + count * cutter.size]):
            # Octets compare as the numbers that they are, since all have the same length.
            # A nonce that does not rise is a message that was recorded and sent again. The number counts only
            # when the box has opened, so that ``open`` looks at the faulty frame as if nothing had been
            # tried.
            if short <= last or unseal_into(memory, box, box_size, prefix + short, key):
                break
            last = short
            memory += text_size
            opened += 1
        self._nonces.last = int.from_bytes(last, "big")
        return texts, opened

    def end_read(self) -> None:
        """Let go of the memory that many messages of one read have shared."""
        self._read = b""
        self._memory = memory_of(self._read)
        # One large message must not cost its memory for the rest of the conversation, which may be one of
        # thousands.
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
        return bytes(self._seal([_SEALED_FLAGS[flags] + body]))

    def encode(self, bodies: Sequence[Any], width: int = 0, before: Sequence[bytes] = ()) -> list[Buffer]:
        """Return messages of one part each, each behind the parts ``before``."""
        if before:
            return self.encode_parts([(body,) for body in bodies], before)
        # Flags first: then the sum is bytes, whatever buffer the body is.
        return [self._seal([_LAST + body for body in bodies])]

    def encode_parts(
        self, messages: Sequence[tuple[Buffer, ...]], before: Sequence[bytes] = ()
    ) -> list[Buffer]:
        """Return messages of several parts each, each behind the parts ``before``."""
        first = [_MORE + part for part in before]
        texts: list[bytes] = []
        for parts in messages:
            texts += first
            texts += [_MORE + part for part in parts[:-1]]
            texts.append(_LAST + parts[-1])
        return [self._seal(texts)]

    def _seal_one(self, text: bytes) -> bytearray:
        """Return what ``_seal`` would, in fewer steps."""
        size, short = len(text), self._nonces.next()
        head = _head_of(size) + short
        out = bytearray(head + bytes(size + BOX_OVERHEAD))
        seal_into(memory_of(out) + len(head), text, size, self._prefix + short, self._key)
        return out

    def _seal(self, texts: Sequence[bytes]) -> bytearray:
        """Return a frame for each text, all in one buffer, into which the boxes are written."""
        if len(texts) == 1:
            return self._seal_one(texts[0])
        count, first = len(texts), self._nonces.last + 1
        # Before anything can fail: a number that was used must never be used again.
        self._nonces.last += count
        shorts = [number.to_bytes(SHORT_NONCE, "big") for number in range(first, first + count)]
        heads = list(map(_head_of, map(len, texts)))
        rooms = [bytes(len(text) + BOX_OVERHEAD) for text in texts]
        out = bytearray().join(chain.from_iterable(zip(heads, shorts, rooms, strict=True)))
        memory, prefix, key, at = memory_of(out), self._prefix, self._key, 0
        for head, short, text in zip(heads, shorts, texts, strict=True):
            at += len(head) + SHORT_NONCE
            size = len(text)
            seal_into(memory + at, text, size, prefix + short, key)
            at += size + BOX_OVERHEAD
        return out
