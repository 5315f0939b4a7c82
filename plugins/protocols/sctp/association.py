"""An association: one conversation with one peer over one or more paths (RFC 9260, 4).

States, and what each chunk does in them.  What is agreed is ``handshake.py``; data is ``sender.py`` and ``receiver.py``; packets are
``output.py``; paths are ``health.py``.  Closing is ``closing.py``.  A chunk that the state does not allow is ignored, as the RFC has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
from plugins.protocols.sctp.states import OPEN, RECEIVING, SENDING, State

_ORDINARY = Terms()


class Association:
    """Made by an ``Endpoint``, which hands it the packets that are its own."""

    def __init__(
        self,
        options: SctpOptions,
        secret: Secret,
        ports: tuple[int, int],
        addresses: tuple[bytes, ...],
        touched: dict[Association, None],
    ) -> None:
        """``touched``: it enters itself there when something has happened to it."""
        self.state = State.CLOSED
        self.events: list[Event] = []
        """What has happened, until the host takes it out."""
        self.tag = secret.number()
        """The verification tag that the peer has to use."""
        self.first_tsn = secret.number()
        self.port, self.peer_port = ports
        self.options = options
        self.paths = Paths(options, secret, self.events)
        self.output = Output(options, *ports)
        self.sender = Sender(options, self.first_tsn, self.paths.all)
        self.receiver: Receiver | None = None
        self.closed_gracefully = False
        """Whether it has ended, with SHUTDOWN COMPLETE: the peer has nothing more to say."""
        self.violations = 0
        self.restarts = 0
        self.left: list[Message] = []  # what had come and was not taken when the peer restarted
        self._addresses = addresses
        self._touched = touched
        self.closing = Closing(self)
        self._reconfiguration = Reconfiguration(self)
        self._handlers = self._all_handlers()
        self._timer: float | None = None
        """T1-init, T1-cookie."""
        self._tries = 0
        self._cookie = b""

    # ------------------------------------------------------------------ the host's side

    def send(self, stream: int, data: bytes, protocol: int = 0, terms: Terms = _ORDINARY) -> Outgoing:
        """Queue a message; the answer tells later whether the peer has it.  Raises ``LocalProtocolError``."""
        return self.send_many(stream, (data,), protocol, terms)[0]

    def send_many(
        self, stream: int, bodies: Sequence[bytes], protocol: int = 0, terms: Terms = _ORDINARY
    ) -> list[Outgoing]:
        """Queue messages of one stream, for less than ``send`` of each.  Raises ``LocalProtocolError``."""
        if self.state not in OPEN:
            raise LocalProtocolError(f"this association takes no more messages: {self.state.value}")
        self._touched[self] = None
        return self.sender.send_many(stream, bodies, protocol, terms)

    def writable(self) -> bool:
        """Whether more messages may be queued without exceeding the buffer."""
        return self.state in OPEN and self.sender.buffered() < self.options.send_buffer

    def receive(self, now: float) -> list[Message]:
        """Take the messages that have come; that makes room for others."""
        self._touched[self] = None
        return self.receiver.take(now) if self.receiver is not None else []

    def close(self, now: float) -> None:
        """Say good-bye when the peer has everything."""
        self._touched[self] = None
        self.closing.begin(now)

    def rank_stream(self, stream: int, *, priority: int = 0, weight: float = 1.0) -> None:
        """Tell the schedule what a stream is worth: lower priorities go first, weights are shares of the bytes."""
        self.sender.schedule.priorities[stream] = priority
        self.sender.schedule.weights[stream] = weight

    def reset_streams(self, *streams: int, theirs: bool = False) -> None:
        """Let streams count from 0 again: ours, between what was queued before and after, or the peer's.  Raises ``LocalProtocolError``."""
        self._touched[self] = None
        (self._reconfiguration.ask_for_reset if theirs else self._reconfiguration.reset)(set(streams))

    def add_streams(self, count: int) -> None:
        """Ask to be allowed so many streams more; an event says which there are then.  Raises ``LocalProtocolError``."""
        self._touched[self] = None
        self._reconfiguration.add(count)

    def abort(self, reason: str = "", cause: Cause = Cause.USER_ABORT) -> None:
        """End it at once, and tell the peer."""
        self._touched[self] = None
        if self.state is not State.CLOSED:
            chunk = Listed(Type.ABORT, (Parameter(cause, reason.encode()[:200]),))
            if self.output.peer_tag:
                self.output.alone(self.paths.current().address, chunks.encode(chunk))
            self.end(What.LOST, reason or "aborted here")

    # ------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout``, and ``data_to_send`` after it, is to be called."""
        if self.state is State.CLOSED:
            return None
        due = self.paths.deadline() + self.closing.deadlines()
        sack_due = self.receiver.sack_due if self.receiver else None
        due += [at for at in (self._timer, self._reconfiguration.timer, sack_due) if at is not None]
        return min(due, default=None)

    def handle_timeout(self, now: float) -> None:
        """Do what is due."""
        if self._timer is not None and self._timer <= now:
            self._repeat_setup(now)
        self.closing.handle_timeout(now)
        self._reconfiguration.handle_timeout(now)
        for path in self.paths.all:
            if self.state is State.CLOSED:
                return
            if path.retransmission_due is not None and path.retransmission_due <= now:
                self._data_timed_out(path, now)
            if path.heartbeat_due is not None and path.heartbeat_due <= now:
                self._heartbeat(path, now)
            if path.probing.due is not None and path.probing.due <= now:
                self.output.alone(path.address, self.paths.probe(path, now))

    def data_to_send(self, now: float) -> Packets:
        """Return and forget the packets that are to go out now, each with its address."""
        sender = self.sender if self.state in SENDING else None
        receiver = self.receiver if self.state is not State.CLOSED else None
        made = self.output.flush(self.paths, sender, receiver, now)
        if sender is not None and (self._reconfiguration.send_requests(now) or self.closing.advance(now)):
            made += self.output.flush(self.paths, None, receiver, now)
        return made

    def _data_timed_out(self, path: Path, now: float) -> None:
        path.retransmission_due = None
        path.timed_out()
        path.probing.timed_out(now)
        if self.paths.failed(path):
            self.end(What.LOST, "the peer does not answer")
            return
        self.sender.outstanding.mark_path_lost(path, self.paths.other_than(path), now)

    def _heartbeat(self, path: Path, now: float) -> None:
        if path.heartbeat_sent is not None:
            path.heartbeat_sent = None
            path.back_off()
            if self.paths.failed(path):
                self.end(What.LOST, "the peer does not answer heartbeats")
                return
        chunk = self.paths.heartbeat(path, now)
        if chunk is not None:
            self.output.reply(path.address, chunk)

    # ------------------------------------------------------------------ setting up

    def connect(self, addresses: list[bytes], now: float) -> None:
        """Send INIT."""
        self._touched[self] = None
        for address in addresses:  # all of them come from the host, who knows
            self.paths.add([address], confirmed=address)
        self.state = State.COOKIE_WAIT
        self._send_setup(now)

    def _send_setup(self, now: float) -> None:
        path = self.paths.all[self._tries % len(self.paths.all)]
        if self.state is State.COOKIE_WAIT:
            self.output.alone(path.address, chunks.encode(self.init()), 0)
        else:
            self.output.reply(path.address, chunks.encode(Plain(Type.COOKIE_ECHO, self._cookie)))
        self._timer = now + path.rto

    def init(self, cookie: bytes | None = None) -> Init:
        """Return our INIT, the same each time."""
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
        if self.state is not State.COOKIE_WAIT:
            return
        try:
            offer, unknown = read_init(chunk, path.address, self.options)
        except Refused as refused:
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
        self._tries = 0
        self.state = State.COOKIE_ECHOED
        self._send_setup(now)
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
        if self.state is State.COOKIE_ECHOED:
            self.establish(now)

    def establish(self, now: float) -> None:
        """Enter ESTABLISHED."""
        self.state = State.ESTABLISHED
        self._timer = None
        self._tries = 0
        self.paths.errors = 0
        self.paths.start_heartbeats(now)
        self.events.append(Event(what=What.UP))

    def accept(self, cookie: Cookie, source: bytes, now: float) -> None:
        """Be what the cookie says: for the first time, or anew after the peer has restarted (5.2.4, A)."""
        self._touched[self] = None
        self.tag, self.first_tsn = cookie.tag, cookie.tsn
        self.output.forget()
        self.paths.all.clear()
        self.paths.errors = 0
        self.sender = Sender(self.options, cookie.tsn, self.paths.all)
        self.closing = Closing(self)
        self._reconfiguration = Reconfiguration(self)
        self._handlers = self._all_handlers()
        self._agree(cookie.offer, source)
        self.establish(now)

    def cross(self, cookie: Cookie, source: bytes, now: float) -> None:
        """Both sides have sent INIT: take the peer's newer tag over (5.2.4, B and D)."""
        self._touched[self] = None
        if self.state in (State.COOKIE_WAIT, State.COOKIE_ECHOED):
            self.output.forget()
            self._agree(cookie.offer, source)
            self.establish(now)
        else:
            self.output.peer_tag = cookie.offer.tag

    # ------------------------------------------------------------------ chunks

    def receive_chunks(
        self, received: tuple[Chunk, ...], source: bytes, now: float, *, marked: bool = False
    ) -> None:
        """Take the chunks of a packet in, whose tag was right.  What breaks the protocol aborts the association."""
        self._touched[self] = None
        path = self.paths.at(source)
        if path is None:
            return
        try:
            at = 0
            while at < len(received) and self.state is not State.CLOSED:
                chunk = received[at]
                begin, at = at, at + 1
                if type(chunk) is Data:
                    while at < len(received) and type(received[at]) is Data:
                        at += 1
                    if marked:
                        self.output.ecn.marked(chunk.tsn)
                    self._on_data(received[begin:at], path, now)
                elif not self._take(chunk, path, now):
                    break
        except NoUserData as error:
            self.abort(str(error), Cause.NO_USER_DATA)
        except RemoteProtocolError as error:
            self.violations += 1
            self.abort(str(error), Cause.PROTOCOL_VIOLATION)

    def _take(self, chunk: Chunk, path: Path, now: float) -> bool:
        """Take a chunk in; return whether those behind it count."""
        kind = chunks.kind_of(chunk)
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(chunk, path, now)
            return self.state is not State.CLOSED
        if isinstance(chunk, Plain) and kind != Type.PAD and kind not in Type.__members__.values():
            if kind & 0x40:  # the two highest bits say what to do (3.2)
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
        receiver.packet_done(now)
        self.output.sack_to = path.address

    def _on_sack(self, chunk: Sack, path: Path, now: float) -> None:
        if self.state not in SENDING:
            return
        if self.sender.on_sack(chunk, now) or self.sender.is_refused():
            self.paths.errors = 0  # a peer whose window is closed is alive as well (6.1, A)

    def _on_forward(self, chunk: Forward, path: Path, now: float) -> None:
        if self.receiver is not None and self.state in RECEIVING:
            self.receiver.on_forward(chunk, now)
            self.output.sack_to = path.address
            self._reconfiguration.data_received(path)

    def _on_heartbeat(self, chunk: Listed, path: Path, now: float) -> None:
        self.output.reply(path.address, chunks.encode(Listed(Type.HEARTBEAT_ACK, chunk.parameters)))

    def _on_error(self, chunk: Listed, path: Path, now: float) -> None:
        causes = [cause.kind for cause in chunk.parameters]
        if Cause.STALE_COOKIE in causes and self.state is State.COOKIE_ECHOED:
            self.state = State.COOKIE_WAIT  # ask for another
            self._repeat_setup(now)
        elif len(self.events) < 100:
            self.events.append(Event(what=What.PEER_ERROR, detail=str(causes)))

    def _on_abort(self, chunk: Listed, path: Path, now: float) -> None:
        said = b", ".join(cause.value for cause in chunk.parameters).decode("ascii", "replace")[:200]
        self.end(What.LOST, f"aborted by the peer: {said}")

    def report(self, path: Path, cause: Parameter) -> None:
        """Send an ERROR."""
        self.output.reply(path.address, chunks.encode(Listed(Type.ERROR, (cause,))))

    def end(self, what: What, detail: str = "") -> None:
        """There is nothing more to come; that is told once."""
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self.closed_gracefully = what is What.CLOSED
        self._timer = None
        self.output.forget()
        self.events.append(Event(what=what, detail=detail))
