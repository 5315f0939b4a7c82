"""Units: what transports of whole messages carry, an envelope and messages as the backend protocol has them.

A unit is an ENVELOPE frame (number 0), unless the envelope says nothing, and then frames of messages, all under it.
Whoever hears one unit understands it, whatever came before.  As many messages as fit share a unit; a larger one has a unit
for itself, which the transport cuts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import PLAIN, Batch, Envelope
from plugins.protocols.backend.decoder import Decoder
from plugins.protocols.backend.frames import Control, control_frame, encode_bodies, header
from plugins.protocols.backend.greeting import decode_envelope, encode_readable_envelope

NUMBER = bytes(4)
"""Of the one envelope of a unit."""


class UnitEncoder:
    """Batches to units of ``unit_size`` bytes, if they can be had as small."""

    def __init__(self, unit_size: int) -> None:
        self._size = unit_size
        self._envelope = PLAIN
        self._frame = b""
        self.refused = 0
        """Messages whose envelope cannot be written, or not be read: there are no units of them."""
        self.problem = ""
        """What was wrong with the last of these."""

    def encode(self, batches: Sequence[Batch]) -> list[bytes]:
        """Return units."""
        units: list[bytes] = []
        for batch in batches:
            if batch.envelope is not self._envelope and not self._use(batch.envelope):
                self.refused += len(batch.bodies)
                continue
            units += self._multipart(batch) if batch.multipart else self._plain(batch)
        return units

    def _use(self, envelope: Envelope) -> bool:
        """Put an envelope before the units that follow; False if that cannot be."""
        try:
            self._frame = b"" if envelope is PLAIN else _envelope_frame(envelope)
        except ValueError as error:
            self.problem = str(error)
            return False
        self._envelope = envelope
        return True

    def _plain(self, batch: Batch) -> Iterator[bytes]:
        room = self._size - len(self._frame)
        bodies = batch.bodies
        begin = taken = 0
        for at, body in enumerate(bodies):
            size = len(header(len(body))) + len(body)
            if taken and taken + size > room:
                yield b"".join((self._frame, *encode_bodies(bodies[begin:at], batch.width)))
                begin, taken = at, 0
            taken += size
        yield b"".join((self._frame, *encode_bodies(bodies[begin:], batch.width)))

    def _multipart(self, batch: Batch) -> Iterator[bytes]:
        for parts in batch.bodies:
            payload = b"".join(piece for part in parts for piece in (header(len(part)), part))
            yield self._frame + control_frame(Control.PARTS, payload)


def _envelope_frame(envelope: Envelope) -> bytes:
    return control_frame(Control.ENVELOPE, NUMBER + encode_readable_envelope(envelope))


class UnitDecoder:
    """Units of one source to batches."""

    def __init__(self, max_message: int) -> None:
        self.malformed = 0
        """Units that cannot be read."""
        self._max_message = max_message
        self._decoder = Decoder(max_message, self._on_control)
        self._known = b""
        self._envelope = PLAIN

    def decode(self, units: Sequence[bytes | None]) -> list[Batch]:
        """Take units; None where some were lost, which means nothing to the others."""
        batches: list[Batch] = []
        for unit in units:
            if unit is None:
                continue
            self._decoder.envelope = PLAIN
            try:
                batches += self._decoder.decode(unit)
            except RemoteProtocolError:
                self._spoilt()
            else:
                if self._decoder.in_message():
                    self._spoilt()
        return batches

    def _spoilt(self) -> None:
        self.malformed += 1
        self._decoder = Decoder(self._max_message, self._on_control)

    def _on_control(self, control: Control, payload: bytes) -> None:
        if control is not Control.ENVELOPE or payload[:4] != NUMBER:
            raise RemoteProtocolError(f"{control.name} in a unit")
        if payload != self._known:
            self._envelope = decode_envelope(payload[4:])
            self._known = payload
        self._decoder.envelope = self._envelope
