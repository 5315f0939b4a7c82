"""Decoder of ZMTP frames: bytes to batches and commands, in any chunking, in linear time.

Messages of one part become plain batches, messages of several parts multi-part batches.  A message whose
successors have the same headers (as many parts, of the same sizes) is the first of a *run*: the run is found
by comparing bytes, and is cut by one ``struct`` call (``_run``).

A large frame that is incomplete at the end of a read gets a buffer of its own, into which the host
receives the rest (``room``, ``filled``).  Its body is copied once, and not three times; then the buffer is
free for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import PLAIN, Batch, batch_of
from kernel.contracts.strides import cut
from plugins.protocols.zmtp.faults import HandshakeFault
from plugins.protocols.zmtp.frames import (
    COMMAND,
    LONG,
    LONG_HEADER,
    MORE,
    RESERVED,
    SHORT_HEADER,
    Framing,
    measure,
    run_length,
)

if TYPE_CHECKING:
    from plugins.protocols.zmtp.sealing import Opener

_RUN_PARTS = 16
"""Parts of the messages of which runs are looked for, at most."""

_LARGE_FROM = 32 * 1024
"""Bytes of a body for which it pays to have a buffer."""

_GROWTH = 4
"""The buffer is at most this many times as large as what has come.  So a peer cannot make us allocate memory
by only announcing a large message."""

_BEGINNING = 4096
"""Bytes to read where a large frame may begin, so that the rest of it is received into its buffer."""

_SPARE = 8 * 1024 * 1024
"""Bytes of the largest buffer that is kept for the next frame of its size."""


_LONGEST_LONE = 2 * SHORT_HEADER + 255
"""Bytes of the longest message that ``Decoder._lone`` takes."""

_EMPTY_PART = bytes((MORE, 0, 0))
"""An empty part, and the flags of the last part behind it."""


# Peers choose these sizes, so the table has a limit.
@lru_cache(1024)
def _cutter(head: int, sizes: tuple[int, ...]) -> Struct:
    return Struct("".join(f"{head}x{size}s" for size in sizes))


class Decoder:
    """Decodes what one connection receives behind the greeting.

    ``on_command`` is called with the body of each command, in order with the messages, and ``on_identity``
    with the identity of a peer of 1.0 or 2.0.
    """

    opener: Opener | None = None
    """For ``SealedDecoder``.  Set by ``on_command`` when the handshake is over, maybe in the
    middle of a read."""
    buffers_large = True
    """Whether large frames get a buffer of their own."""
    messages_in_frames = True
    """Whether frames have the parts of messages as they are."""

    def __init__(
        self,
        framing: Framing,
        max_message: int,
        max_parts: int,
        on_command: Callable[[bytes], None],
        on_identity: Callable[[bytes], None],
    ) -> None:
        self._framing = framing
        self._max_message = max_message
        self._max_parts = max_parts
        self._on_command = on_command
        self._on_identity = on_identity
        self.max_command = 0
        self.messages_allowed = False
        """False during a handshake: only commands may come."""
        # Versions 1.0 and 2.0 have the identity of the peer in the first frame.
        self._identity_comes = framing.version < 3
        # Those of 1.0 and of WebSocket have other headers.
        self.one_possible: bool = self.messages_in_frames and framing.measure is measure
        self._rest = bytearray()
        """Bytes of an incomplete frame."""
        self._needed = 0
        """How many bytes ``_rest`` has to have before it is worth looking again."""
        self._large: bytearray | None = None
        """The body of a large frame, as far as it has come or is to come next."""
        self._large_size = self._large_flags = self._filled = 0
        self._spare: bytearray | None = None
        """The buffer of the last large frame, whose successor mostly has its size."""
        self._parts: list[bytes] = []
        """The parts that have come of an incomplete message, and the sum of their sizes."""
        self._parts_size = 0
        self.parts_alone = False
        """Whether the limit is for each part, and not for all parts of a message together."""
        self._batches: list[Batch] = []
        self._bodies: list[Any] = []
        self._multipart = False

    def in_message(self) -> bool:
        """Whether the bytes so far end in the middle of a frame or message."""
        return bool(self._rest or self._parts) or self._large is not None

    def decode(self, data: bytes) -> list[Batch]:
        """Return the batches that ``data`` completes.

        Raises ``RemoteProtocolError``, whose ``batches`` are those that were complete before the error.
        """
        if self._large is not None:
            return self._decode_large(data)
        # ``read_hint`` has had its use of it: what follows the large frame is here.
        self._large_size = 0
        rest = self._rest
        if rest:
            # Only collected: a frame that comes in many small reads is looked at once, and not with each of
            # them.
            if len(rest) + len(data) < self._needed:
                rest += data
                return []
            # One copy, and not two: mostly a little of the last read is joined with a large one.
            data = b"".join((rest, data))
            self._rest = bytearray()
        batches = self._batches = []
        if len(data) <= _LONGEST_LONE and self._lone(data, len(data)):
            return batches
        try:
            position = self._frames(data)
        except RemoteProtocolError as error:
            error.batches = batches
            raise
        if position < len(data) and not self._begin_large(data, position):
            self._rest = bytearray(data[position:] if position else data)
        return batches

    # ------------------------------------------------------------------ large frames

    def room(self) -> memoryview:
        """Return the free part of the buffer while a large frame is incomplete; else an empty view."""
        return memoryview(self._large)[self._filled :] if self._large is not None else memoryview(b"")

    def read_hint(self, usual: int) -> int:
        """Return how many bytes to read next.  ``usual``: the size that would be read otherwise.

        0: the next bytes are for ``room``.
        """
        if self._large is not None:
            return 0
        # The last frame was large, and most often the next one is. Then its beginning is enough: bytes that
        # come with it have to be copied once more.
        return _BEGINNING if self._large_size > usual else usual

    def filled(self, count: int) -> list[Batch]:
        """``count`` bytes were received into ``room``; return the batches that they complete."""
        large, size = self._large, self._large_size
        assert large is not None
        self._filled += count
        if self._filled < len(large):
            return []
        if self._filled < size:
            # The peer has sent all that it was given room for, so it gets four times as much.
            large.extend(bytes(min(size, _GROWTH * len(large)) - len(large)))
            return []
        self._large = None
        self._spare = large if size <= _SPARE else None
        batches = self._batches = []
        # ``bytes`` copies: the buffer serves the next frame, and applications of ØMQ expect ``bytes``.
        if self._large_flags & MORE:
            self._take_part(bytes(large))
        else:
            self._end_message(bytes(large))
            self._end_batch()
        return batches

    def _begin_large(self, data: bytes, position: int) -> bool:
        """Give the incomplete frame at ``position`` a buffer, if it is a large one."""
        flags, head, size = self._framing.measure(data, position)
        if (
            not head
            or size < _LARGE_FROM
            or flags & COMMAND
            or self._identity_comes
            or not self.buffers_large
        ):
            return False
        received = len(data) - position - head
        large = self._spare
        # Only one of just that size: ``room`` must end where the body ends.
        if large is None or len(large) != size:
            large = bytearray(min(size, max(_GROWTH * received, _BEGINNING)))
        large[:received] = memoryview(data)[position + head :]
        self._large, self._large_size, self._large_flags, self._filled = large, size, flags, received
        return True

    def _decode_large(self, data: bytes) -> list[Batch]:
        """Decode what a wire has read that cannot receive into ``room``, such as TLS."""
        batches: list[Batch] = []
        at = 0
        while self._large is not None and at < len(data):
            with self.room() as view:
                count = min(len(view), len(data) - at)
                view[:count] = data[at : at + count]
            at += count
            # Behind the view: a bytearray cannot be resized while there is one.
            batches += self.filled(count)
        if at == len(data):
            return batches
        try:
            return batches + self.decode(data[at:])
        except RemoteProtocolError as error:
            error.batches = [*batches, *error.batches]
            raise

    def _frames(self, data: bytes) -> int:
        """Decode all complete frames; return the position of the first incomplete one."""
        measure = self._framing.measure
        position, end = 0, len(data)
        # Where the present message begins in ``data``; -1: it began earlier, or has a long frame.
        begin = 0 if not self._parts else -1
        try:
            while position < end:
                flags, head, size = measure(data, position)
                # Before the frame is there: nothing is collected of what is too large, or is no ZMTP.
                self._check_flags(flags)
                if not head:
                    self._needed = end - position + 1
                    return position
                if flags & COMMAND:
                    self._check_command(size)
                else:
                    self._check_size(size)
                start = position + head
                following = start + size
                if following > end:
                    self._needed = following - position
                    return position
                body = data[start:following]
                position = following
                if flags & COMMAND:
                    # It may allow messages, or set ``opener``: what stands behind it in this read is looked
                    # at after that.
                    self._on_command(body)
                    # A command between two parts: no run is looked for.
                    begin = -1 if self._parts else following
                elif self._identity_comes:
                    self._identity_comes = False
                    self._on_identity(body)
                    begin = following
                elif flags & MORE:
                    self._take_part(body)
                    # A run is cut with headers of two bytes, so a message with a long frame is none that
                    # could begin one.
                    if head != SHORT_HEADER:
                        begin = -1
                else:
                    sizes = self._end_message(body)
                    if begin >= 0 and head == SHORT_HEADER and position + SHORT_HEADER <= end:
                        position += self._run(data, begin, position, sizes)
                    begin = position
        # Also after an error: the messages before the faulty frame count as received.
        finally:
            self._end_batch()
        return position

    def _lone(self, data: bytes, end: int) -> bool:
        """Take one short message, of one part or behind an empty part, if ``data`` is that and nothing else.

        The same as ``_frames`` does in five times as many calls.
        """
        if (
            self._parts
            or not self.messages_allowed
            or self._identity_comes
            or not self.one_possible
            or end < 2
        ):
            return False
        # No flags, and the size of the rest.
        if not data[0]:
            size = end - SHORT_HEADER
            if data[1] != size or size > self._max_message:
                return False
            self._batches.append(Batch([data[SHORT_HEADER:]], size, PLAIN, False, size))
            return True
        # MORE with the size 0, then no flags.
        size = end - 2 * SHORT_HEADER
        if size < 0 or not data.startswith(_EMPTY_PART) or data[SHORT_HEADER + 1] != size:
            return False
        if size > self._max_message or self._max_parts < 2:
            return False
        self._batches.append(Batch([(b"", data[2 * SHORT_HEADER :])], size, PLAIN, True))
        return True

    def one(self, data: bytes, before: bytes) -> bytes | None:
        """Return the body if ``data`` is one message, of one frame behind ``before``; else None.

        Changes nothing.
        """
        at = len(before)
        size = len(data) - at - SHORT_HEADER
        if (
            size < 0
            or self._rest
            or self._parts
            or self._large is not None
            or self._identity_comes
            or not (self.messages_allowed and self.one_possible)
            or (at and not data.startswith(before))
        ):
            return None
        flags, at = data[at], at + SHORT_HEADER
        if flags:
            at += LONG_HEADER - SHORT_HEADER
            size = len(data) - at
            # Only with LONG as its flag. The size of a large body may be anything.
            if flags != LONG or int.from_bytes(data[at - 8 : at], "big") != size:
                return None
        elif data[at - 1] != size:
            return None
        if size > self._max_message or (before and self._max_parts < 2):
            return None
        return data[at:]

    def _take_part(self, body: bytes) -> None:
        # With the part that has to follow this one.
        if len(self._parts) + 1 >= self._max_parts:
            raise RemoteProtocolError(f"a message of more than {self._max_parts} parts (max_parts)")
        self._parts.append(body)
        if not self.parts_alone:
            self._parts_size += len(body)

    def _end_message(self, body: bytes) -> tuple[int, ...]:
        """Take the last part of a message; return the sizes of all parts."""
        parts = self._parts
        if not parts:
            self._append(multipart=False)
            self._bodies.append(body)
            return (len(body),)
        message = (*parts, body)
        self._parts = []
        self._parts_size = 0
        self._append(multipart=True)
        self._bodies.append(message)
        return tuple(map(len, message)) if len(message) <= _RUN_PARTS else ()

    def _run(self, data: bytes, begin: int, position: int, sizes: tuple[int, ...]) -> int:
        """Take the messages from ``position`` on that look as the one before.

        Return how many bytes they have.
        """
        # Most often the first two bytes tell that there is no run.
        if not sizes or data[position : position + 2] != data[begin : begin + 2]:
            return 0
        stride = position - begin
        # Whole messages only. The rest of the read is looked at frame by frame.
        most = (len(data) - begin) // stride
        # Without the first one, which is the pattern and was taken already.
        count = run_length(data, begin, stride, _heads(sizes), most) - 1
        if not count:
            return 0
        if self._multipart:
            octets = memoryview(data)[position : position + count * stride]
            self._bodies += _cutter(SHORT_HEADER, sizes).iter_unpack(octets)
        else:
            self._bodies += cut(data, position, (SHORT_HEADER, sizes[0]), count)
        return count * stride

    def _append(self, *, multipart: bool) -> None:
        """Begin another batch if the next message has another form."""
        if multipart is not self._multipart:
            self._end_batch()
            self._multipart = multipart

    def _end_batch(self) -> None:
        if self._bodies:
            self._batches.append(batch_of(self._bodies, multipart=self._multipart))
            self._bodies = []

    def _check_flags(self, flags: int) -> None:
        # A command has one frame, and 2.0 has no commands.
        if flags & RESERVED or (flags & COMMAND and (flags & MORE or self._framing.version == 2)):
            raise RemoteProtocolError(f"a frame with flags {flags:#04x}")

    def _check_command(self, size: int) -> None:
        if size > self.max_command:
            raise RemoteProtocolError(f"a command of {size} bytes; {self.max_command} are allowed")

    def _check_size(self, size: int) -> None:
        if not self.messages_allowed:
            raise HandshakeFault("a message before the handshake is over", "unexpected-command")
        # The length of 1.0 counts the octet of the flags.
        if size < 0:
            raise RemoteProtocolError("a frame of ZMTP 1.0 with a length of 0")
        # With ``parts_alone`` the sum stays 0, and this is the limit of a part.
        if self._parts_size + size > self._max_message:
            raise RemoteProtocolError(
                f"a message of at least {self._parts_size + size} bytes; max_message is {self._max_message}"
            )


def _heads(sizes: tuple[int, ...]) -> Sequence[int]:
    """Return where the bytes of the headers of a message are whose parts have these sizes."""
    heads: list[int] = []
    at = 0
    for size in sizes:
        heads += (at, at + 1)
        at += SHORT_HEADER + size
    return heads
