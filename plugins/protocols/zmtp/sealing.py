"""What is said after the handshake of CURVE: each frame is the text of a box in a MESSAGE (26/CURVEZMQ).

The text of a box is an octet of flags and the body of a frame.  The flags are those of libzmq: MORE as in a frame,
and 2 for a command (SUBSCRIBE, PING), which 26/CURVEZMQ does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nacl.exceptions import CryptoError

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Buffer
from plugins.protocols.zmtp.boxes import BOX_OVERHEAD, seal, unseal_or_crypto_error
from plugins.protocols.zmtp.frames import COMMAND, MORE, REFERENCE_FROM, Framing

SHORT_NONCE = 8
"""Octets of a nonce that go over the wire; what is in front of them is known."""
NAME = b"\x07MESSAGE"
_HEAD = len(NAME) + SHORT_NONCE
OVERHEAD = _HEAD + BOX_OVERHEAD + 1
"""Octets by which a MESSAGE is larger than the body in it."""

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

    def open(self, message: bytes) -> tuple[int, bytes]:
        """Return flags as in a frame, and the body.  Raises ``RemoteProtocolError``."""
        if not message.startswith(NAME) or len(message) < OVERHEAD:
            raise RemoteProtocolError("what is no MESSAGE of CURVE")
        short = message[len(NAME) : _HEAD]
        self._nonces.check(short)
        try:
            text = unseal_or_crypto_error(message[_HEAD:], self._prefix + short, self._key)
        except CryptoError:
            raise RemoteProtocolError("a MESSAGE that does not open: it was changed on its way") from None
        flags = _PLAIN_FLAGS.get(text[0])
        if flags is None:
            raise RemoteProtocolError(f"a MESSAGE with flags {text[0]:#04x}")
        return flags, text[1:]


class SealedFraming(Framing):
    """Writes frames of 3.1 as MESSAGE commands."""

    def __init__(self, key: bytes, prefix: bytes, nonces: Nonces) -> None:
        super().__init__(3)
        self._key = key
        self._prefix = prefix
        self._nonces = nonces

    def frame(self, body: bytes, flags: int = 0) -> bytes:
        """Return one whole frame."""
        buffers: list[Buffer] = []
        self._seal(buffers, [(body,)], _SEALED_FLAGS[flags])
        return b"".join(buffers)

    def encode(self, bodies: Sequence[Any], width: int = 0, before: Sequence[bytes] = ()) -> list[Buffer]:
        """Return messages of one part each, each behind the parts ``before``."""
        return self.encode_parts([(body,) for body in bodies], before)

    def encode_parts(
        self, messages: Sequence[tuple[Buffer, ...]], before: Sequence[bytes] = ()
    ) -> list[Buffer]:
        """Return messages of several parts each, each behind the parts ``before``."""
        buffers: list[Buffer] = []
        self._seal(buffers, [(*before, *parts) for parts in messages] if before else messages, _LAST)
        return buffers

    def _seal(self, buffers: list[Buffer], messages: Sequence[tuple[Buffer, ...]], last_flags: bytes) -> None:
        """Append messages to ``buffers``."""
        key, prefix, nonces = self._key, self._prefix, self._nonces
        number = nonces.last
        small: list[bytes] = []
        try:
            for parts in messages:
                last = len(parts) - 1
                for index, part in enumerate(parts):
                    number += 1
                    short = number.to_bytes(SHORT_NONCE, "big")
                    # ``bytes`` first: then the sum is bytes, whatever buffer the part is.
                    box = seal((_MORE if index < last else last_flags) + part, prefix + short, key)
                    size = _HEAD + len(box)
                    if size < len(_HEADS):
                        small += (_HEADS[size], short, box)
                    elif size < REFERENCE_FROM:
                        small += (self.header(size), NAME, short, box)
                    else:
                        small += (self.header(size), NAME, short)
                        buffers += (b"".join(small), box)
                        small = []
        # Also after an error: a number that was used must never be used again.
        finally:
            nonces.last = number
        if small:
            buffers.append(b"".join(small))
