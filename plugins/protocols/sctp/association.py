"""An association with one peer, over one or more paths (RFC 9260, 4).

This file holds the state machine: the states (``states.py``), and what each chunk does in them
(``_all_handlers``). The parts have files of their own: what the handshake negotiates is in ``handshake.py``,
data is in ``sender.py`` and ``receiver.py``, the composition of packets in ``output.py``, the peer's
addresses in ``paths.py``, shutdown in ``closing.py``, stream reconfiguration in ``reconfiguration.py``.

Setting up (5.1). The side that connects goes CLOSED, COOKIE-WAIT (INIT sent), COOKIE-ECHOED, ESTABLISHED. The
side that listens has no association at all until a valid COOKIE ECHO arrives: INIT is answered by the
``Endpoint`` without any state, and the cookie carries everything that ``accept`` needs. Two more ways lead
here from a COOKIE ECHO, ``accept`` again after the peer has restarted, and ``cross`` when both sides connect
at once (5.2.4).

There is no I/O and no clock here: every method that needs the time takes it as ``now``, in seconds. Nothing
is thread-safe. A chunk that the current state does not allow is ignored, as the RFC has it; what breaks the
protocol aborts the association, and ``receive_chunks`` does not raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernel.contracts.counts import counted
from kernel.contracts.errors import LocalProtocolError, RemoteProtocolError
from plugins.protocols.sctp import chunks, parameters
from plugins.protocols.sctp.chunks import Chunk, Data, Forward, Init, Listed, Plain, Sack, Type
from plugins.protocols.sctp.closing import Closing
from plugins.protocols.sctp.ecn import Ecn
from plugins.protocols.sctp.errors import NoUserData
from plugins.protocols.sctp.events import Event, Message, What
from plugins.protocols.sctp.handshake import Cookie, Offer, Refused, our_init, read_init
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.output import Output, Packets
from plugins.protocols.sctp.parameters import Cause, Kind, Parameter
from plugins.protocols.sctp.path import Path
from plugins.protocols.sctp.paths import Paths
from plugins.protocols.sctp.receiver import Receiver
from plugins.protocols.sctp.reconfiguration import Reconfiguration
from plugins.protocols.sctp.schedule import Outgoing, Terms
from plugins.protocols.sctp.secret import Secret
from plugins.protocols.sctp.sender import Sender
from plugins.protocols.sctp.states import CLOSED, OPEN, RECEIVING, SENDING, State

_ORDINARY = Terms()
_KNOWN = frozenset(map(int, Type))
_MAX_CAUSES = 10
"""Causes of the peer's ERROR that an event names."""


class Association:
    """An association. It is made by an ``Endpoint``, which passes it the packets that belong to it."""

    def __init__(
        self,
        options: SctpOptions,
        secret: Secret,
        ports: tuple[int, int],
        addresses: tuple[bytes, ...],
        touched: dict[Association, None],
    ) -> None:
        """Make an association; ``touched`` is where it enters itself when it may have something to send."""
        self.state = CLOSED
        self.events: list[Event] = []
        """Events that the host has not taken yet; the host empties the list."""
        self.tag = secret.number()
        """The verification tag that the peer must use in packets to us."""
        self.first_tsn = secret.number()
        self.tie_tags = (secret.number(), secret.number())
        """Random numbers that tie the cookie of a peer that restarts to this association (5.2.2)."""
        self.port, self.peer_port = ports
        self.options = options
        self.paths = Paths(options, secret, self.events)
        self.output = Output(options, *ports)
        self.sender = Sender(options, self.first_tsn, self.paths.all)
        self.receiver: Receiver | None = None
        self.closed_gracefully = False
        """Whether it has ended with SHUTDOWN COMPLETE: the peer has nothing more to say."""
        self.violations = 0
        self.restarts = 0
        self.left: list[Message] = []
        """Messages that had been received, and were not taken, when the peer restarted."""
        self._addresses = addresses
        self._secret = secret
        self.touched = touched
        """Where it enters itself when it may have something to send, or another deadline."""
        self.closing = Closing(self)
        self._reconfiguration = Reconfiguration(self)
        self._handlers = self._all_handlers()
        self._timer: float | None = None
        """When T1-init or T1-cookie expires; None: it is not running."""
        self._tries = 0
        self._cookie = b""
        self._acknowledged = False
        """Whether the packet that is processed had a SACK."""

    # ------------------------------------------------------------------ the host's side

    def send(self, stream: int, data: bytes, protocol: int = 0, terms: Terms = _ORDINARY) -> Outgoing:
        """Queue a message.

        The returned object tells later whether it was acknowledged. Raises ``LocalProtocolError``.
        """
        return self.send_many(stream, (data,), protocol, terms)[0]

    def send_many(
        self, stream: int, bodies: Sequence[bytes], protocol: int = 0, terms: Terms = _ORDINARY
    ) -> list[Outgoing]:
        """Queue messages on one stream, at less cost than ``send`` for each.

        Raises ``LocalProtocolError`` if the association is not open, for an unknown stream, and for an empty
        body.
        """
        if self.state not in OPEN:
            raise LocalProtocolError(f"the association does not accept messages: {self.state.value}")
        # Every call of the host marks the association: the endpoint asks only marked ones for packets.
        self.touched[self] = None
        return self.sender.send_many(stream, bodies, protocol, terms)

    def writable(self) -> bool:
        """Whether more messages may be queued without exceeding the buffer."""
        return self.state in OPEN and self.sender.buffered() < self.options.send_buffer

    def receive(self, now: float) -> list[Message]:
        """Return the messages that were received, and free their part of the receive window."""
        self.touched[self] = None
        return self.receiver.take(now) if self.receiver is not None else []

    def close(self, now: float) -> None:
        """Shut down gracefully when everything that was queued is acknowledged (9.2)."""
        self.touched[self] = None
        self.closing.begin(now)

    def round_trip(self) -> float | None:
        """Return the measured seconds of a round trip on the path for data; None before the first."""
        return self.paths.current().srtt

    def shutdown_time(self) -> float:
        """Return the seconds in which a shutdown is complete unless the path has failed."""
        return self.closing.expected_time()

    def buffered(self) -> int:
        """Return the bytes that are not sent, or sent and not acknowledged."""
        return self.sender.buffered()

    def peer_is_gone(self, reason: str) -> None:
        """End at once: the peer's endpoint does not exist any more, as ICMP says (RFC 6951, 5.5)."""
        self.touched[self] = None
        # In SHUTDOWN-ACK-SENT each side has acknowledged everything of the other. The peer has ended after
        # its SHUTDOWN COMPLETE, which was lost.
        complete = self.state is State.SHUTDOWN_ACK_SENT
        self.end(What.CLOSED if complete else What.LOST, "" if complete else reason)

    def rank_stream(self, stream: int, *, priority: int = 0, weight: float = 1.0) -> None:
        """Set a stream's priority (lower goes first) and weight (share of the bytes) for the scheduler."""
        self.sender.schedule.priorities[stream] = priority
        self.sender.schedule.weights[stream] = weight

    def reset_streams(self, *streams: int, theirs: bool = False) -> None:
        """Reset streams (RFC 6525): ours, once everything queued before is acknowledged, or the peer's.

        An event tells the outcome. Raises ``LocalProtocolError``.
        """
        self.touched[self] = None
        (self._reconfiguration.ask_for_reset if theirs else self._reconfiguration.reset)(set(streams))

    def add_streams(self, count: int) -> None:
        """Ask the peer for ``count`` more outbound streams; an event tells the outcome.

        Raises ``LocalProtocolError``.
        """
        self.touched[self] = None
        self._reconfiguration.add(count)

    def abort(self, reason: str = "", cause: Cause = Cause.USER_ABORT) -> None:
        """Abort at once, and tell the peer with ABORT (9.1). The first 200 bytes of ``reason`` are sent."""
        self.touched[self] = None
        if self.state is not CLOSED:
            chunk = Listed(Type.ABORT, (Parameter(cause, reason.encode()[:200]),))
            # Without the peer's tag the ABORT could not be accepted (8.5.1, B).
            if self.output.peer_tag:
                self.output.alone(self.paths.current().address, chunks.encode(chunk))
            # The ABORT stays queued: ``end`` drops replies, but not packets that are complete.
            self.end(What.LOST, reason or "aborted here")

    # ------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, and ``data_to_send`` after it; None: no timer runs."""
        if self.state is CLOSED:
            return None
        # Computed anew each time: deadlines change with every packet, and the endpoint asks only when it
        # needs one.
        due = self.paths.deadline() + self.closing.deadlines()
        sack_due = self.receiver.sack_due if self.receiver else None
        due += [at for at in (self._timer, self._reconfiguration.timer, sack_due) if at is not None]
        return min(due, default=None)

    def handle_timeout(self, now: float) -> None:
        """Process all timers that have expired at ``now``."""
        if self._timer is not None and self._timer <= now:
            self._repeat_setup(now)
        self.closing.handle_timeout(now)
        self._reconfiguration.handle_timeout(now)
        for path in self.paths.all:
            # A timer of a path before this one may have ended the association.
            if self.state is CLOSED:
                return
            if path.retransmission_due is not None and path.retransmission_due <= now:
                self._data_timed_out(path, now)
            if path.heartbeat_due is not None and path.heartbeat_due <= now:
                self._heartbeat(path, now)
            if path.probing.due is not None and path.probing.due <= now:
                self.output.alone(path.address, self.paths.probe(path, now))

    def data_to_send(self, now: float) -> Packets:
        """Return the packets to send now, each with the peer's address that it goes to."""
        sender = self.sender if self.state in SENDING else None
        receiver = self.receiver if self.state is not CLOSED else None
        # Data first: a request to reset streams, and SHUTDOWN, wait until everything before them is
        # acknowledged, which is only known after this flush has asked the sender.
        made = self.output.flush(self.paths, sender, receiver, now)
        if sender is not None and (self._reconfiguration.send_requests(now) or self.closing.advance(now)):
            made += self.output.flush(self.paths, None, receiver, now)
        return made

    def _data_timed_out(self, path: Path, now: float) -> None:
        path.retransmission_due = None
        # This order: the window shrinks (6.3.3, E1 and E2) before the error is counted, and the data is
        # marked as lost only if the association goes on (E3).
        path.timed_out()
        path.probing.timed_out(now)
        if self.paths.failed(path):
            self.end(What.LOST, "the peer does not answer")
            return
        self.sender.outstanding.mark_path_lost(path, self.paths.other_than(path), now)

    def _heartbeat(self, path: Path, now: float) -> None:
        # The last HEARTBEAT was not answered until the next one is due: an error of the path, and a longer
        # RTO (8.3).
        if path.heartbeat_sent is not None:
            path.heartbeat_sent = None
            path.back_off()
            if self.paths.failed(path, heartbeat=True):
                self.end(What.LOST, "the peer does not answer heartbeats")
                return
        chunk = self.paths.heartbeat(path, now)
        if chunk is not None:
            self.output.reply(path.address, chunk)

    # ------------------------------------------------------------------ setting up

    def connect(self, addresses: list[bytes], now: float) -> None:
        """Start the handshake with a peer that has these addresses (INIT, 5.1 A)."""
        self.touched[self] = None
        # The host's configuration vouches for all of them: none needs path verification (5.4).
        for address in addresses:
            self.paths.add([address], confirmed=address)
        self.state = State.COOKIE_WAIT
        self._send_setup(now)

    def _send_setup(self, now: float) -> None:
        # Each try goes to the next address: the first one may be the one that is down.
        path = self.paths.all[self._tries % len(self.paths.all)]
        if self.state is State.COOKIE_WAIT:
            # INIT has verification tag 0, and a packet of its own (8.5.1, A; 6.10).
            self.output.alone(path.address, chunks.encode(self.init()), 0)
        else:
            self.output.reply(path.address, chunks.encode(Plain(Type.COOKIE_ECHO, self._cookie)))
        self._timer = now + path.rto

    def init(self, cookie: bytes | None = None) -> Init:
        """Return our INIT or, with a cookie, INIT ACK.

        It is the same each time, since a lost one is retransmitted.
        """
        return our_init(
            self.options, tag=self.tag, tsn=self.first_tsn, addresses=self._addresses, cookie=cookie
        )

    def _repeat_setup(self, now: float) -> None:
        self._tries += 1
        if self._tries > self.options.init_tries:
            self.end(What.LOST, "no answer to the handshake")
            return
        for path in self.paths.all:
            path.back_off()
        self._send_setup(now)

    def _on_init_ack(self, chunk: Init, path: Path, now: float) -> None:
        # An INIT ACK that is late, or repeated: the first one is in use (5.2.3).
        if self.state is not State.COOKIE_WAIT:
            return
        try:
            offer, unknown = read_init(chunk, path.address, self.options)
        except Refused as refused:
            # The ABORT needs the peer's tag, which only this INIT ACK has.
            self.output.peer_tag = chunk.tag
            self.output.alone(path.address, chunks.encode(Listed(Type.ABORT, (refused.parameter,))))
            self.end(What.LOST, str(refused))
            return
        self.output.peer_tag = offer.tag
        cookie = parameters.first(chunk.parameters, Kind.STATE_COOKIE)
        if cookie is None:
            self.abort("INIT ACK without a cookie", Cause.PROTOCOL_VIOLATION)
            return
        self._agree(offer, path.address)
        self._cookie = cookie
        # COOKIE ECHO has tries of its own (Max.Init.Retransmits, 5.1.4).
        self._tries = 0
        self.state = State.COOKIE_ECHOED
        self._send_setup(now)
        # After COOKIE ECHO, which has to be the first chunk of its packet (3.2.2).
        if unknown:
            self.report(path, Parameter(Cause.UNRECOGNIZED_PARAMETERS, parameters.encode(unknown)))

    def _agree(self, offer: Offer, source: bytes) -> None:
        self.output.peer_tag = offer.tag
        self.paths.add(offer.addresses, confirmed=source)
        self.receiver = Receiver(self.options, offer.tsn, offer.outbound, interleaved=offer.interleaved)
        self._reconfiguration.agree(offer.tsn, agreed=offer.resets)
        self.output.ecn = Ecn(agreed=offer.ecn)
        self.sender.agree(
            streams=offer.inbound,
            window=offer.window,
            interleaved=offer.interleaved,
            may_forward=offer.may_forward,
        )

    def _on_cookie_ack(self, chunk: Plain, path: Path, now: float) -> None:
        # A second COOKIE ACK is ignored (5.2.5).
        if self.state is State.COOKIE_ECHOED:
            self.establish(now)

    def establish(self, now: float) -> None:
        """Enter ESTABLISHED, and start the heartbeats."""
        self.state = State.ESTABLISHED
        self._timer = None
        self._tries = 0
        self.paths.errors = 0
        self.paths.start_heartbeats(now)
        self.events.append(Event(what=What.UP))

    def accept(self, cookie: Cookie, source: bytes, now: float) -> None:
        """Become the association that the cookie describes: new, or the same after a restart (5.2.4, A).

        After a restart everything begins anew: TSNs, stream numbers, windows, and the set of paths.
        """
        self.touched[self] = None
        self.tag, self.first_tsn = cookie.tag, cookie.tsn
        # New ones, so that another cookie from before the restart does not restart the association again.
        self.tie_tags = (self._secret.number(), self._secret.number())
        self.output.forget()
        # Emptied and not replaced: the parts hold this very list.
        self.paths.all.clear()
        self.paths.errors = 0
        self.sender = Sender(self.options, cookie.tsn, self.paths.all)
        self.closing = Closing(self)
        self._reconfiguration = Reconfiguration(self)
        # The table has methods of the two objects that were replaced.
        self._handlers = self._all_handlers()
        self._agree(cookie.offer, source)
        self.establish(now)

    def cross(self, cookie: Cookie, source: bytes, now: float) -> None:
        """Take over the peer's tag after both sides have sent INIT (5.2.4, B and D)."""
        self.touched[self] = None
        # Case B or D in the middle of our own handshake: the cookie has all that was agreed, so that the INIT
        # ACK or COOKIE ACK that we waited for is not needed any more.
        if self.state in (State.COOKIE_WAIT, State.COOKIE_ECHOED):
            self.output.forget()
            self._agree(cookie.offer, source)
            self.establish(now)
        else:
            # The peer has chosen a new tag without knowing of the old one (5.2.4, B). In case D it is the
            # same.
            self.output.peer_tag = cookie.offer.tag

    # ------------------------------------------------------------------ chunks

    def receive_chunks(
        self, received: tuple[Chunk, ...], source: bytes, now: float, *, marked: bool = False
    ) -> None:
        """Process the chunks of one packet, whose verification tag was correct.

        ``source`` is the address that it came from; ``marked`` says that a router marked it with congestion
        experienced (CE). What breaks the protocol aborts the association.
        """
        self.touched[self] = None
        path = self.paths.at(source)
        if path is None:
            return
        try:
            at = 0
            # Consecutive DATA chunks go to the receiver as one batch: this loop is the path of every message.
            while at < len(received) and self.state is not CLOSED:
                chunk = received[at]
                begin, at = at, at + 1
                if type(chunk) is Data:
                    while at < len(received) and type(received[at]) is Data:
                        at += 1
                    if marked:
                        # ECNE reports the lowest TSN of the marked packet (RFC 4960, appendix A), which is
                        # that of its first chunk (6.10).
                        self.output.ecn.marked(chunk.tsn)
                    self._on_data(received[begin:at], path, now)
                elif not self._take(chunk, path, now):
                    break
        except NoUserData as error:
            self.abort(str(error), Cause.NO_USER_DATA)
        except RemoteProtocolError as error:
            self.violations += 1
            self.abort(str(error), Cause.PROTOCOL_VIOLATION)
        finally:
            self._acknowledged = False

    def _take(self, chunk: Chunk, path: Path, now: float) -> bool:
        """Process one chunk; return whether the chunks behind it are processed, too."""
        kind = chunks.kind_of(chunk)
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(chunk, path, now)
            return self.state is not CLOSED
        if isinstance(chunk, Plain) and kind not in _KNOWN:
            # Unknown type: the two highest bits say whether to report it and whether to go on (3.2).
            if kind & 0x40 and self.output.takes_replies():
                self.report(path, Parameter(Cause.UNRECOGNIZED_CHUNK, chunks.encode(chunk)[:100]))
            return bool(kind & 0x80)
        return True

    def _all_handlers(self) -> dict[int, Callable[[Any, Path, float], None]]:
        return {
            Type.SACK: self._on_sack,
            Type.FORWARD_TSN: self._on_forward,
            Type.I_FORWARD_TSN: self._on_forward,
            Type.HEARTBEAT: self._on_heartbeat,
            Type.HEARTBEAT_ACK: lambda chunk, _, now: self.paths.on_heartbeat_ack(chunk, now),
            Type.INIT_ACK: self._on_init_ack,
            Type.COOKIE_ACK: self._on_cookie_ack,
            Type.RE_CONFIG: self._reconfiguration.on_chunk,
            Type.ECHO: lambda chunk, path, _: self.output.on_echo(chunk, path, self.sender.outstanding),
            Type.REDUCED: lambda chunk, _, __: self.output.ecn.on_reduced(chunk),
            Type.ERROR: self._on_error,
            Type.ABORT: self._on_abort,
            Type.SHUTDOWN: self.closing.on_shutdown,
            Type.SHUTDOWN_ACK: self.closing.on_shutdown_ack,
            Type.SHUTDOWN_COMPLETE: self.closing.on_shutdown_complete,
        }

    def _on_data(self, batch: Any, path: Path, now: float) -> None:
        receiver = self.receiver
        if receiver is None:
            return
        if self.state in RECEIVING:
            receiver.on_batch(batch, now)
            while receiver.invalid_streams:
                stream = receiver.invalid_streams.pop()
                self.report(path, Parameter(Cause.INVALID_STREAM, stream.to_bytes(2, "big") + b"\0\0"))
            self.closing.data_received(now)
            self._reconfiguration.data_received(path)
        # Also in states in which data is discarded: the SACK tells the peer where we are.
        receiver.packet_done(now)
        self.output.sack_to = path.address

    def _on_sack(self, chunk: Sack, path: Path, now: float) -> None:
        # The first SACK of a packet counts: no sender has a reason for a second one. Each may change the
        # state of all that is outstanding, and the next take that back: thousands of them would take seconds.
        if self.state not in SENDING or self._acknowledged:
            return
        self._acknowledged = True
        if self.sender.on_sack(chunk, now) or self.sender.is_refused():
            # A peer that keeps its window closed is alive (6.1, rule A).
            self.paths.errors = 0

    def _on_forward(self, chunk: Forward, path: Path, now: float) -> None:
        if self.receiver is not None and self.state in RECEIVING:
            self.receiver.on_forward(chunk, now)
            self.output.sack_to = path.address
            self._reconfiguration.data_received(path)

    def _on_heartbeat(self, chunk: Listed, path: Path, now: float) -> None:
        # A packet may have 16,000 HEARTBEATs, most of which are not answered.
        if not self.output.takes_replies():
            return
        # Back to where it came from, with the information unchanged (8.3): that is what verifies the path.
        self.output.reply(path.address, chunks.encode(Listed(Type.HEARTBEAT_ACK, chunk.parameters)))

    def _on_error(self, chunk: Listed, path: Path, now: float) -> None:
        causes = [cause.kind for cause in chunk.parameters]
        if Cause.STALE_COOKIE in causes and self.state is State.COOKIE_ECHOED:
            # A new INIT asks for a fresh cookie (5.2.6, alternative 1).
            self.state = State.COOKIE_WAIT
            self._repeat_setup(now)
        # The peer decides how many ERRORs it sends, the host when it takes the events.
        elif len(self.events) < 100:
            others = len(causes) - _MAX_CAUSES
            detail = str(causes[:_MAX_CAUSES]) + (f" and {counted(others, 'other')}" if others > 0 else "")
            self.events.append(Event(what=What.PEER_ERROR, detail=detail))

    def _on_abort(self, chunk: Listed, path: Path, now: float) -> None:
        said = b", ".join(cause.value for cause in chunk.parameters).decode("ascii", "replace")[:200]
        self.end(What.LOST, f"aborted by the peer: {said}")

    def report(self, path: Path, cause: Parameter) -> None:
        """Send an ERROR chunk with this cause."""
        self.output.reply(path.address, chunks.encode(Listed(Type.ERROR, (cause,))))

    def end(self, what: What, detail: str = "") -> None:
        """Enter CLOSED, and report why. Later calls do nothing: several timers may expire together."""
        if self.state is CLOSED:
            return
        self.state = CLOSED
        self.closed_gracefully = what is What.CLOSED
        self._timer = None
        self.output.forget()
        self.events.append(Event(what=what, detail=detail))
