"""A PGM receiver: all sources that are heard on one port of a group (RFC 3208, 6). Sans-I/O.

Each source has a ``Session``, which is found by the packet's transport session identifier (TSI). A session
consists of a window, which puts packets into order (``receive_window``), and a recovery, which decides when
to ask for missing ones (``recovery``). This file decodes packets, passes them to their sessions, and sends
what goes back: NAKs, requests for SPMs (SPMR, 13.), and acknowledgements for PGMCC.

Packets go in with ``receive``. Afterwards ``take`` has the data, ``events`` has what happened, and
``packets_to_send`` the packets to send. Data packets without options that arrive in order have a path of
their own through ``receive``: one loop, without an object per packet. Nothing is thread-safe, all times are
seconds of the caller's clock.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kernel.contracts.counts import counted
from plugins.protocols.pgm import packets
from plugins.protocols.pgm.chance import Chance
from plugins.protocols.pgm.checksum import ones_sum
from plugins.protocols.pgm.congestion_feedback import Feedback
from plugins.protocols.pgm.events import Event, What
from plugins.protocols.pgm.extensions import (
    NONE,
    CongestionData,
    Extensions,
    MalformedPacket,
)
from plugins.protocols.pgm.options import ReceiverOptions
from plugins.protocols.pgm.packets import (
    ACK,
    DATA,
    NAK,
    NCF,
    ODATA,
    RDATA,
    SPMR,
    UPSTREAM,
    Ack,
    Data,
    Packet,
    Request,
    SourcePath,
)
from plugins.protocols.pgm.receiver_statistics import ReceiverStatistics
from plugins.protocols.pgm.recovery import NUMBERS_PER_NAK
from plugins.protocols.pgm.sequence import MASK
from plugins.protocols.pgm.session import Session
from plugins.protocols.pgm.token_bucket import TokenBucket

_PLAIN_DATA = bytes((ODATA, 0))
"""Type and options of a data packet without options."""
NAK_BURST = 0.05
"""NAKs that may be sent at once, in seconds of the allowed rate."""
FINISHED_EXPIRY = 10.0
"""Seconds of silence after which a source that has finished (OPT_FIN) is forgotten."""
MAX_IMPOSTORS = 16
"""Addresses beside its own that are reported and remembered of one source."""
MAX_NAMED = 3
"""Earlier sources at the same address that are named when another one appears."""
SPMR_BACK_OFF = 0.25
"""Seconds of which a random part passes before an SPM is requested, and between two requests (13.)."""


class LoneUnit(msgspec.Struct):
    """A unit that came by itself and in order, and what is to be noted of it (``Receiver.lone``)."""

    session: Session
    unit: bytes
    number: int
    trail: int
    size: int
    """Bytes of the packet."""
    now: float


class Receiver:
    """The receiver of one group and port. ``packets_to_send`` must be called after every ``receive``.

    ``port`` is the data-destination port; packets for other ports are counted and ignored. ``group`` is an
    address of 4 or 16 bytes. ``address`` is one of ours, by which a source with congestion control knows us;
    empty: we do not take part in that.
    """

    def __init__(
        self, options: ReceiverOptions, port: int, group: bytes, seed: int, address: bytes = b""
    ) -> None:
        self.sessions: dict[bytes, Session] = {}
        self.events: list[Event] = []
        """Events that the caller has not taken yet; the caller empties the list."""
        self.statistics = ReceiverStatistics()
        self._options = options
        self._port = port
        self._group = group
        self._address = address
        self._chance = Chance(seed)
        self._naks = TokenBucket(options.max_naks, max(options.max_naks * NAK_BURST, 1))
        self._out: list[tuple[bytes | None, bytes]] = []
        # The same sessions by identifier and port apart, as ``DATA`` unpacks them: the fast path need not
        # join bytes for a key.
        self._fast: dict[tuple[bytes, int], Session] = {}
        # Sessions with something to take. ``take`` does not have to ask all of up to ``max_sources``.
        self._updated: set[Session] = set()
        self._request_spm_at: dict[bytes, float] = {}
        self._begin_with = 0
        self._expire_at: float | None = None
        self._tails_at: float | None = None
        """When to look for sources that fell silent after data."""

    # ------------------------------------------------------------------ packets in

    def receive(self, batch: Sequence[bytes], now: float, address: object = None) -> None:
        """Process packets that came from one address, in their order.

        Malformed ones are counted; nothing is raised.
        """
        statistics = self.statistics
        statistics.packets_in += len(batch)
        unpack, fast, port = DATA.unpack_from, self._fast, self._port
        for packet in batch:
            # The fast path: ODATA (type 4) without options, from a known source and address, for our port, of
            # the announced length.
            size = len(packet)
            statistics.bytes_in += size
            if size >= 24 and packet[4:6] == b"\x04\0":
                own, to, _, _, checksum, identifier, length, number, trail = unpack(packet)
                session = fast.get((identifier, own))
                # The sender's address is compared for each packet: a second source with this TSI must not mix
                # its data into the session. The slow path reports it.
                if session is not None and to == port and length == size - 24 and address == session.address:
                    # A sum of all ones, which is 0 modulo 65,535, is a correct checksum. Data packets must
                    # have one (8, Checksum).
                    if not checksum or ones_sum(packet):
                        statistics.malformed += 1
                        continue
                    session.heard = now
                    window = session.window
                    if (
                        window is not None
                        # With a gap, or with parity, a packet in order still needs the slow path.
                        and number == window.next == (window.lead + 1) & MASK
                        and session.parity is None
                    ):
                        window.ready.append(packet[24:])
                        window.next = (number + 1) & MASK
                        window.lead = number
                        session.trail = trail
                    else:
                        session.on_plain(ODATA, number, trail, packet[24:], now)
                    self._updated.add(session)
                    continue
            self._receive_other(packet, now, address)

    def lone(self, packet: bytes, now: float, address: object) -> LoneUnit | None:
        """Return the unit of a packet that takes the fast path of ``receive``, where nothing waits before it.

        None: it has to be processed.  Changes nothing: the caller notes what it takes.
        """
        size = len(packet)
        if size < DATA.size or packet[4:6] != _PLAIN_DATA or self.events:
            return None
        own, to, _, _, checksum, identifier, length, number, trail = DATA.unpack_from(packet)
        session = self._fast.get((identifier, own))
        window = None if session is None else session.window
        if (
            session is None
            or window is None
            or to != self._port
            or length != size - DATA.size
            or address != session.address
            or number != window.next
            or number != (window.lead + 1) & MASK
            or window.ready
            or not session.reassembly.is_idle()
            or session.parity is not None
            or not checksum
            or ones_sum(packet)
        ):
            return None
        return LoneUnit(session, packet[DATA.size :], number, trail, size, now)

    def _receive_other(self, packet: bytes, now: float, address: object) -> None:
        try:
            decoded = packets.decode(packet)
        except MalformedPacket:
            self.statistics.malformed += 1
            return
        if decoded.port != self._port:
            self.statistics.foreign += 1
            return
        # Receivers multicast SPMRs, and may multicast NAKs (6.3, 13.5): they are there to suppress ours.
        if decoded.kind in UPSTREAM:
            self._on_upstream(decoded, now)
            return
        session = self._session(decoded, now, address)
        if session is None:
            self.statistics.ignored += 1
            return
        session.heard = now
        if isinstance(decoded, Data):
            # A parity packet reuses a data packet's number (11.2), so it must not reach the window.
            if decoded.parity:
                session.on_parity(decoded, now)
            else:
                session.on_data(decoded, now)
                # Only ODATA counts for PGMCC: a repair says nothing about the loss rate or the round trip of
                # the path now.
                if decoded.extensions.congestion is not None and decoded.kind == ODATA:
                    self._note_arrival(session, decoded.number, decoded.extensions.congestion, now)
        elif isinstance(decoded, SourcePath):
            session.on_spm(decoded, now)
            # The SPM that was to be requested is here (13.5: its arrival cancels the request).
            self._request_spm_at.pop(session.tsi, None)
        elif isinstance(decoded, Request) and decoded.kind == NCF:
            session.on_request(decoded, now, confirmation=True)
        self._updated.add(session)

    def _on_upstream(self, packet: Packet, now: float) -> None:
        """Process a packet that another receiver sent to the group."""
        session = self.sessions.get(packet.tsi)
        # A NAK of another receiver suppresses ours for the same packets (6.3).
        if isinstance(packet, Request) and packet.kind == NAK and session is not None:
            session.on_request(packet, now, confirmation=False)
        # Another receiver has asked for the SPM that we were about to request: wait for the answer (13.5).
        elif packet.kind == SPMR and packet.tsi in self._request_spm_at:
            self._request_spm_at[packet.tsi] = now + SPMR_BACK_OFF + self._chance.below(SPMR_BACK_OFF)

    def _session(self, packet: Packet, now: float, address: object) -> Session | None:
        session = self.sessions.get(packet.tsi)
        if session is None:
            return self._open(packet, now, address)
        # Two sources with one TSI cannot be told apart by their packets. The first one stays; the other is
        # reported once. Whoever forges addresses has as many as he likes.
        impostors = session.impostors
        if address != session.address and len(impostors) < MAX_IMPOSTORS and address not in impostors:
            impostors.add(address)
            detail = f"{session.address} and {address} use the same one"
            if len(impostors) == MAX_IMPOSTORS:
                detail += "; no further address is reported"
            self.events.append(Event(what=What.DUPLICATE, tsi=packet.tsi, detail=detail))
        return session if address == session.address else None

    def _open(self, packet: Packet, now: float, address: object) -> Session | None:
        """Start a session, unless the source is just finishing, or there are too many."""
        # NCFs of a session that was forgotten must not bring it back.
        if packet.kind not in (packets.SPM, ODATA, RDATA) or len(self.sessions) >= self._options.max_sources:
            return None
        if packet.extensions.fin or packet.extensions.reset is not None:
            return None
        # Each session has random numbers of its own, from the receiver's seed. A test with a seed is
        # reproducible, and sessions do not back off in step.
        tsi = packet.tsi
        session = Session(
            tsi, self._options, Chance(int(self._chance.below(1 << 53))), self.events, self.statistics
        )
        session.address = address
        session.heard = now
        self.sessions[tsi] = session
        self._fast[tsi[:6], int.from_bytes(tsi[6:], "big")] = session
        detail = f"from {address}" + self._earlier(session)
        self.events.append(Event(what=What.APPEARED, tsi=tsi, detail=detail))
        if self._expire_at is None:
            self._expire_at = now + min(self._options.source_expiry, FINISHED_EXPIRY)
            self._tails_at = now + self._options.source_silence
        return session

    def _earlier(self, session: Session) -> str:
        """Return the text that names the sources which began before at the address of a new one."""
        before = [
            other
            for other in self.sessions.values()
            if other.address == session.address and other is not session and not other.finished
        ]
        if not before:
            return ""
        # The latest: it is the one that may have been started again. A thousand in each of a thousand events
        # would be nine megabytes.
        named = ", ".join(packets.tsi_text(other.tsi) for other in before[-MAX_NAMED:])
        others = len(before) - MAX_NAMED
        more = f" and {counted(others, 'other')}" if others > 0 else ""
        return f", like {named}{more}: started again?"

    # ------------------------------------------------------------------ what came of it

    def take(self) -> list[tuple[bytes, list[bytes | None]]]:
        """Return the new data of each source, in order, with ``LOST`` where packets were given up."""
        # A session whose units are still incomplete has nothing to take, and is marked again by its next
        # packet.
        taken = [(session.tsi, units) for session in self._updated if (units := session.take())]
        self._updated.clear()
        return taken

    def packets_to_send(self, now: float) -> list[tuple[bytes | None, bytes]]:
        """Return the packets to send, each with an address of 4 or 16 bytes, or None for the group."""
        self.handle_timeout(now)
        out, self._out = self._out, []
        return out

    # ------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, or None."""
        # Without a token nothing can be asked for before there is one again.
        allowed = self._naks.ready_at()
        times = [
            max(time, allowed)
            for session in self.sessions.values()
            if (time := session.recovery.next_deadline()) is not None
        ]
        times += self._request_spm_at.values()
        times += [
            session.feedback.elect_at
            for session in self.sessions.values()
            if session.feedback is not None and session.feedback.elect_at is not None
        ]
        if self._expire_at is not None and self._tails_at is not None:
            times += (self._expire_at, self._tails_at)
        return min(times, default=None)

    def handle_timeout(self, now: float) -> None:
        """Send the NAKs and acknowledgements that are due, and forget silent sources."""
        self._request_due_repairs(now)
        for session in self.sessions.values():
            feedback = session.feedback
            if feedback is not None and feedback.elect_at is not None and feedback.elect_at <= now:
                feedback.elect_at = None
                self._acknowledge(session, feedback, now)
            # A random wait first, so that of many receivers that have joined together one asks (13.5,
            # SPMR_BO_IVL).
            if session.wants_spm and session.tsi not in self._request_spm_at:
                self._request_spm_at[session.tsi] = now + self._chance.below(SPMR_BACK_OFF)
        for tsi in [tsi for tsi, at in self._request_spm_at.items() if at <= now]:
            self._request_spm(tsi, now)
        if self._tails_at is not None and self._tails_at <= now:
            self._report_tails(now)
        if self._expire_at is not None and self._expire_at <= now:
            self._expire(now)

    def _request_due_repairs(self, now: float) -> None:
        """Send the NAKs that are due, as far as the limit of NAKs allows, in equal shares."""
        due = [
            session
            for session in self.sessions.values()
            if (deadline := session.recovery.next_deadline()) is not None and deadline <= now
        ]
        # Each turn begins with another source, so that none with very many losses keeps others from asking.
        self._begin_with = (self._begin_with + 1) % (len(due) or 1)
        due = due[self._begin_with :] + due[: self._begin_with]
        for at, session in enumerate(due):
            if not self._naks.has_one(now):
                break
            share = max(int(self._naks.tokens) // (len(due) - at), 1)
            self._request_repairs(session, share * NUMBERS_PER_NAK, now)

    def _request_repairs(self, session: Session, most: int, now: float) -> None:
        if session.path is None:
            session.recovery.postpone_ranges(now, now + SPMR_BACK_OFF)
        # Giving up the last missing packet may have made the packets behind it deliverable.
        numbers = session.due(now, most)
        if session.window is not None and session.window.ready:
            self._updated.add(session)
        # NAKs go to the address in the source's SPMs (8.1). Without one, wait for the SPM that was requested.
        if session.path is None:
            session.recovery.postponed(numbers, now + SPMR_BACK_OFF)
            return
        waiting = [
            (parity, asked[at : at + NUMBERS_PER_NAK])
            for parity, asked in session.requests(numbers)
            # A NAK list has at most 62 numbers beside that of the header (9.3).
            for at in range(0, len(asked), NUMBERS_PER_NAK)
        ]
        later = 0
        for parity, asked in waiting:
            covered = [number for _, stands_for in asked for number in stands_for]
            # The limit of NAKs: what exceeds it is postponed to when there will be tokens, one after another.
            if not self._naks.has_one(now):
                session.recovery.postponed(covered, self._naks.ready_at() + later / self._options.max_naks)
                later += 1
                continue
            self._naks.tokens -= 1
            self._nak(session, tuple(number for number, _ in asked), now, parity=parity)
            # A parity NAK stands for all missing packets of its groups: they wait for the same answer.
            session.recovery.asked(covered, now)

    def _note_arrival(self, session: Session, number: int, data: CongestionData, now: float) -> None:
        """Process the congestion control data of a packet: the source may wait for our acknowledgement."""
        # An address of ours of another family, or none: we cannot be named as acker, so we do not offer
        # ourselves.
        if len(data.acker) != len(self._address):
            return
        if session.feedback is None:
            session.feedback = Feedback(self._address)
        back_off = self._chance.below(self._options.election_back_off)
        if session.feedback.note(number, data, now, back_off):
            self._acknowledge(session, session.feedback, now)

    def _acknowledge(self, session: Session, feedback: Feedback, now: float) -> None:
        # Acknowledgements go where NAKs go, to the path address of an SPM.
        if session.path is None or feedback.highest is None:
            session.wants_spm = True
            return
        ack = Ack(
            kind=ACK,
            tsi=session.tsi,
            port=self._port,
            extensions=Extensions(feedback=feedback.report(now)),
            highest=feedback.highest,
            bitmap=feedback.bitmap,
        )
        self._out.append((session.path, packets.encode(ack)))
        self.statistics.acks_out += 1

    def _nak(self, session: Session, numbers: tuple[int, ...], now: float, *, parity: bool) -> None:
        assert session.path is not None
        feedback = session.feedback
        # NAKs carry the loss rate as well, so that a receiver that is slower than the acker is noticed
        # (PGMCC, 2.1.2).
        extensions = Extensions(feedback=feedback.report(now)) if feedback is not None else NONE
        nak = Request(
            kind=NAK,
            tsi=session.tsi,
            port=self._port,
            extensions=extensions,
            numbers=numbers,
            source=session.path,
            group=self._group,
            parity=parity,
        )
        self._out.append((session.path, packets.encode(nak)))
        self.statistics.naks_out += 1
        self.statistics.numbers_asked += len(numbers)

    def _request_spm(self, tsi: bytes, now: float) -> None:
        session = self.sessions.get(tsi)
        if session is None or not session.wants_spm:
            del self._request_spm_at[tsi]
            return
        self._request_spm_at[tsi] = now + SPMR_BACK_OFF + self._chance.below(SPMR_BACK_OFF)
        # To the group only. 13.5 also sends it to the source's unicast address; a source of ours, and
        # OpenPGM's, hears it in the group, where other receivers hear it too and do not repeat it.
        self._out.append((None, packets.encode(Packet(kind=SPMR, tsi=tsi, port=self._port))))
        self.statistics.spmrs_out += 1

    def _report_tails(self, now: float) -> None:
        """Report the ends of data that nobody knows, of sources that have sent no heartbeat after it."""
        # Data that comes after this look cannot be overdue earlier.
        self._tails_at = now + self._options.source_silence
        for session in self.sessions.values():
            due = session.tail_deadline()
            if due is not None and due <= now:
                session.report_tail()
            elif due is not None:
                self._tails_at = min(self._tails_at, due)

    def _expire(self, now: float) -> None:
        """Forget sources that were silent for too long."""
        expiry = self._options.source_expiry
        self._expire_at = now + min(expiry, FINISHED_EXPIRY)
        for session in list(self.sessions.values()):
            silent = now - session.heard
            # A session that has finished is kept for a while: its last packets may still be repaired (9.7.1).
            if silent < (min(expiry, FINISHED_EXPIRY) if session.finished else expiry):
                continue
            if session.tail_deadline() is not None:
                session.report_tail()
            del self.sessions[session.tsi]
            del self._fast[session.tsi[:6], int.from_bytes(session.tsi[6:], "big")]
            self._request_spm_at.pop(session.tsi, None)
            self.events.append(Event(what=What.GONE, tsi=session.tsi, detail=f"silent for {silent:.0f} s"))
        if not self.sessions:
            self._expire_at = self._tails_at = None
