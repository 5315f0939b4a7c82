"""What PGM engines lend: a thread of the application sends lone messages to a group, or receives them.

Each half has one direction.  What a message changes is stored in one function without a call in between: a
handler of a signal, which may raise, finds all of it or nothing (``kernel.hosting.lease``).  A test compares
what is left behind with what the usual way leaves.

What is not one message in one packet without options, in its order, goes back to the thread of the engine,
which also has the timers: SPMs, repairs, the age of packets, and silence.  The source's timer is set again
when a lease is looked at, every 20 ms (``LentWire``); that of a receiver does not depend on data that came in
order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kernel.hosting.datagram_wire import Address
from kernel.hosting.lease import HasTurn, Lease, Passed, Withholding
from kernel.hosting.lent_wire import LentWire
from plugins.engines.pgm.framing import Decoder, Encoder
from plugins.protocols.pgm.receiver import LoneUnit, Receiver
from plugins.protocols.pgm.sequence import MASK
from plugins.protocols.pgm.source import LonePacket, Source


class Sending(Protocol):
    """The engine of a source, as far as it counts messages."""

    sent: int
    """Messages that were taken and sent."""
    quiet_at: float | None
    """When the last message was sent; None: there was none."""


class SourceHalf:
    """``Sends``, for a source whose engine has nothing else to send."""

    withheld: bool = False
    """No message waits for another one here."""
    addresses = None

    def __init__(
        self,
        wire: LentWire,
        holder: HasTurn,
        source: Source,
        group: Address,
        encoder: Encoder,
        engine: Sending,
        now: Callable[[], float],
    ) -> None:
        self.connection = wire
        self.holder = holder
        self._source, self._group, self._encoder, self._engine = source, group, encoder, engine
        self._now = now
        self._made: LonePacket | None = None

    @property
    def withholding(self) -> Withholding:
        """This half itself."""
        return self

    def sending(self) -> tuple[Callable[..., int], Address]:
        """See ``Sends``."""
        return self.connection.wire.sender(), self._group

    def encode(self, body: bytes) -> bytes | None:
        """Return the packet of a message; None: the usual way is needed."""
        unit = self._encoder.encode_one(body)
        made = self._made = None if unit is None else self._source.lone(unit, self._now())
        return None if made is None else made.packet

    def note_sent(
        self, lease: Lease, sent: list[int], size: int, length: int, *, interrupted: bool = False
    ) -> None:
        """Note what ``Source`` and the engine note on the usual way."""
        made, source, engine, pipe = self._made, self._source, self._engine, lease.outgoing
        assert made is not None
        window, bucket, spms, statistics = source.window, source.bucket, source.spms, source.statistics
        packets, ages, times = window.packets, window.ages, source.request_delay.sent
        # No call from here on.
        if not sent:
            return
        del sent[:]
        # TransmitWindow
        ages += made.ages
        packets[made.number] = made.packet
        window.lead = made.number
        window.bytes += size
        if made.leaves:
            del packets[window.trail]
            window.trail = (window.trail + 1) & MASK
            window.bytes -= made.oldest
        # Source
        bucket.at = made.now
        bucket.tokens = made.tokens
        times += ((made.number, made.now),)
        spms.interval = spms.first
        spms.heartbeat_at = made.now + spms.first
        statistics.packets_out += 1
        statistics.bytes_out += size
        # The engine
        engine.sent += 1
        engine.quiet_at = made.now
        lease.trips += 1
        if not interrupted:
            pipe.written += 1
            pipe.taken += 1
            pipe.bytes_taken += length

    def note_interrupted(self, lease: Lease, data: bytes, length: int, sent: int) -> None:
        """As ``note_sent``, in the thread of the engine.  A datagram is sent as a whole."""
        self.note_sent(lease, [sent], len(data), length, interrupted=True)


class Receiving(Protocol):
    """The engine of a receiver, as far as it counts messages."""

    messages: int
    """Messages that were received."""


class ReceiverHalf:
    """``Receives``, for all sources of a group."""

    def __init__(
        self,
        wire: LentWire,
        holder: HasTurn,
        receiver: Receiver,
        decoders: dict[bytes, Decoder],
        engine: Receiving,
        now: Callable[[], float],
    ) -> None:
        """``decoders``: one for each source that was heard, by its identifier (TSI)."""
        self.connection = wire
        self.holder = holder
        self._receiver, self._decoders, self._engine, self._now = receiver, decoders, engine, now
        self._taken: LoneUnit | None = None

    @property
    def descriptor(self) -> int:
        """That of the socket."""
        return self.connection.wire.fileno()

    def receiving(self) -> tuple[Callable[[int], Any], int]:
        """See ``Receives``."""
        return self.connection.wire.reader()

    def decode(self, got: Any) -> Any:
        """Return the body of a message that came by itself; else None."""
        packet, ancillary, _, address = got
        # With ancillary data it is several packets (``DatagramWire``).
        if ancillary:
            return None
        taken = self._taken = self._receiver.lone(packet, self._now(), address[0])
        if taken is None:
            return None
        decoder = self._decoders.get(taken.session.tsi)
        return None if decoder is None else decoder.decode_one(taken.unit)

    def note_received(self, lease: Lease, got: list[Any], body: Any) -> bool:
        """Note what ``Receiver`` and the engine note on the usual way."""
        taken, statistics, engine = self._taken, self._receiver.statistics, self._engine
        assert taken is not None
        session, window, length = taken.session, taken.session.window, len(body)
        assert window is not None
        pipe: Passed = lease.incoming
        # No call from here on.
        if not got:
            return False
        del got[:]
        lease.kept = body
        # Receiver, Session and ReceiveWindow
        statistics.packets_in += 1
        statistics.bytes_in += taken.size
        session.heard = taken.now
        session.trail = taken.trail
        window.next = (taken.number + 1) & MASK
        window.lead = taken.number
        # The engine
        engine.messages += 1
        lease.trips += 1
        lease.received += 1
        pipe.written += 1
        pipe.taken += 1
        pipe.bytes_taken += length
        return True
