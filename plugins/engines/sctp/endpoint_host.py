"""Endpoint host: where an SCTP endpoint meets sockets and a clock.

It is passive: it is called when a socket is readable, when a protocol deadline has come, and by conversations
that have something to send. The UDP ports of RFC 6951 are known here only. An association's packets go to the
UDP port that its last verified packet came from (5.4 there); answers to packets without an association go
back to the port that the packet came from.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from kernel.contracts.engine import EngineEvent, Host
from kernel.hosting.datagram_wire import Address, DatagramWire
from kernel.hosting.lazy_timer import LazyTimer
from kernel.hosting.lease import Lease
from kernel.hosting.lent_wire import LentWire
from plugins.engines.sctp.conversation import Conversation
from plugins.engines.sctp.conversation_host import ConversationHost, Converse
from plugins.engines.sctp.location import UDP_PORT
from plugins.engines.sctp.lone_half import offer
from plugins.engines.sctp.options import SctpEngineOptions
from plugins.engines.sctp.sctp_stream import SctpStream
from plugins.engines.sctp.transport import Transport, packed
from plugins.protocols.sctp.association import Association
from plugins.protocols.sctp.chunks import Type
from plugins.protocols.sctp.endpoint import Endpoint
from plugins.protocols.sctp.probing import is_probe

READS_PER_TURN = 16
"""System calls before other engines of the thread have their turn. Each may return 64 KiB."""

_HEAD = Struct("!HHI")
"""SCTP ports and verification tag."""
_HEAD_OF_INIT = Struct("!HHI4xB3xI")
"""The same, the type of the first chunk, and the initiate tag if that is INIT."""


class EndpointHost(ConversationHost[Association]):
    """One endpoint, and a conversation for each association."""

    def __init__(
        self,
        host: Host,
        engine: str,
        transport: Transport,
        endpoint: Endpoint,
        options: SctpEngineOptions,
        converse: Converse,
        *,
        ports: tuple[int, int],
    ) -> None:
        """Make a host; ``ports`` are our SCTP port, and the UDP port of peers that were not heard yet."""
        super().__init__(host, engine, options, converse)
        self.transport = transport
        self.endpoint = endpoint
        self.bytes_in = self.bytes_out = self.packets_in = self.packets_out = 0
        self._closed = False
        self.port, self._udp_port = ports
        self.udp_port = None if transport.udp_port == UDP_PORT else transport.udp_port
        self._udp_ports: dict[tuple[bytes, int], tuple[int, Association]] = {}
        """The peers' UDP ports, by address and SCTP port. RFC 6951, 5.1: one for each destination address."""
        self._reply_ports: dict[tuple[bytes, int], int] = {}
        """UDP source ports of packets without an association, of one turn."""
        self._timer = LazyTimer(host, self._on_timer)
        self._drop_reported = False
        self._lent = {wire: self._lendable(wire) for wire in transport.wires}
        for lent in self._lent.values():
            lent.start()

    def connect(self, addresses: list[bytes], port: int) -> Conversation:
        """Start an association with the peer that has these addresses."""
        association = self.endpoint.connect(addresses, port, self.host.now())
        # Before anything is sent: INIT goes to the configured port, the peer's own is known when it answers.
        for address in addresses:
            self._udp_ports[address, port] = self._udp_port, association
        conversation = self._converse(self, association)
        # Only a listener's ``converse`` refuses.
        assert conversation is not None
        self.conversations[association] = conversation
        self.flush()
        return conversation

    def _flusher(self, association: Association) -> Callable[[], Any]:
        return self.flush

    def close(self) -> None:
        """Close the sockets."""
        self._closed = True
        for lent in self._lent.values():
            lent.close()
        self.transport.close()

    def repeats_until(self) -> float:
        """Return until when a peer may repeat its SHUTDOWN ACK."""
        return self.endpoint.answers_until

    # ------------------------------------------------------------------ in

    def _lendable(self, wire: DatagramWire) -> LentWire:
        return LentWire(
            self.host,
            wire,
            readable=lambda: self._on_readable(wire),
            writable=lambda: self._on_writable(wire),
            used=self._arm,
        )

    def _on_readable(self, wire: DatagramWire) -> None:
        now = self.host.now()
        receive = self.endpoint.receive_data
        # Conversations look at their associations once for all packets that were read together, as
        # acknowledgements are sent once (docs/decisions/0012-sctp.md).
        touched: dict[Association, None] = {}
        for datagrams, address in wire.receive(READS_PER_TURN):
            source = packed(address[0])
            self.packets_in += len(datagrams)
            for datagram in datagrams:
                self.bytes_in += len(datagram)
                association = receive(datagram, source, now)
                if association is not None:
                    touched[association] = None
                    # ``receive_data`` returns an association only for a packet whose verification tag was
                    # correct: RFC 6951, 5.4, stores the port after that check, so that a forged packet cannot
                    # redirect an association.
                    if self._udp_ports.get((source, association.peer_port)) != (address[1], association):
                        self._learn(association, source, address[1])
                # ABORT, INIT ACK and the like go back to where the packet came from (``_udp_port_of``), in
                # this turn.
                elif len(datagram) >= _HEAD.size:
                    self._reply_ports[source, _HEAD.unpack_from(datagram)[0]] = address[1]
        for association in touched:
            self._progress(association, now)
        if wire.refused:
            for data, address in wire.take_refused():
                self._on_refused(data, address)
        self.flush()
        # After the flush that sent the answers. Kept longer, they would grow with every stranger.
        self._reply_ports.clear()

    def _on_refused(self, data: bytes, address: Address) -> None:
        """Process an ICMP error for a packet of ours: nobody listens on that UDP port.

        The error quotes our packet. Only if the quoted tags are those of an association is it believed, and
        ends the association like an ABORT (RFC 6951, 5.5).
        """
        if len(data) < _HEAD_OF_INIT.size:
            return
        _, port, tag, kind, first_tag = _HEAD_OF_INIT.unpack_from(data)
        source = packed(address[0])
        # Ending a conversation removes it here, so a copy is walked. There is no index by UDP port: this is
        # rare.
        for association in list(self.conversations):
            if association.peer_port != port or association.paths.at(source) is None:
                continue
            # An INIT has verification tag 0, and is known by the initiate tag behind it.
            if tag == association.output.peer_tag != 0 or (
                not tag and kind == Type.INIT and first_tag == association.tag
            ):
                association.peer_is_gone(f"nobody listens on UDP port {address[1]} of {address[0]}")
                self._progress(association, self.host.now())

    def _learn(self, association: Association, source: bytes, udp_port: int) -> None:
        """Remember a peer's UDP port.

        Its other addresses are assumed to use the same until they are heard.
        """
        port = association.peer_port
        self._udp_ports[source, port] = udp_port, association
        # A port that was heard is not replaced by an assumption.
        for path in association.paths.all:
            self._udp_ports.setdefault((path.address, port), (udp_port, association))

    def _on_timer(self) -> None:
        self._settle()
        now = self.host.now()
        for association in self.endpoint.handle_timeout(now):
            # A timer makes events (a path is down, the association is lost), but no messages.
            if association.events:
                self._progress(association, now)
        self.flush()

    # ------------------------------------------------------------------ out

    def flush(self) -> None:
        """Send what is due, and set the timer for the next deadline."""
        # A deferred call may come after ``close``.
        if self._closed:
            return
        self._settle()
        now = self.host.now()
        at, packets = 0, self.endpoint.data_to_send(now)
        while at < len(packets):
            address, packet = packets[at]
            head = packet[: _HEAD.size]
            end = at + 1
            # Packets of one association to one address are sent together: with UDP_SEGMENT, one system call
            # takes many.
            while end < len(packets) and packets[end][0] == address and packets[end][1][: _HEAD.size] == head:
                end += 1
            self._send(address, head, [packet for _, packet in packets[at:end]])
            at = end
        # Their last packets were sent above, and needed the ports.
        while self._ended:
            association = self._ended.pop()
            # After a restart the same association has another conversation.
            if association not in self.conversations:
                for path in association.paths.all:
                    peer = (path.address, association.peer_port)
                    if peer in self._udp_ports and self._udp_ports[peer][1] is association:
                        del self._udp_ports[peer]
        # The rest of what the windows allow goes when other engines have had their turn.
        if self.endpoint.has_more():
            self.host.soon(self.flush)
        self._arm()

    def _arm(self) -> None:
        self._timer.arm(self.endpoint.next_deadline())

    def _udp_port_of(self, address: bytes, port: int, tag: int) -> int:
        """Return the UDP port to send to.

        A packet whose tag is not the association's answers a packet without one.
        """
        udp_port, association = self._udp_ports.get((address, port), (self._udp_port, None))
        # Tag 0 is an INIT of ours.
        if association is None or tag not in (0, association.output.peer_tag):
            return self._reply_ports.get((address, port), udp_port)
        return udp_port

    def _send(self, address: bytes, head: bytes, packets: list[bytes]) -> None:
        udp_port = self._udp_port_of(address, *_HEAD.unpack(head)[1:])
        wire = self.transport.wire_to(address)
        self.packets_out += len(packets)
        self.bytes_out += sum(map(len, packets))
        target = self.transport.socket_address(address, udp_port)
        # A probe is sent in a call of its own, because IP must not fragment it. It is the first of its
        # packets: ``Output`` sends what is complete before it fills others.
        if is_probe(packets[0]):
            wire.probe(packets[0], target)
            packets = packets[1:]
        if not wire.send(packets, target):
            self._lent[wire].write(done=False)
        if wire.dropped and not self._drop_reported:
            self._drop_reported = True
            detail = f"the system refuses packets: {wire.refusal}; packets_refused counts them"
            self.host.report(EngineEvent(engine=self._engine, what="refused", detail=detail))

    def _on_writable(self, wire: DatagramWire) -> None:
        self._lent[wire].write(done=wire.flush())

    # ------------------------------------------------------------------ leases

    def _lend(self, conversation: Conversation, stream: SctpStream, lease: Lease) -> None:
        # With several addresses of ours there are several sockets, which would all have to be read.
        if len(self._lent) == 1:
            offer(self, conversation, stream, self._lent[self.transport.wires[0]], lease)

    def socket_address_of(self, association: Association) -> Address | None:
        """Return where the only path of an association leads to; None: it was not heard from there."""
        address = association.paths.all[0].address
        udp_port, known = self._udp_ports.get((address, association.peer_port), (0, None))
        return self.transport.socket_address(address, udp_port) if known is association else None

    def _settle(self) -> None:
        for lent in self._lent.values():
            lent.settle()

    def _forget(self, association: Association) -> None:
        super()._forget(association)
        for lent in self._lent.values():
            # It may be read for another association from now on.
            if lent.lease is not None:
                lent.lease.end_soon()

    def statistics(self) -> dict[str, int]:
        """Return counters of packets, and of those that belonged to no association."""
        statistics = self.endpoint.statistics
        return {
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "packets_in": self.packets_in,
            "packets_out": self.packets_out,
            "packets_refused": sum(wire.dropped for wire in self.transport.wires),
            **{f"packets_{name}": getattr(statistics, name) for name in statistics.__struct_fields__},
        }
