"""An endpoint: an SCTP port, its associations, and packets that belong to none.

Sections 5.1, 5.2, 8.4 and 8.5 of RFC 9260 are here.

Which association a packet belongs to is decided by its ports and its source address (``_by_peer``); the
verification tag then proves that the sender knows the association (8.5). The common case, a packet with
nothing but DATA and the correct tag, is decided first.

INIT leaves nothing behind (5.1). The endpoint answers from the INIT alone: everything that the association
will need goes into a signed cookie, which the peer sends back in COOKIE ECHO. Only then is memory spent on
the peer. So a flood of INITs with forged addresses costs no memory, and its answers are limited in number
(``_MAX_ANSWERS``) and in size (``handshake``).

A COOKIE ECHO for an association that exists already is table 12 of section 5.2.4: cases A (restart), B (both
sides connect at once), C (late cookie) and D (repeated cookie) are told apart by the two tags in the cookie
and its tie-tags.

There is no I/O and no clock here. The host calls ``receive_data`` with each packet and ``handle_timeout``
when ``next_deadline`` has come, and after both sends what ``data_to_send`` returns. All calls come from one
thread.
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
from plugins.protocols.sctp.states import CLOSED, State

_MAX_ANSWERS = 256
"""Packets that answer packets without an association.

More are not sent in one turn, so that a flood is not multiplied.
"""
_KEY_LIFETIME = 3600.0
"""Seconds after which cookies are signed with a new key (5.1.3). It is longer where a cookie lives longer."""
_UNANSWERED = frozenset((Type.ABORT, Type.SHUTDOWN_COMPLETE, Type.COOKIE_ACK, Type.COOKIE_ECHO))
_MAX_CLOSED = 1024
"""Associations that ended with SHUTDOWN COMPLETE whose tags are remembered. The oldest is forgotten first."""
_CLOSED_LIFETIME = 60.0
"""Seconds that such a tag is remembered: longer than a packet of the association can be delayed."""
_ENDING = frozenset((Type.ABORT, Type.SHUTDOWN_COMPLETE))


class Statistics(msgspec.Struct):
    """Counts of packets that changed nothing."""

    malformed: int = 0
    wrong_tag: int = 0
    wrong_port: int = 0
    out_of_the_blue: int = 0
    forged_cookies: int = 0
    stale_cookies: int = 0
    refused: int = 0


class Endpoint:
    """All associations of one SCTP port."""

    def __init__(
        self,
        options: SctpOptions,
        port: int,
        key: bytes,
        *,
        addresses: tuple[bytes, ...] = (),
        listens: bool = True,
    ) -> None:
        """Make an endpoint.

        ``key`` must be random, secret and never used before: tags, cookies and nonces derive from it.
        ``addresses`` are our own, if the peer is to use more than one. Without ``listens``, an INIT without
        an association is refused.
        """
        self.statistics = Statistics()
        self._options = options
        self._port = port
        self._secret = Secret(key, max(_KEY_LIFETIME, options.cookie_lifetime))
        self._addresses = addresses
        self._listens = listens
        self._answers: Packets = []
        self._by_peer: dict[tuple[int, bytes], Association] = {}
        self._associations: dict[Association, list[tuple[int, bytes]]] = {}
        """Each association with its keys in ``_by_peer``."""
        # A dictionary and not a set: associations send in the order in which something happened to them.
        self._touched: dict[Association, None] = {}
        """Associations that may have something to send, in the order in which they were touched."""
        self._deadlines = _Deadlines()
        self._closed: dict[tuple[int, int], float] = {}
        """The peer's port and our tag of associations that ended with SHUTDOWN COMPLETE, and until when they
        are remembered."""
        self.answers_until = 0.0
        """When the host may forget the endpoint: until then a peer may repeat its SHUTDOWN ACK, because our
        SHUTDOWN COMPLETE was lost."""

    @property
    def associations(self) -> list[Association]:
        """All associations that have not ended."""
        return list(self._associations)

    def connect(self, addresses: list[bytes], peer_port: int, now: float) -> Association:
        """Start an association with the peer that has these addresses."""
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
        """Return when ``handle_timeout`` is to be called, and ``data_to_send`` after it.

        It may be too early, never too late.
        """
        # An association that was touched may have an earlier deadline than its entry in the heap.
        for association in self._touched:
            self._deadlines.arm(association)
        return self._deadlines.next()

    def handle_timeout(self, now: float) -> list[Association]:
        """Process expired timers; return the associations that had any."""
        due = self._deadlines.due(now)
        for association in due:
            association.handle_timeout(now)
            self._touched[association] = None
        return due

    def data_to_send(self, now: float) -> Packets:
        """Return the packets to send now, each with its address.

        Associations that have ended are forgotten afterwards.
        """
        made, self._answers = self._answers, []
        touched = list(self._touched)
        # Cleared before the loop: an association that is limited by the burst enters itself again for the
        # next turn.
        self._touched.clear()
        for association in touched:
            made += association.data_to_send(now)
            if association.state is CLOSED:
                self._forget(association, now)
            else:
                self._deadlines.arm(association)
                if association.output.limited:
                    self._touched[association] = None
        return made

    def has_more(self) -> bool:
        """Whether ``data_to_send`` has more at once: it returned a burst, and the windows allow more."""
        return any(association.output.limited for association in self._touched)

    def _forget(self, association: Association, now: float) -> None:
        if association.closed_gracefully:
            self._remember_closed(association, now)
            if association.closing.completed_peer:
                self.answers_until = max(self.answers_until, now + association.closing.repeat_time())
        # Ended associations are only removed here, after their last packets: ABORT and SHUTDOWN COMPLETE need
        # them.
        self._deadlines.forget(association)
        self._forget_addresses(association)
        self._associations.pop(association, None)

    def _remember_closed(self, association: Association, now: float) -> None:
        closed = self._closed
        closed[association.peer_port, association.tag] = now + _CLOSED_LIFETIME
        # Entries are in the order of their ends, so that the oldest is the first.
        while len(closed) > _MAX_CLOSED or next(iter(closed.values())) <= now:
            del closed[next(iter(closed))]

    def _forget_addresses(self, association: Association) -> None:
        known = self._associations.get(association, [])
        while known:
            peer = known.pop()
            if self._by_peer.get(peer) is association:
                del self._by_peer[peer]

    def _note_addresses(self, association: Association) -> None:
        """Register new addresses of an association.

        An address that another association uses stays with that one.
        """
        while association.paths.unknown:
            peer = (association.peer_port, association.paths.unknown.pop())
            known = self._by_peer.get(peer)
            # A peer may list addresses that are not its own (5.4): it must not take packets away from another
            # association.
            if known is None or known.state is CLOSED:
                self._by_peer[peer] = association
                self._associations[association].append(peer)

    # ------------------------------------------------------------------ whose packet is it?

    def receive_data(
        self, data: bytes, source: bytes, now: float, *, marked: bool = False
    ) -> Association | None:
        """Process a packet; return the association that it belongs to, or None.

        Bad packets are counted; nothing is raised. ``source`` is the peer's address (4 or 16 bytes),
        ``marked`` says that a router marked the packet with congestion experienced (CE).
        """
        try:
            packet = packets.decode(data)
        except MalformedPacket:
            self.statistics.malformed += 1
            return None
        # Port 0 is not allowed as a source (3.1).
        if packet.destination != self._port or not packet.source:
            self.statistics.wrong_port += 1
            return None
        association = self._find(packet.source, source)
        if association is not None and not packet.control and packet.tag == association.tag:
            association.receive_chunks(packet.chunks, source, now, marked=marked)
            # Data alone, the common case: the tag is checked, and no control chunk has an exception (8.5.1).
            return association
        first = packet.chunks[0]
        # INIT has tag 0, and is handled before the tag is checked (8.5.1, A).
        if isinstance(first, Init) and not first.is_ack:
            self._on_init(first, packet, source, association, now)
            return None
        rest = packet.chunks
        if isinstance(first, Plain) and first.kind == Type.COOKIE_ECHO:
            association = self._on_cookie(first.value, packet, source, association, now)
            # COOKIE ECHO may have data behind it (5.1): it belongs to the association that the cookie makes.
            rest = rest[1:]
        # Only now is the packet out of the blue (8.4): it is neither INIT nor COOKIE ECHO.
        elif association is None or _is_to_one_before(packet, association):
            self._out_of_the_blue(packet, source, now)
            return None
        # A wrong tag is discarded silently (8.5): an answer would help whoever guesses tags.
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
        return association if association is not None and association.state is not CLOSED else None

    def _answer(self, packet: Packet, source: bytes, tag: int, chunk: Chunk) -> None:
        # Answers need no association, so that anybody can cause them.
        if len(self._answers) < _MAX_ANSWERS:
            encoded = chunks.encode(chunk)
            self._answers.append((source, packets.encode(self._port, packet.source, tag, [encoded])))

    def _out_of_the_blue(self, packet: Packet, source: bytes, now: float) -> None:
        self.statistics.out_of_the_blue += 1
        kinds = {chunks.kind_of(chunk) for chunk in packet.chunks}
        # Rule 5 of 8.4: the peer waits for a SHUTDOWN COMPLETE that was lost.
        if Type.SHUTDOWN_ACK in kinds:
            self._answer(packet, source, packet.tag, Plain(Type.SHUTDOWN_COMPLETE, b"", REFLECTED))
        # Rules 2, 6 and 7: an answer to these could be answered in turn, without end.
        elif kinds & _UNANSWERED or _is_stale_cookie(packet.chunks[0]) or self._is_late(packet, source, now):
            return
        else:
            self._answer(packet, source, packet.tag, Listed(Type.ABORT, (), REFLECTED))

    def _is_late(self, packet: Packet, source: bytes, now: float) -> bool:
        """Return whether a packet is of an association that ended with SHUTDOWN COMPLETE a short while ago.

        ABORT (8.4, rule 8) would be wrong: the peer may still wait for our SHUTDOWN COMPLETE, and would
        report an abort. A HEARTBEAT ACK that arrives on the slower of two paths is such a packet.
        """
        known = self._by_peer.get((packet.source, source))
        if known is not None and known.closed_gracefully and known.tag == packet.tag:
            # It ended in this turn: its SHUTDOWN COMPLETE is still to be sent.
            return True
        return self._closed.get((packet.source, packet.tag), now) > now

    # ------------------------------------------------------------------ INIT

    def _on_init(
        self, init: Init, packet: Packet, source: bytes, association: Association | None, now: float
    ) -> None:
        # 8.5.1, A: INIT has tag 0.
        if packet.tag:
            self.statistics.wrong_tag += 1
            return
        try:
            # A dialler answers an INIT only of the peer that it is connecting to itself (5.2.1).
            if not self._listens and association is None:
                raise Refused(Cause.OUT_OF_RESOURCE, "this endpoint does not accept associations")
            offer, unknown = read_init(init, source, self._options)
            if association is not None:
                # Its SHUTDOWN COMPLETE was lost, and the peer begins anew (9.2).
                if association.state is State.SHUTDOWN_ACK_SENT:
                    self._touched[association] = None
                    association.closing.repeat_shutdown_ack(now)
                    return
                # The check precedes the cookie: a forged INIT must not even get one with foreign addresses.
                _no_new_addresses(offer, association)
        except Refused as refused:
            self.statistics.refused += 1
            # An INIT with tag 0 is refused, and there is no tag that an ABORT could have (8.4, rule 3).
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
        # An INIT that crosses ours is answered with our own tag and TSN, so that both sides end up with one
        # association (5.2.1).
        crossing = association is not None and association.state in (State.COOKIE_WAIT, State.COOKIE_ECHOED)
        # 5.2.2: tie-tags are there whenever an association exists, except in COOKIE-WAIT, where the peer's
        # tag is not known. They are random numbers and not the tags, since a cookie can be read.
        tied = association is not None and association.state is not State.COOKIE_WAIT
        tie_ours, tie_theirs = association.tie_tags if association is not None and tied else (0, 0)
        return Cookie(
            made=now,
            lifetime=self._options.cookie_lifetime,
            tag=association.tag if association is not None and crossing else self._secret.number(),
            tsn=association.first_tsn if association is not None and crossing else self._secret.number(),
            tie_ours=tie_ours,
            tie_theirs=tie_theirs,
            port=self._port,
            peer_port=packet.source,
            offer=offer,
        )

    # ------------------------------------------------------------------ COOKIE ECHO

    def _on_cookie(
        self, data: bytes, packet: Packet, source: bytes, association: Association | None, now: float
    ) -> Association | None:
        """Process a COOKIE ECHO (5.1.5, 5.2.4).

        Return the association that the other chunks of the packet belong to.
        """
        cookie = open_cookie(data, self._secret, now)
        ours = cookie is not None and (cookie.port, cookie.peer_port) == (packet.destination, packet.source)
        # 5.1.5: the cookie must be from here, for these ports, and with the tag that the packet has. Nothing
        # is answered: whoever made it up learns nothing.
        if cookie is None or not ours or cookie.tag != packet.tag or source not in cookie.offer.addresses:
            self.statistics.forged_cookies += 1
            return None
        # A repeated cookie is accepted even when it is too old: our COOKIE ACK was lost, and the association
        # exists (5.2.4).
        same = association is not None and (association.tag, association.output.peer_tag) == (
            cookie.tag,
            cookie.offer.tag,
        )
        if not same and now - cookie.made > cookie.lifetime:
            self.statistics.stale_cookies += 1
            # The cause has the microseconds since the cookie has expired (3.3.10.3).
            late = int((now - cookie.made - cookie.lifetime) * 1e6).to_bytes(8, "big")[-4:]
            cause = Parameter(Cause.STALE_COOKIE, late)
            self._answer(packet, source, cookie.offer.tag, Listed(Type.ERROR, (cause,)))
            return None
        if association is None:
            # The first memory that the peer has cost us.
            association = self._make(packet.source)
            association.accept(cookie, source, now)
        elif not self._renew(cookie, packet, source, association, now):
            return None
        # COOKIE ACK is the first chunk of its packet (5.1, D).
        association.output.reply(source, chunks.encode(Plain(Type.COOKIE_ACK)))
        return association

    def _renew(
        self, cookie: Cookie, packet: Packet, source: bytes, association: Association, now: float
    ) -> bool:
        """Process a cookie for an association that exists (5.2.4, table 12).

        Return whether it is valid for it.
        """
        # Cases B and D.
        if association.tag == cookie.tag:
            association.cross(cookie, source, now)
            return True
        # Case C: the cookie is late, and is discarded.
        if association.output.peer_tag == cookie.offer.tag:
            return False
        # Tie-tags prove that the peer has received an INIT ACK for this very association: else a stranger's
        # cookie could replace it.
        if (cookie.tie_ours, cookie.tie_theirs) != association.tie_tags:
            return False
        if association.state is State.SHUTDOWN_ACK_SENT:
            # Two answers (5.2.4, A). ERROR, with the new tag, tells the peer why it has to wait. SHUTDOWN
            # ACK, with the tag from before the restart, makes it answer SHUTDOWN COMPLETE (8.5.1, E), so that
            # it does not have to wait for T2-shutdown.
            cause = Parameter(Cause.COOKIE_WHILE_SHUTTING_DOWN)
            self._answer(packet, source, cookie.offer.tag, Listed(Type.ERROR, (cause,)))
            self._touched[association] = None
            association.closing.repeat_shutdown_ack(now)
            return False
        # Case A: the peer has restarted. The same object goes on, with the messages of the old association in
        # ``left``, so that the host keeps what was delivered.
        association.restarts += 1
        association.left += association.receive(now)
        # The peer may have other addresses after its restart.
        self._forget_addresses(association)
        association.accept(cookie, source, now)
        # ``accept`` has reported UP: 5.2.4 wants a RESTART notification in its place.
        association.events[-1] = Event(what=What.RESTARTED)
        return True


class _Deadlines:
    """The timers of all associations: one heap, in which an entry may be too early, never too late.

    Deadlines mostly move to later times, with every SACK. An entry is therefore not moved: when it comes up
    too early, the association is asked for its deadline again. So a packet costs no heap operation.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Association]] = []
        self._armed: dict[Association, float] = {}
        """The earliest heap entry of each association."""
        self._order = itertools.count()

    def arm(self, association: Association) -> None:
        """Make sure that there is an entry no later than the association's deadline."""
        at = association.next_deadline()
        armed = self._armed.get(association)
        # A later deadline leaves the entry alone; ``due`` looks again when it comes up.
        if at is not None and (armed is None or at < armed):
            self._armed[association] = at
            heapq.heappush(self._heap, (at, next(self._order), association))

    def next(self) -> float | None:
        """Return when ``due`` is to be called next; None: no timer runs."""
        while self._heap and self._is_void(*self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> list[Association]:
        """Return the associations with expired timers."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            at, order, association = heapq.heappop(self._heap)
            if self._is_void(at, order, association):
                continue
            # Removed before ``arm``, which would otherwise find the old entry still good enough.
            del self._armed[association]
            due = association.next_deadline()
            if due is not None and due <= now:
                found.append(association)
            else:
                self.arm(association)
        return found

    def forget(self, association: Association) -> None:
        """Drop the association's timer."""
        self._armed.pop(association, None)

    def _is_void(self, at: float, order: int, association: Association) -> bool:
        # An entry is replaced by a second, earlier one, and stays in the heap: to remove it there would cost
        # a search.
        return association.state is CLOSED or self._armed.get(association) != at


def _no_new_addresses(offer: Offer, association: Association) -> None:
    """Refuse an INIT that brings new addresses to an association (5.2.1, 5.2.2).

    An attacker could take over the association with them.
    """
    # The peer has not named its addresses yet: they come with its INIT ACK, or with this INIT. From
    # COOKIE-ECHOED on they are known.
    if association.state is State.COOKIE_WAIT:
        return
    new = [address for address in offer.addresses if association.paths.at(address) is None]
    if new:
        listed = [Parameter(5 if len(address) == 4 else 6, address) for address in new]
        raise Refused(
            Cause.RESTART_WITH_NEW_ADDRESSES, "an INIT with new addresses", parameters.encode(listed)
        )


def _is_verified(packet: Packet, association: Association) -> bool:
    """Whether the verification tag is correct (8.5).

    It is ours, or the peer's own, reflected in ABORT or SHUTDOWN COMPLETE (8.5.1).
    """
    for chunk in packet.control:
        if isinstance(chunk, (Plain, Listed)) and chunk.kind in _ENDING and chunk.flags & REFLECTED:
            # A reflected tag comes from a side that has no association and thus knows only what we have sent.
            return packet.tag == association.output.peer_tag != 0
    return packet.tag == association.tag


def _is_to_one_before(packet: Packet, association: Association) -> bool:
    """Whether a SHUTDOWN ACK belongs to an earlier association, while this one is being set up (8.5.1, E)."""
    kinds = {chunks.kind_of(chunk) for chunk in packet.control}
    return association.state in (State.COOKIE_WAIT, State.COOKIE_ECHOED) and Type.SHUTDOWN_ACK in kinds


def _is_stale_cookie(chunk: Chunk) -> bool:
    return (
        isinstance(chunk, Listed)
        and chunk.kind == Type.ERROR
        and any(cause.kind == Cause.STALE_COOKIE for cause in chunk.parameters)
    )
