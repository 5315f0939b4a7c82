"""Client: one STOMP connection: CONNECT, what each frame does, errors and heart-beats.

Any error ends the connection (STOMP 1.2, ERROR).  What the client has sent before it was done, and stays so.

Parts
    ``FrameReader`` makes ``Frames`` of what was read: consecutive frames of one flow, which are handled at
    once.  From CONNECT on there are a ``Session``, which has login, virtual host and version, a ``Sending``
    for what the client publishes, its transactions and its receipts, and ``Subscriptions`` for what it is
    sent and what it acknowledges.  This class calls them, and all of them write with its ``send``.

Who calls what
    The connection calls ``received`` with what was read, which calls a handler for each ``Frames``.  At the
    end of the turn the broker calls ``flush``: deliveries first, then the receipts that are due.
    ``on_due`` is called when a heart-beat is due, or the client is silent, and ``ended`` once, whatever has
    ended the connection.

Order of output
    RECEIPT frames of SEND, COMMIT and DISCONNECT wait until the messages before them are confirmed.  Others
    are sent at once.  Messages are sent at the end of the turn, so a RECEIPT for SUBSCRIBE comes before the
    first MESSAGE.

Invariants
    1.  Nothing is handled behind an ERROR frame or behind DISCONNECT.
    2.  After DISCONNECT the client has no subscription and no transaction, and stays only until its receipt
        is sent: that says that all it has published is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kernel.contracts.message import Buffer
from plugins.engines.broker.public import (
    GATHERED,
    Accepted,
    BrokerEngine,
    BrokerError,
    Login,
    StreamClient,
)
from plugins.engines.stomp.options import StompListenerOptions
from plugins.engines.stomp.sending import Sending
from plugins.engines.stomp.session import Session
from plugins.engines.stomp.subscriptions import Subscriptions, requeues
from plugins.protocols.stomp.errors import CannotCarry, Fault
from plugins.protocols.stomp.frame_reader import FrameReader
from plugins.protocols.stomp.frames import (
    CONNECTING,
    END_TO_CLIENTS,
    HEART_BEAT,
    Frames,
    encode_frame,
    encode_receipts,
)
from plugins.protocols.stomp.heart_beats import HeartBeats, Offer
from plugins.protocols.stomp.limits import Limits
from plugins.protocols.stomp.versions import SERVER, SUPPORTED, Version, negotiate


class StompClient(StreamClient):
    """One connection."""

    def __init__(self, engine: BrokerEngine, accepted: Accepted, options: StompListenerOptions) -> None:
        super().__init__(engine, accepted, publish_rate=options.publish_rate)
        self._options = options
        self._loopback = accepted.loopback
        self._certified = accepted.certified
        self._reader = FrameReader(
            Limits(
                headers=options.max_headers,
                header_line=options.header_line_bytes,
                header_block=options.header_block_bytes,
                body=options.max_body_bytes,
            )
        )
        self._beats = HeartBeats()
        self._log_in_until = engine.host.now() + options.handshake_seconds
        self._session: Session | None = None
        """None: the client has not logged in."""
        self._subscriptions: Subscriptions
        self._sending: Sending
        self._disconnecting = False
        """Whether the client has said DISCONNECT."""

    def __repr__(self) -> str:
        version = self._session.version if self._session else "not connected"
        return f"<StompClient {self.peer} {version}>"

    # What the client sends

    def received(self, data: bytes, now: float) -> None:
        """Do what the client asks for."""
        self._beats.received(now)
        if self._disconnecting:
            # STOMP 1.2, DISCONNECT: clients must not send any more frames.
            return
        reader = self._reader
        reader.feed(data)
        try:
            while found := reader.read():
                for frames in found:
                    self._handle(frames, now)
                    # The client may have sent more before it knew of the error.
                    if self.closing or self.login_refused or self._disconnecting:
                        return
        except Fault as fault:
            self._fail_frame(fault)
            return
        if reader.incomplete_bytes and reader.incomplete_command == b"SEND":
            # In the middle of a message it publishes as well, and an alarm has to stop it.
            self.published = True

    def _handle(self, frames: Frames, now: float) -> None:
        if self._session is None:
            self._connect(frames, now)
            return
        handler = _HANDLERS.get(frames.command)
        store = self.engine.broker.store
        version = store.definition_version
        try:
            if handler is None:
                raise Fault("Bad command", f'Could not interpret command "{frames.command[:80]}"\n')
            handler(self, frames, now)
        except Fault as fault:
            # STOMP 1.2, ERROR: with it the client knows which of its frames has failed.
            fault.receipt = fault.receipt or frames.receipt
            self._fail_frame(fault)
        except BrokerError as refusal:
            self._fail_frame(Fault(refusal.name.lower(), refusal.text + "\n", frames.receipt))
        # What comes next may say that something durable was declared.
        if store.definition_version != version:
            self.write_after(store.demand())

    def _connect(self, frames: Frames, now: float) -> None:
        # ERROR in the form of 1.0, which every client reads: no version is agreed on yet.
        if frames.command not in CONNECTING:
            self.fail(Fault("Illegal command", "You must log in using CONNECT first\n"))
            return
        headers = frames.headers
        version = negotiate(headers.get("accept-version"))
        if version is None:
            self.fail(Fault("Version mismatch", f"Supported versions are {SUPPORTED}\n"))
            return
        # From the next frame on: CONNECT itself has no escapes, in any version.
        self._reader.version = version
        if version is Version.V1_0:
            # Only 1.0 lets a blank stand behind the colon; later it belongs to the value.
            headers = {name: value.lstrip(" ") for name, value in headers.items()}
        # Before the login, which is done again in the process that has the virtual host.
        if self.moves(headers.get("host", self._options.vhost)):
            return
        name, login = self._log_in(headers.get("login"), headers.get("passcode", ""))
        if login is None:
            refusal = Fault("Bad CONNECT", f"Access refused for user '{name}'\n")
            self.refuse_login(name, "STOMP", partial(self.fail, refusal))
            return
        try:
            offer = Offer.of(headers.get("heart-beat"))
            vhost = self.engine.broker.vhost(headers.get("host", self._options.vhost))
            # Last of what may refuse: it counts the connection, and ``ended`` takes that back.
            login.enter(vhost.name)
        except (Fault, BrokerError) as refused:
            self.fail(Fault("Bad CONNECT", f"{refused}\n"))
            return
        session = self._session = Session(self, login, vhost, version, self._options)
        self._subscriptions = Subscriptions(session)
        self._sending = Sending(session, self._subscriptions)
        # Most frames are not answered, and the next one may wait behind them.
        self.is_prompt = True
        # Milliseconds in the header, seconds in the options.
        ours = offer.answer(round(self._options.heartbeat * 1000))
        self._beats.start(ours, offer, now)
        self.arm(self._beats.next_deadline())
        self.send(
            encode_frame(
                "CONNECTED",
                (
                    ("version", version),
                    ("session", session.name),
                    ("heart-beat", str(ours)),
                    ("server", SERVER),
                ),
                version,
                end=END_TO_CLIENTS,
            )
        )

    def _log_in(self, name: str | None, passcode: str) -> tuple[str, Login | None]:
        users = self.engine.users
        # A login that the client names counts, also if it has a certificate.  PHP's extension sends empty
        # headers if it has none.
        if name is not None and (name or passcode):
            return name, users.log_in_by_password(name, passcode, loopback=self._loopback)
        name = self._certified or self._options.anonymous
        return name, users.log_in(name, loopback=self._loopback) if name else None

    def _send(self, frames: Frames, now: float) -> None:
        self._sending.send(frames, now)

    def _subscribe(self, frames: Frames, now: float) -> None:
        self._subscriptions.subscribe(frames, now)
        self._answer(frames)

    def _unsubscribe(self, frames: Frames, now: float) -> None:
        self._subscriptions.unsubscribe(frames, now)
        self._answer(frames)

    def _acknowledge(self, frames: Frames, now: float) -> None:
        if frames.transaction is None:
            self._subscriptions.acknowledge(frames)
        else:
            self._in_transaction(frames, frames.transaction, accepted=True)
        self._answer(frames)

    def _reject(self, frames: Frames, now: float) -> None:
        if frames.transaction is None:
            self._subscriptions.reject(frames, now)
        else:
            self._in_transaction(frames, frames.transaction, accepted=False)
        self._answer(frames)

    def _in_transaction(self, frames: Frames, name: str, *, accepted: bool) -> None:
        transaction = self._sending.find_transaction(name)
        # Looked up now, and not at the COMMIT: a wrong name is an error of this frame, and the subscription
        # may have ended by then.
        subscription, tag = self._subscriptions.acknowledged(frames)
        transaction.work.acknowledge(
            subscription.receiver,
            tag,
            tag,
            multiple=subscription.cumulative,
            accepted=accepted,
            requeue=requeues(frames),
        )

    def _begin(self, frames: Frames, now: float) -> None:
        self._sending.begin(frames)
        self._answer(frames)

    def _commit(self, frames: Frames, now: float) -> None:
        self._sending.commit(frames, now)
        if frames.receipt is not None:
            # It may have acknowledged messages, too, which are not numbered.
            self.write_after(self.engine.broker.store.demand())
            self._sending.add_receipt(frames.receipt)

    def _abort(self, frames: Frames, now: float) -> None:
        self._sending.abort(frames)
        self._answer(frames)

    def _disconnect(self, frames: Frames, now: float) -> None:
        """Let go of everything, and close when all that was published is confirmed."""
        self._disconnecting = True
        self._beats.stop()
        # At once, and not when the receipt is sent: others wait for what it has not acknowledged.
        self._let_go(now)
        if frames.receipt is None:
            self.close("the client disconnected")
        else:
            self._sending.add_receipt(frames.receipt)

    def _connect_again(self, frames: Frames, now: float) -> None:
        raise Fault("Already connected", "A connection has one CONNECT frame\n")

    def _answer(self, frames: Frames) -> None:
        if frames.receipt is not None and self._session is not None:
            self.send(encode_receipts((frames.receipt,), self._session.version))

    # Errors

    def _fail_frame(self, fault: Fault) -> None:
        """A frame of the client is wrong: tell it what is confirmed by now, and end the connection."""
        if self._session is not None:
            self._sending.send_receipts()
        self.fail(fault)

    def fail(self, fault: Fault) -> None:
        """Send an ERROR frame, and close the connection."""
        if not self.closing:
            self.send(self._error(fault))
            self.close(f"{fault}".replace("\n", " ").strip())

    def _error(self, fault: Fault) -> bytes:
        headers = [("message", fault.message), ("version", SUPPORTED), ("content-type", "text/plain")]
        if fault.receipt is not None:
            headers.append(("receipt-id", fault.receipt))
        # Before CONNECT nobody knows the client's version.  Each client reads the oldest one.
        version = self._session.version if self._session else Version.V1_0
        body = fault.detail.encode("utf-8", "replace")
        try:
            return encode_frame("ERROR", headers, version, body, end=END_TO_CLIENTS)
        except CannotCarry:
            # The receipt has an octet that the version cannot escape.  The error matters more.
            return encode_frame("ERROR", headers[:3], version, body, end=END_TO_CLIENTS)

    def closing_message(self, reason: str) -> Sequence[Buffer]:
        """Return an ERROR frame: the broker ends the connection."""
        return (self._error(Fault("connection_forced", f"CONNECTION_FORCED - {reason}\n")),)

    # The end of a turn

    def flush(self, now: float) -> None:
        """Send messages, and the receipts that are due."""
        if self._session is None or self.closing:
            return
        self._subscriptions.send_deliveries(now)
        self._sending.send_receipts()
        if self._disconnecting and not self._sending.waits:
            self.close("the client disconnected")

    @property
    def confirming(self) -> bool:
        """Whether a receipt waits for a confirmation."""
        return self._session is not None and self._sending.waits

    def to_acknowledge(self) -> int:
        """Return how many messages are unacknowledged; 0 in a transaction, because a COMMIT is waited for."""
        if self._session is None or self._sending.transactions:
            return 0
        if self._subscriptions.count > GATHERED:
            # Too many to look at in each turn.
            return GATHERED
        return sum(len(each.receiver.unacked) for each in self._subscriptions)

    @property
    def unacked_bytes(self) -> int:
        """About how many bytes the bodies have that the client has not acknowledged."""
        return self._subscriptions.unacked_bytes() if self._session is not None else 0

    @property
    def unpublished_bytes(self) -> int:
        """How many bytes there are of frames that are not complete, or not committed."""
        uncommitted = self._sending.uncommitted_bytes() if self._session is not None else 0
        return self._reader.incomplete_bytes + uncommitted

    # Time

    def next_deadline(self) -> float | None:
        """When the client has to have logged in; later, when heart-beats are due."""
        # A connection that is closed may have to wait for the disk, and a login that failed for its answer.
        # A deadline in the past would be asked about again and again meanwhile.
        if self.closing or self.login_refused:
            return None
        return self._log_in_until if self._session is None else self._beats.next_deadline()

    def on_due(self, now: float) -> None:
        """Send a heart-beat, or close the connection of a silent client."""
        if self._session is None:
            if now >= self._log_in_until:
                seconds = self._options.handshake_seconds
                self.fail(Fault("Bad CONNECT", f"There was no CONNECT frame within {seconds:g} seconds\n"))
        elif self._beats.peer_is_silent(now):
            self.close("no heart-beat came from the client")
        elif self._beats.due(now, self.bytes_out):
            # Unlike answers, a heart-beat need not wait for the disk.  Without it, a client would take a
            # broker with a slow disk for dead.
            if self.waits_for_store:
                self.write_now(HEART_BEAT)
            else:
                self.send(HEART_BEAT)

    def on_not_read(self, now: float) -> None:
        """The client was not read, so it does not count as silent."""
        self._beats.received(now)

    # The end

    def _let_go(self, now: float) -> None:
        self._sending.abort_all()
        self._subscriptions.end_all(now)

    def ended(self, now: float) -> None:
        """Give back what the client held."""
        session = self._session
        if session is None:
            return
        self._let_go(now)
        session.login.leave()
        # Last: it deletes the queues that belong to this connection alone, temporary ones among them, whose
        # consumers have left by now.
        session.vhost.release(session, now)

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return rows for an operator."""
        session = self._session
        if what == "connections":
            row = {"certificate": self._certified or ""}
            if session is None:
                row["state"] = "starting"
            else:
                row["client"] = f"STOMP {session.version}"
                row |= {"user": session.login.name, "vhost": session.vhost.name}
            return [self.row(**row)]
        if what == "consumers" and session is not None:
            return [each.consumer.row(self.peer, tag=each.tag) for each in self._subscriptions]
        return []


_HANDLERS: dict[str, Callable[[StompClient, Frames, float], None]] = {
    "ABORT": StompClient._abort,
    "ACK": StompClient._acknowledge,
    "BEGIN": StompClient._begin,
    "COMMIT": StompClient._commit,
    "CONNECT": StompClient._connect_again,
    "DISCONNECT": StompClient._disconnect,
    "NACK": StompClient._reject,
    "SEND": StompClient._send,
    "STOMP": StompClient._connect_again,
    "SUBSCRIBE": StompClient._subscribe,
    "UNSUBSCRIBE": StompClient._unsubscribe,
}
