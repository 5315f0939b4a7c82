"""What an SCTP engine lends of a conversation: lone messages, in the thread of the application.

The packets are made and read by ``plugins.protocols.sctp.lone``; here is what connects it with the streams of
a conversation and with a lease (``kernel.hosting.lease``).  What a message changes is stored in one function
each, without a call in between: a handler of a signal, which may raise, finds all of it or nothing.  The
objects whose state that is are those of the association and of the streams, where the usual way is.  A test
compares what both ways leave behind.

Everything but one whole message of the one peer goes back to the thread of the engine: control chunks, chunks
of several messages, gaps, packets of others, and a window that has to be told.  That thread also has the
timers.  What a lease makes due, as T3-rtx or a delayed SACK, is armed at its next look (``LentWire``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kernel.hosting.connection import LOOK
from kernel.hosting.datagram_wire import Address
from kernel.hosting.lease import HasTurn, Lease, Passed, Withholding
from kernel.hosting.lent_wire import LentWire, end_with_routes, pipe_to
from plugins.engines.sctp.framing import Kind
from plugins.engines.sctp.sctp_stream import SctpStream
from plugins.protocols.backend.units import one_unit, only_body
from plugins.protocols.sctp.association import Association
from plugins.protocols.sctp.lone import Sent, Taken, incoming, outgoing
from plugins.protocols.sctp.states import State

if TYPE_CHECKING:
    from plugins.engines.sctp.conversation import Conversation
    from plugins.engines.sctp.endpoint_host import EndpointHost


class LoneHalf:
    """``Half``: both directions of a conversation.  It sends on one stream, and receives on all."""

    withheld: bool = False
    """No message waits for another one here."""
    addresses = None

    def __init__(
        self,
        host: EndpointHost,
        conversation: Conversation,
        association: Association,
        stream: SctpStream,
        wire: LentWire,
        holder: HasTurn,
        peer: Address,
        pipes: Sequence[Passed],
    ) -> None:
        """``pipes``: where the messages of each stream go on the usual way."""
        assert stream.output is not None
        self.connection = wire
        self.holder = holder
        self._endpoint, self._conversation, self._association = host, conversation, association
        self._stream, self._output = stream, stream.output
        self._path = association.paths.all[0]
        self._peer, self._pipes = peer, pipes
        self._now = conversation.host.now
        self._plain = conversation.plain
        self._protocol = conversation.options.protocol_id if self._plain else int(Kind.UNIT)
        self._most = conversation.options.max_message
        self._sent: Sent | None = None
        self._taken: Taken | None = None

    @property
    def descriptor(self) -> int:
        """That of the socket."""
        return self.connection.wire.fileno()

    @property
    def withholding(self) -> Withholding:
        """This half itself."""
        return self

    def sending(self) -> tuple[Callable[..., int], Address]:
        """See ``Half``."""
        return self.connection.wire.sender(), self._peer

    def receiving(self) -> tuple[Callable[[int], Any], int]:
        """See ``Half``."""
        return self.connection.wire.reader()

    # ------------------------------------------------------------------ out

    def encode(self, body: bytes) -> bytes | None:
        """Return the packet of a message; None: the usual way is needed."""
        size = len(body)
        # What is larger than a packet need not be copied first.
        if size > self._path.probing.size or self._conversation.ended or not self._output.sends_at_once(size):
            return None
        unit = body if self._plain else one_unit(body)
        sent = self._sent = outgoing(
            self._association, self._path, self._stream.number, unit, self._protocol, self._now()
        )
        return None if sent is None else sent.packet

    def note_sent(
        self, lease: Lease, sent: list[int], size: int, length: int, *, interrupted: bool = False
    ) -> None:
        """Note what ``Sender``, ``Outstanding``, ``Receiver`` and ``StreamOutput`` note on the usual way."""
        made, association, output, path = self._sent, self._association, self._output, self._path
        assert made is not None
        assert association.receiver is not None
        sender, receiver, endpoint = association.sender, association.receiver, self._endpoint
        outstanding, numbers, waiting = sender.outstanding, sender.numbers[False], self._conversation.waiting
        bundle, message, bundles, pipe = made.bundle, made.message, outstanding.bundles, lease.outgoing
        in_flight, bytes_of = output.in_flight, bundle.size
        # No call from here on.
        if not sent:
            return
        del sent[:]
        # Outstanding
        outstanding.next_tsn = bundle.last + 1
        outstanding.bytes += bytes_of
        outstanding.flight += bytes_of
        bundles += (bundle,)
        if path.timed is None:
            path.timed = bundle.first
        path.flight += bytes_of
        path.last_sent = made.now
        if path.retransmission_due is None:
            path.retransmission_due = made.now + path.rto
        # Sender
        numbers[message.stream] = message.number + 1
        # Receiver: its SACK went with the message.
        if made.sack_window >= 0:
            receiver.sack_due = None
            receiver.packets = 0
            receiver.told_window = made.sack_window
        # StreamOutput and Conversation
        in_flight += ((message, 0),)
        output.messages += 1
        output.sent_bytes += bytes_of
        output.unacknowledged += bytes_of
        waiting[self._stream] = None
        # Endpoint: it looks at the deadlines of those that were touched.
        association.touched[association] = None
        endpoint.packets_out += 1
        endpoint.bytes_out += size
        lease.trips += 1
        if not interrupted:
            pipe.written += 1
            pipe.taken += 1
            pipe.bytes_taken += length

    def note_interrupted(self, lease: Lease, data: bytes, length: int, sent: int) -> None:
        """As ``note_sent``, in the thread of the engine.  A datagram is sent as a whole."""
        self.note_sent(lease, [sent], len(data), length, interrupted=True)

    # ------------------------------------------------------------------ in

    def decode(self, got: Any) -> Any:
        """Return the body of a message that came by itself; else None."""
        packet, ancillary, _, address = got
        # With ancillary data it is several packets (``DatagramWire``).
        if ancillary or address != self._peer or self._conversation.ended:
            return None
        taken = self._taken = incoming(self._association, self._path, packet, self._now())
        if taken is None or not self._fits(taken):
            return None
        if self._plain:
            return taken.data
        return only_body(taken.data) if taken.protocol == Kind.UNIT else None

    def _fits(self, taken: Taken) -> bool:
        """Whether a message, and what came with it, concerns nobody else."""
        size, streams = len(taken.data), self._conversation.streams
        if taken.stream >= len(streams) or not streams[taken.stream].input.delivers_at_once(size):
            return False
        bundle = taken.bundle
        # Messages of other streams, and control messages, are counted elsewhere.
        return size <= self._most and (
            bundle is None or self._output.acknowledges_the_only(bundle.messages[0], bundle.size)
        )

    def note_received(self, lease: Lease, got: list[Any], body: Any) -> bool:
        """Note what ``Receiver``, ``StreamInput``, ``Outstanding`` and others note on the usual way."""
        taken, association, output, path = self._taken, self._association, self._output, self._path
        assert taken is not None
        assert association.receiver is not None
        sender, receiver, endpoint = association.sender, association.receiver, self._endpoint
        outstanding, expected, received = sender.outstanding, receiver.expected[False], receiver.received
        bundle, bundles, paths = taken.bundle, outstanding.bundles, association.paths
        stream = self._conversation.streams[taken.stream].input
        pipe, in_flight, probing = self._pipes[taken.stream], output.in_flight, path.probing
        size, length, packet = len(taken.data), len(body), len(got[0][0]) if got else 0
        number, waiting = expected.get(taken.stream, 0), self._conversation.waiting
        # No call from here on.
        if not got:
            return False
        del got[:]
        lease.kept = body
        # Receiver
        received.cumulative += 1
        expected[taken.stream] = number + 1
        receiver.packets += 1
        receiver.sack_due = taken.sack_due
        association.output.sack_to = path.address
        # StreamInput
        stream.received += size
        stream.messages += 1
        # Sender, Outstanding, Path and StreamOutput: what a SACK has acknowledged.
        if bundle is not None:
            acknowledged, message = bundle.size, bundle.messages[0]
            sender.peer_window = taken.window
            outstanding.cumulative = outstanding.advanced = bundle.last
            outstanding.bytes -= acknowledged
            outstanding.flight -= acknowledged
            del bundles[:]
            bundle.in_flight = False
            message.fragments = 0
            path.flight -= acknowledged
            path.srtt, path.rttvar, path.rto = taken.times
            path.timed = taken.timed
            path.partial_bytes_acked = taken.partial_bytes_acked
            path.errors = paths.errors = 0
            path.retransmission_due = None
            probing.timeouts = 0
            del in_flight[0]
            if self._stream in waiting:
                del waiting[self._stream]
            output.unacknowledged -= acknowledged
            output.acknowledged += acknowledged
        association.touched[association] = None
        endpoint.packets_in += 1
        endpoint.bytes_in += packet
        lease.trips += 1
        lease.received += 1
        pipe.written += 1
        pipe.taken += 1
        pipe.bytes_taken += length
        return True


def offer(
    host: EndpointHost, conversation: Conversation, stream: SctpStream, wire: LentWire, lease: Lease
) -> None:
    """Offer a lease to an application that exchanges all messages with the one peer of this endpoint."""
    association, ports, options = conversation.association, conversation.ports, conversation.options.sctp
    if (
        lease.addressed
        or lease.sends is not None
        # In one direction every second packet is acknowledged at once, which the thread of the engine does.
        or lease.outgoing is None
        or lease.source is None
        or not isinstance(association, Association)
        or association.state is not State.ESTABLISHED
        or association.output.ecn.agreed
        or conversation.ended
        or stream.output is None
        # Packets of others would have to go back, each time.
        or len(host.conversations) != 1
        or len(association.paths.all) != 1
        or not association.paths.all[0].usable()
        # Timers are armed when the lease is looked at.
        or options.rto_min < LOOK
    ):
        return
    pipes = [pipe for port in ports if (pipe := pipe_to(lease, port)) is not None]
    peer, holder = host.socket_address_of(association), wire.holder()
    if lease.source not in ports or len(pipes) < len(ports) or peer is None or holder is None:
        return
    half = LoneHalf(host, conversation, association, stream, wire, holder, peer, pipes)
    lease.offer(half, half, pipes[0], conversation.host.post)
    for port in ports:
        end_with_routes(lease, port)
