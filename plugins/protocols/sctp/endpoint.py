"""An endpoint: a port, the associations on it, and packets that belong to none (RFC 9260, 5.1, 5.2, 8.4, 8.5).

An INIT is answered from what it says and leaves nothing behind; memory is given to a peer that has come back with its cookie.
"""

from __future__ import annotations

import heapq
import itertools

import msgspec

from plugins.protocols.sctp import chunks, packets, parameters
from plugins.protocols.sctp.association import Association
from plugins.protocols.sctp.chunks import REFLECTED, Chunk, Init, Listed, Plain, Type
from plugins.protocols.sctp.errors import MalformedPacket
from plugins.protocols.sctp.events import Event, What
from plugins.protocols.sctp.handshake import Cookie, Offer, Refused, open_cookie, our_init, read_init
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.output import Packets
from plugins.protocols.sctp.packets import Packet
from plugins.protocols.sctp.parameters import Cause, Parameter
from plugins.protocols.sctp.secret import Secret
from plugins.protocols.sctp.states import State

_MAX_ANSWERS = 256
"""Packets without an association that wait to be sent; a flood gets no more answers than that in one turn."""
_KEY_LIFETIME = 3600.0
"""Seconds after which cookies are signed with another key; longer where a cookie lives longer."""
_UNANSWERED = frozenset((Type.ABORT, Type.SHUTDOWN_COMPLETE, Type.COOKIE_ACK, Type.COOKIE_ECHO))
_MAX_CLOSED = 1024
"""Associations that ended with a graceful shutdown and whose tags are still known; the oldest is forgotten first."""
_CLOSED_LIFETIME = 60.0
"""Seconds that such a tag stays known: longer than a packet of the association can still be on its way."""
_ENDING = frozenset((Type.ABORT, Type.SHUTDOWN_COMPLETE))


class Statistics(msgspec.Struct):
    """What has become of packets that changed nothing."""

    malformed: int = 0
    wrong_tag: int = 0
    wrong_port: int = 0
    out_of_the_blue: int = 0
    forged_cookies: int = 0
    stale_cookies: int = 0
    refused: int = 0


class Endpoint:
    """All associations of one port."""

    def __init__(
        self,
        options: SctpOptions,
        port: int,
        key: bytes,
        *,
        addresses: tuple[bytes, ...] = (),
        listens: bool = True,
    ) -> None:
        """Take a ``key`` that nobody else knows and that was never used before, and our ``addresses`` if the peer is to use more than one."""
        self.statistics = Statistics()
        self._options = options
        self._port = port
        self._secret = Secret(key, max(_KEY_LIFETIME, options.cookie_lifetime))
        self._addresses = addresses
        self._listens = listens
        self._answers: Packets = []
        self._by_peer: dict[tuple[int, bytes], Association] = {}
        self._associations: dict[Association, list[tuple[int, bytes]]] = {}
        """Each with the keys by which ``_by_peer`` knows it."""
        self._touched: dict[Association, None] = {}
        """Those that may have something to send, in the order in which something has happened to them."""
        self._deadlines = _Deadlines()
        self._closed: dict[tuple[int, int], float] = {}
        """Peer's port and our tag of associations that ended with a graceful shutdown, and until when they stay here."""

    @property
    def associations(self) -> list[Association]:
        """All that there are."""
        return list(self._associations)

    def connect(self, addresses: list[bytes], peer_port: int, now: float) -> Association:
        """Begin an association with the peer that has these addresses."""
        made = self._make(peer_port)
        made.connect(addresses, now)
        self._note_addresses(made)
        return made

    def _make(self, peer_port: int) -> Association:
        ports = (self._port, peer_port)
        made = Association(self._options, self._secret, ports, self._addresses, self._touched)
        self._associations[made] = []
        return made

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout``, and ``data_to_send`` after it, is to be called, or a time before."""
        for association in self._touched:
            self._deadlines.arm(association)
        return self._deadlines.next()

    def handle_timeout(self, now: float) -> list[Association]:
        """Do what is due; return the associations for which something was."""
        due = self._deadlines.due(now)
        for association in due:
            association.handle_timeout(now)
            self._touched[association] = None
        return due

    def data_to_send(self, now: float) -> Packets:
        """Return and forget the packets that are to go out now, each with its address; forget what has ended."""
        made, self._answers = self._answers, []
        touched = list(self._touched)
        self._touched.clear()
        for association in touched:
            made += association.data_to_send(now)
            if association.state is State.CLOSED:
                self._forget(association, now)
            else:
                self._deadlines.arm(association)
                if association.output.limited:
                    self._touched[association] = None
        return made

    def has_more(self) -> bool:
        """Whether ``data_to_send`` may be called again at once: what it gave were bursts, and windows allow more."""
        return any(association.output.limited for association in self._touched)

    def _forget(self, association: Association, now: float) -> None:
        if association.closed_gracefully:
            self._remember_closed(association, now)
        self._deadlines.forget(association)
        self._forget_addresses(association)
        self._associations.pop(association, None)

    def _remember_closed(self, association: Association, now: float) -> None:
        closed = self._closed
        closed[association.peer_port, association.tag] = now + _CLOSED_LIFETIME
        while len(closed) > _MAX_CLOSED or next(iter(closed.values())) <= now:
            del closed[next(iter(closed))]

    def _forget_addresses(self, association: Association) -> None:
        known = self._associations.get(association, [])
        while known:
            peer = known.pop()
            if self._by_peer.get(peer) is association:
                del self._by_peer[peer]

    def _note_addresses(self, association: Association) -> None:
        """Know the packets of an association by their source; an address that is another's already stays his."""
        while association.paths.unknown:
            peer = (association.peer_port, association.paths.unknown.pop())
            known = self._by_peer.get(peer)
            if known is None or known.state is State.CLOSED:
                self._by_peer[peer] = association
                self._associations[association].append(peer)

    # ------------------------------------------------------------------ whose packet is it?

    def receive_data(
        self, data: bytes, source: bytes, now: float, *, marked: bool = False
    ) -> Association | None:
        """Take a packet in; return the association that it was for.  Bad packets are counted, and never raise.

        ``marked``: it came with a router's mark of congestion (CE).
        """
        try:
            packet = packets.decode(data)
        except MalformedPacket:
            self.statistics.malformed += 1
            return None
        if packet.destination != self._port or not packet.source:
            self.statistics.wrong_port += 1
            return None
        association = self._find(packet.source, source)
        if association is not None and not packet.control and packet.tag == association.tag:
            association.receive_chunks(packet.chunks, source, now, marked=marked)
            return association  # data alone, the usual case
        first = packet.chunks[0]
        if isinstance(first, Init) and not first.is_ack:
            self._on_init(first, packet, source, association, now)
            return None
        rest = packet.chunks
        if isinstance(first, Plain) and first.kind == Type.COOKIE_ECHO:
            association = self._on_cookie(first.value, packet, source, association, now)
            rest = rest[1:]
        elif association is None or _is_to_one_before(packet, association):
            self._out_of_the_blue(packet, source, now)
            return None
        elif not _is_verified(packet, association):
            self.statistics.wrong_tag += 1
            return None
        if association is not None and rest:
            association.receive_chunks(rest, source, now, marked=marked)
        if association is not None:
            self._note_addresses(association)
        return association

    def _find(self, peer_port: int, source: bytes) -> Association | None:
        association = self._by_peer.get((peer_port, source))
        return association if association is not None and association.state is not State.CLOSED else None

    def _answer(self, packet: Packet, source: bytes, tag: int, chunk: Chunk) -> None:
        if len(self._answers) < _MAX_ANSWERS:
            encoded = chunks.encode(chunk)
            self._answers.append((source, packets.encode(self._port, packet.source, tag, [encoded])))

    def _out_of_the_blue(self, packet: Packet, source: bytes, now: float) -> None:
        self.statistics.out_of_the_blue += 1
        kinds = {chunks.kind_of(chunk) for chunk in packet.chunks}
        if Type.SHUTDOWN_ACK in kinds:
            self._answer(packet, source, packet.tag, Plain(Type.SHUTDOWN_COMPLETE, b"", REFLECTED))
        elif kinds & _UNANSWERED or _is_stale_cookie(packet.chunks[0]) or self._is_late(packet, source, now):
            return
        else:
            self._answer(packet, source, packet.tag, Listed(Type.ABORT, (), REFLECTED))

    def _is_late(self, packet: Packet, source: bytes, now: float) -> bool:
        """Return whether a packet belongs to an association that ended with a graceful shutdown a short while ago.

        ABORT would be wrong: the peer may still wait for our SHUTDOWN COMPLETE, and would take the shutdown for
        an abort.  A HEARTBEAT ACK that comes on the slower of two paths is such a packet.
        """
        known = self._by_peer.get((packet.source, source))
        if known is not None and known.closed_gracefully and known.tag == packet.tag:
            return True  # SHUTDOWN COMPLETE waits in this very turn to be sent
        return self._closed.get((packet.source, packet.tag), now) > now

    # ------------------------------------------------------------------ INIT

    def _on_init(
        self, init: Init, packet: Packet, source: bytes, association: Association | None, now: float
    ) -> None:
        if packet.tag:
            self.statistics.wrong_tag += 1
            return
        try:
            if not self._listens and association is None:
                raise Refused(Cause.OUT_OF_RESOURCE, "nobody listens")
            offer, unknown = read_init(init, source, self._options)
            if association is not None:
                if association.state is State.SHUTDOWN_ACK_SENT:  # our peer is over, and has begun anew
                    self._touched[association] = None
                    association.closing.repeat_shutdown_ack(now)
                    return
                _no_new_addresses(offer, association)
        except Refused as refused:
            self.statistics.refused += 1
            if init.tag:
                self._answer(packet, source, init.tag, Listed(Type.ABORT, (refused.parameter,)))
            return
        cookie = self._cookie(packet, offer, association, now)
        ack = our_init(
            self._options,
            tag=cookie.tag,
            tsn=cookie.tsn,
            addresses=self._addresses,
            cookie=cookie.sealed(self._secret),
            unrecognized=unknown,
        )
        self._answer(packet, source, init.tag, ack)

    def _cookie(self, packet: Packet, offer: Offer, association: Association | None, now: float) -> Cookie:
        crossing = association is not None and association.state in (State.COOKIE_WAIT, State.COOKIE_ECHOED)
        tied = association is not None and association.state is not State.COOKIE_WAIT
        return Cookie(
            made=now,
            lifetime=self._options.cookie_lifetime,
            tag=association.tag if association is not None and crossing else self._secret.number(),
            tsn=association.first_tsn if association is not None and crossing else self._secret.number(),
            tie_ours=association.tag if association is not None and tied else 0,
            tie_theirs=association.output.peer_tag if association is not None and tied else 0,
            port=self._port,
            peer_port=packet.source,
            offer=offer,
        )

    # ------------------------------------------------------------------ COOKIE ECHO

    def _on_cookie(
        self, data: bytes, packet: Packet, source: bytes, association: Association | None, now: float
    ) -> Association | None:
        """Return the association that the rest of the packet is for."""
        cookie = open_cookie(data, self._secret, now)
        ours = cookie is not None and (cookie.port, cookie.peer_port) == (packet.destination, packet.source)
        if cookie is None or not ours or cookie.tag != packet.tag or source not in cookie.offer.addresses:
            self.statistics.forged_cookies += 1
            return None
        same = association is not None and (association.tag, association.output.peer_tag) == (
            cookie.tag,
            cookie.offer.tag,
        )
        if not same and now - cookie.made > cookie.lifetime:
            self.statistics.stale_cookies += 1
            late = int((now - cookie.made - cookie.lifetime) * 1e6).to_bytes(8, "big")[-4:]
            cause = Parameter(Cause.STALE_COOKIE, late)
            self._answer(packet, source, cookie.offer.tag, Listed(Type.ERROR, (cause,)))
            return None
        if association is None:
            association = self._make(packet.source)
            association.accept(cookie, source, now)
        elif not self._renew(cookie, packet, source, association, now):
            return None
        association.output.reply(source, chunks.encode(Plain(Type.COOKIE_ACK)))
        return association

    def _renew(
        self, cookie: Cookie, packet: Packet, source: bytes, association: Association, now: float
    ) -> bool:
        """Do what a cookie means to an association that there is (5.2.4, table 12); return whether it counts."""
        if association.tag == cookie.tag:  # B and D
            association.cross(cookie, source, now)
            return True
        if association.output.peer_tag == cookie.offer.tag:  # C: late
            return False
        if (cookie.tie_ours, cookie.tie_theirs) != (association.tag, association.output.peer_tag):
            return False
        if association.state is State.SHUTDOWN_ACK_SENT:
            cause = Parameter(Cause.COOKIE_WHILE_SHUTTING_DOWN)
            self._answer(packet, source, cookie.offer.tag, Listed(Type.ERROR, (cause,)))
            return False
        association.restarts += 1
        association.left += association.receive(now)
        self._forget_addresses(association)  # it may have fewer now, and those that it has are new
        association.accept(cookie, source, now)
        association.events[-1] = Event(what=What.RESTARTED)
        return True


class _Deadlines:
    """When something is due, and for which association."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Association]] = []
        self._armed: dict[Association, float] = {}
        """The earliest entry of each."""
        self._order = itertools.count()

    def arm(self, association: Association) -> None:
        """See to it that the association is looked at when something is due."""
        at = association.next_deadline()
        armed = self._armed.get(association)
        if at is not None and (armed is None or at < armed):
            self._armed[association] = at
            heapq.heappush(self._heap, (at, next(self._order), association))

    def next(self) -> float | None:
        """Return when ``due`` is to be asked; None: there is nothing."""
        while self._heap and self._is_void(*self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> list[Association]:
        """Return those for which something is due."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            at, order, association = heapq.heappop(self._heap)
            if self._is_void(at, order, association):
                continue
            del self._armed[association]
            due = association.next_deadline()
            if due is not None and due <= now:
                found.append(association)
            else:
                self.arm(association)
        return found

    def forget(self, association: Association) -> None:
        """There is nothing more to be due for it."""
        self._armed.pop(association, None)

    def _is_void(self, at: float, order: int, association: Association) -> bool:
        return association.state is State.CLOSED or self._armed.get(association) != at


def _no_new_addresses(offer: Offer, association: Association) -> None:
    """Refuse a restart that brings addresses: it may be somebody else's (5.2.2)."""
    if association.state in (State.COOKIE_WAIT, State.COOKIE_ECHOED):
        return
    new = [address for address in offer.addresses if association.paths.at(address) is None]
    if new:
        listed = [Parameter(5 if len(address) == 4 else 6, address) for address in new]
        raise Refused(
            Cause.RESTART_WITH_NEW_ADDRESSES, "a restart with new addresses", parameters.encode(listed)
        )


def _is_verified(packet: Packet, association: Association) -> bool:
    """Whether the verification tag is right (8.5, 8.5.1)."""
    for chunk in packet.control:
        if isinstance(chunk, (Plain, Listed)) and chunk.kind in _ENDING and chunk.flags & REFLECTED:
            return packet.tag == association.output.peer_tag != 0
    return packet.tag == association.tag


def _is_to_one_before(packet: Packet, association: Association) -> bool:
    """Whether a SHUTDOWN ACK is for an association that was over before this one began (8.5.1, E)."""
    kinds = {chunks.kind_of(chunk) for chunk in packet.control}
    return association.state in (State.COOKIE_WAIT, State.COOKIE_ECHOED) and Type.SHUTDOWN_ACK in kinds


def _is_stale_cookie(chunk: Chunk) -> bool:
    return (
        isinstance(chunk, Listed)
        and chunk.kind == Type.ERROR
        and any(cause.kind == Cause.STALE_COOKIE for cause in chunk.parameters)
    )
