"""Units: the backend protocol for transports of whole messages, such as SCTP and PGM.

A unit is an ENVELOPE frame (with number 0; left out for the empty envelope) followed by message frames, to
all of which the envelope applies.  A receiver understands each unit without those before it.  A unit has as
many messages as fit.  A message that is too large has a unit of its own, which the transport has to split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import PLAIN, Batch, Envelope
from plugins.protocols.backend.decoder import Decoder
from plugins.protocols.backend.frames import LONG, LONG_HEADER, Control, control_frame, encode_bodies, header
from plugins.protocols.backend.greeting import decode_envelope, encode_readable_envelope

NUMBER = bytes(4)
"""The number of the only envelope of a unit."""


class UnitEncoder:
    """Encodes batches as units of at most ``unit_size`` bytes, except for larger messages."""

    def __init__(self, unit_size: int) -> None:
        self._size = unit_size
        self._envelope = PLAIN
        self._frame = b""
        self.refused = 0
        """Messages that were left out because their envelope cannot be encoded, or not decoded by the
        receiver."""
        self.problem = ""
        """The reason for the last of these."""

    def encode(self, batches: Sequence[Batch]) -> list[bytes]:
        """Return the units of these batches, in order."""
        units: list[bytes] = []
        for batch in batches:
            # ``_use`` encodes the envelope once for all units that follow.
            if batch.envelope is not self._envelope and not self._use(batch.envelope):
                self.refused += len(batch.bodies)
                continue
            units += self._multipart(batch) if batch.multipart else self._plain(batch)
        return units

    def encode_one(self, body: bytes) -> bytes | None:
        """Return the unit of one message under the empty envelope.  Changes nothing."""
        return one_unit(body)

    def _use(self, envelope: Envelope) -> bool:
        """Use this envelope for the units that follow; False if it cannot be encoded."""
        try:
            self._frame = b"" if envelope is PLAIN else _envelope_frame(envelope)
        except ValueError as error:
            self.problem = str(error)
            return False
        self._envelope = envelope
        return True

    def _plain(self, batch: Batch) -> Iterator[bytes]:
        # ``begin``: the first message of the current unit.  ``taken``: the bytes of its messages so far.
        room = self._size - len(self._frame)
        bodies = batch.bodies
        begin = taken = 0
        for at, body in enumerate(bodies):
            size = len(header(len(body))) + len(body)
            # ``taken`` is 0 for the first message of a unit, which is included whatever its size.
            if taken and taken + size > room:
                yield b"".join((self._frame, *encode_bodies(bodies[begin:at], batch.width)))
                begin, taken = at, 0
            taken += size
        yield b"".join((self._frame, *encode_bodies(bodies[begin:], batch.width)))

    def _multipart(self, batch: Batch) -> Iterator[bytes]:
        for parts in batch.bodies:
            payload = b"".join(buffer for part in parts for buffer in (header(len(part)), part))
            yield self._frame + control_frame(Control.PARTS, payload)


def _envelope_frame(envelope: Envelope) -> bytes:
    return control_frame(Control.ENVELOPE, NUMBER + encode_readable_envelope(envelope))


class UnitDecoder:
    """Decodes the units of one source."""

    def __init__(self, max_message: int) -> None:
        self.malformed = 0
        """Units that could not be decoded."""
        self._max_message = max_message
        self._decoder = Decoder(max_message, self._on_control)
        self._known = b""
        self._envelope = PLAIN

    def decode(self, units: Sequence[bytes | None]) -> list[Batch]:
        """Decode units into batches.  None stands for lost units, which do not affect the others."""
        batches: list[Batch] = []
        for unit in units:
            if unit is None:
                continue
            # A unit without an ENVELOPE frame has the empty envelope, whatever the unit before it had.
            self._decoder.envelope = PLAIN
            try:
                batches += self._decoder.decode(unit)
            except RemoteProtocolError:
                self._count_malformed()
            else:
                # A unit ends with a frame.  The rest of an incomplete one must not be joined with the next
                # unit.
                if self._decoder.in_message():
                    self._count_malformed()
        return batches

    def decode_one(self, unit: bytes) -> bytes | None:
        """Return the body if a unit is one message under the empty envelope; else None.  Changes nothing."""
        body = only_body(unit)
        return None if body is None or len(body) > self._max_message else body

    def _count_malformed(self) -> None:
        self.malformed += 1
        # A new decoder forgets the bytes that were not decoded.
        self._decoder = Decoder(self._max_message, self._on_control)

    def _on_control(self, control: Control, payload: bytes) -> None:
        if control is not Control.ENVELOPE or payload[:4] != NUMBER:
            raise RemoteProtocolError(f"{control.name} in a unit")
        # Consecutive units mostly have the same envelope.  Equal octets give the same object, so that batches
        # can be joined behind this.
        if payload != self._known:
            self._envelope = decode_envelope(payload[4:])
            self._known = payload
        self._decoder.envelope = self._envelope


def one_unit(body: bytes) -> bytes:
    """Return the unit of one message under the empty envelope."""
    return header(len(body)) + body


def only_body(unit: bytes) -> bytes | None:
    """Return the body if a unit is one message under the empty envelope; None: it has to be decoded."""
    size = len(unit)
    if not size:
        return None
    if unit[0] < LONG:
        return unit[1:] if unit[0] == size - 1 else None
    # A control frame has the highest bit of the length, which no message is long enough for.
    if size >= LONG_HEADER and int.from_bytes(unit[1:LONG_HEADER], "big") == size - LONG_HEADER:
        return unit[LONG_HEADER:]
    return None
