"""Blocking host: a conversation over a blocking wire, in the application's own thread (x-mode in ØMQ 0.x).

There is no other thread, no pipe and no doorbell: ``send`` writes to the socket and ``receive`` reads from
it.  That is the lowest possible latency.  The price: there is one thread and one connection, and nothing is
sent or received, not even a heartbeat, while the application is not inside a call.

The short cut
    A round trip of small messages costs two system calls on each side, and nothing else may be added to it.
    ``encode_one`` and ``decode_one``, which a protocol may have, turn one message into bytes and back without
    a batch.  They return None whenever their protocol has anything else to do or to know, such as an
    envelope, a handshake, a confirmation or a lack of credit; then the usual way is taken.  The short cut
    does not tell the protocol the time, so the host does that before it asks the protocol what is due.

Deadlines
    Without a timeout a call blocks in ``recv``, and SO_RCVTIMEO brings it back for the protocol's deadline.
    So a deadline needs no system call for each read.  Only calls with a timeout poll before they read.  Both
    look for a moment before they sleep, while that pays (``spinning.py``).

Signals
    The handler of one may raise anywhere in a call (docs/decisions/0050-signals.md).  What the protocol is
    told is told in ``with UNINTERRUPTED``.  The waits are outside of it, and so is the short cut, which
    changes nothing but the socket.  What was read stays where it is until the message is returned, and what
    was written is counted before a handler can run.  A later call goes on from there.

The contract of protocols
    The optional interfaces of ``kernel/contracts/protocol.py`` mean here what they mean to the stream host,
    with the application in place of the routes:

    =======================  =================================================================================
    ``Told``                 is told before anything else
    ``UpgradesToTls``        the handshake blocks the call in which the protocol asks for it
    ``Crediting``            ``send`` reads and waits while there is no credit
    ``Refusing``             the first call that learns of a refusal raises ``LocalProtocolError``
    ``Authenticating``       every login is refused, and the constructor raises: nobody decides on logins here
    ``ToldOfSubscriptions``  is told at once: the application is the only source, and nothing filters
    =======================  =================================================================================

    ``Answering``, ``Named``, ``Subscribing`` and ``Syncing`` are about routes and ports, and there are none.
    ``LargeBodies`` and ``Observable`` are not used.
"""

from __future__ import annotations

import math
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn, Self

from kernel.contracts.bodies import all_checked, checked
from kernel.contracts.durations import in_seconds
from kernel.contracts.envelopes import envelope_with
from kernel.contracts.errors import (
    ConnectionLost,
    LocalProtocolError,
    RemoteProtocolError,
    TimedOut,
    WouldBlock,
)
from kernel.contracts.message import Batch, Buffer, Message, batch_of
from kernel.contracts.protocol import (
    Authenticating,
    Crediting,
    Refusing,
    StreamProtocol,
    Told,
    ToldOfSubscriptions,
    UpgradesToTls,
)
from kernel.hosting.blocking_wire import LONGEST, READ_SIZE, BlockingSocket, BlockingWire
from kernel.hosting.closing_wire import DISCARDED_BYTES, SECONDS
from kernel.hosting.facts import facts_of
from kernel.hosting.message_reader import MessageReader
from kernel.hosting.protocol_mistakes import BATCHES, refuse_buffers, wrong_answer
from kernel.hosting.spinning import Received
from kernel.hosting.uninterrupted import UNINTERRUPTED
from kernel.hosting.wire import PlainWire, Wire

EVERYTHING = 1 << 30
"""More messages than any batch has: no limit."""


class BlockingHost:
    """One connection that the application uses directly.  Not for several threads at once.

    ``handshake``: seconds until messages may be sent.  ``start_tls`` does the TLS handshake for a protocol
    that ``UpgradesToTls``.  If the constructor raises, the caller closes the wire.
    """

    def __init__(
        self,
        wire: Wire,
        protocol: StreamProtocol,
        peer: str,
        handshake: float = 10.0,
        start_tls: Callable[[socket.socket], Wire] | None = None,
    ) -> None:
        self.peer = peer
        self._protocol = protocol
        self._start_tls = start_tls
        self._crediting = protocol if isinstance(protocol, Crediting) else None
        self._refusing = protocol if isinstance(protocol, Refusing) else None
        self._upgrading = protocol if isinstance(protocol, UpgradesToTls) else None
        self._told_of_subscriptions = protocol if isinstance(protocol, ToldOfSubscriptions) else None
        # Who sends or receives questions without the protocol would have to tell it.
        short: Any = None if getattr(protocol, "addresses", None) else protocol
        self._encode_one: Callable[[Buffer], bytes | None] = getattr(short, "encode_one", _no_short_cut)
        self._decode_one: Callable[[bytes], bytes | None] = getattr(short, "decode_one", _no_short_cut)
        self._ready = MessageReader()
        self._short_cut_taken = False
        # When the protocol wants to be called; the short cut compares it with the clock after each message.
        self._due = math.inf
        self._lost = ""
        # ``ConnectionFacts.shared``: of one conversation only, since there is no engine that has several.
        self._shared: dict[str, Any] = {}
        # Messages that came on the usual way, for ``StreamProtocol.confirm``.
        self._received = 0
        # Whether the application has messages that are not confirmed yet.  They are confirmed when it asks
        # for more, because it has processed them then.
        self._unconfirmed = False
        # What has to be written still, in order.
        self._pending: deque[Buffer] = deque()
        # What the short cut writes, and how much of it was written.
        self._writing = b""
        self._written = 0
        # Whether a call is writing, or a handler of a signal has raised while it was.
        self._unfinished = False
        self._use(wire)
        if isinstance(protocol, Told):
            protocol.on_connection(facts_of(wire, peer, self._shared))
        # Tells the protocol the time, and lets it make its greeting (``StreamProtocol.handle_timeout``).
        protocol.handle_timeout(time.monotonic())
        self._settle()
        self._shake_hands(time.monotonic() + handshake)
        self._limit_reads_to_deadline()

    # ------------------------------------------------------------------ sending

    def send(self, body: Buffer, *, key: str | None = None, headers: Mapping[str, Any] | None = None) -> None:
        """Send one message.

        When this returns, the operating system has it.  ``ConnectionLost`` if the peer is gone.
        """
        # Other buffers, such as a view of integers, may not count in bytes.  The usual way checks them.
        if (
            key is None
            and headers is None
            and type(body) is bytes
            and not self._unfinished
            and not self._lost
        ):
            data = self._encode_one(body)
            if data is not None:
                writing = map(self._send, (data,))
                self._written, self._writing, self._unfinished = 0, data, True
                try:
                    # The step calls ``send``, and no handler of a signal runs before it is known what that
                    # returned.  If one raises in it or later, the next call looks at it (``_take_up``).
                    for self._written in writing:
                        break
                except OSError as error:
                    self._unfinished = False
                    self._lose(error)
                if self._written < len(data):
                    # A handler that did not raise has interrupted a wait for the peer.
                    self._write_held()
                self._unfinished = False
                return
        self.send_batches((batch_of([checked(body)], envelope_with(key, headers)),))

    def send_many(
        self, bodies: Sequence[Buffer], *, key: str | None = None, headers: Mapping[str, Any] | None = None
    ) -> None:
        """Send a batch."""
        self.send_batches((batch_of(all_checked(bodies), envelope_with(key, headers)),))

    def send_parts(
        self, parts: Sequence[Buffer], *, key: str | None = None, headers: Mapping[str, Any] | None = None
    ) -> None:
        """Send one message of several parts."""
        self.send_message(Message(b"", envelope_with(key, headers), tuple(parts)))

    def send_message(self, message: Message) -> None:
        """Send a message with an envelope of its own."""
        if message.parts:
            whole = tuple(map(checked, message.parts))
            self.send_batches((batch_of([whole], message.envelope, multipart=True),))
        else:
            self.send_batches((batch_of([checked(message.body)], message.envelope),))

    def reply(self, message: Message, body: Buffer) -> None:
        """Answer a message: the answer has the envelope of the question."""
        self.send_batches((batch_of([checked(body)], message.envelope),))

    def send_batches(self, batches: Sequence[Batch]) -> None:
        """Send batches.

        Raises ``LocalProtocolError`` if some messages are not sent because the peer would not accept them.
        """
        if self._lost:
            raise ConnectionLost(self._lost)
        protocol = self._protocol
        with UNINTERRUPTED:
            if self._crediting is not None:
                self._send_on_credit(batches, self._crediting)
            else:
                # A protocol that is not ready raises (``StreamProtocol.send_batches``).  A stream host leaves
                # the messages in the pipes; here the caller waits.
                if not protocol.ready_to_send():
                    self._await_readiness()
                protocol.send_batches(batches, time.monotonic())
                self._flush()
            if self._refusing is not None and self._refusing.refused:
                self._raise_refusal(self._refusing)

    def _send_on_credit(self, batches: Sequence[Batch], crediting: Crediting) -> None:
        """Send no more messages at a time than the peer has given credit for; read until it gives more."""
        for batch in batches:
            at = 0
            while at < len(batch):
                self._await_readiness()
                credit = crediting.may_send()
                if credit is not None and credit <= 0:
                    self._receive_more()
                    continue
                most = len(batch) if credit is None else credit
                self._protocol.send_batches([batch.slice(at, at + most)], time.monotonic())
                self._flush()
                at += most

    def _await_readiness(self) -> None:
        """Read until the protocol may send messages.  What arrives in the meantime waits for ``receive``."""
        while not self._protocol.ready_to_send():
            if self._protocol.closed():
                self._lose(None)
            self._receive_more()

    def _raise_refusal(self, refusing: Refusing) -> NoReturn:
        """Raise for the first message that the peer does not take; the others may be with the peer."""
        why = f"{self.peer}: {refusing.refused[0].reason}"
        refusing.refused.clear()
        raise LocalProtocolError(why)

    def _take_up(self) -> None:
        """Go on with a message of which ``send`` has written only a part."""
        # If it has written nothing, its call has raised, and the message is not sent.
        if 0 < self._written < len(self._writing):
            self._pending.appendleft(self._writing[self._written :])
        self._writing, self._written = b"", 0

    # ------------------------------------------------------------------ receiving

    def receive(self, timeout: float | None = None) -> Buffer:
        """Return the next body; wait for it, at most ``timeout`` seconds (``TimedOut``)."""
        if not self._ready:
            if self._unconfirmed:
                self._confirm()
            deadline = None if timeout is None else time.monotonic() + timeout
            if self._io.data is not None or self._read(deadline):
                # Only if this read has returned exactly one message and nothing else.
                io = self._io
                body = self._decode_one(io.data)  # type: ignore[arg-type]  # there is some
                if body is not None:
                    # Such messages are not counted: ``decode_one`` returns None where we have to confirm.
                    self._short_cut_taken = True
                    # While messages keep coming no read ends by SO_RCVTIMEO, so what is due has to be looked
                    # for here.
                    if self._due != math.inf and time.monotonic() >= self._due:
                        self._quietly(self._do_what_is_due)
                    # No call from here to the end: the body is returned, or stays for the next call.
                    io.data = None
                    return body
            self._fill(timeout, deadline)
        return self._ready.message().body

    def receive_nowait(self) -> Buffer:
        """Return the next body; ``WouldBlock`` if there is none."""
        try:
            return self.receive(0)
        except TimedOut:
            raise WouldBlock(f"nothing to receive from {self.peer}") from None

    def receive_many(self, most: int = EVERYTHING, timeout: float | None = None) -> list[Buffer]:
        """Return the bodies that have arrived, ``most`` at the most.

        Wait for the first, at most ``timeout`` seconds (``TimedOut``).
        """
        if not self._ready:
            self._await_messages(timeout)
        return self._ready.take(most)

    def receive_batch(self, most: int = EVERYTHING, timeout: float | None = None) -> Batch:
        """Return the next messages that share one envelope, ``most`` at the most."""
        if not self._ready:
            self._await_messages(timeout)
        return self._ready.run(most)

    def has_something(self) -> bool:
        """Whether a message has arrived that was not received yet."""
        if self._io.data is not None and not self._ready:
            # Left by a call in which a handler of a signal has raised.
            self._quietly(self._receive)
        return bool(self._ready)

    def receive_message(self, timeout: float | None = None) -> Message:
        """Return the next message with its envelope and parts."""
        if not self._ready:
            self._await_messages(timeout)
        return self._ready.message()

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._wire.fileno()

    # ------------------------------------------------------------------ reading without the short cut

    def _await_messages(self, timeout: float | None) -> None:
        """Read until there is a message, at most ``timeout`` seconds (``TimedOut``)."""
        if self._unconfirmed:
            self._confirm()
        self._fill(timeout, None if timeout is None else time.monotonic() + timeout)

    def _fill(self, timeout: float | None, deadline: float | None) -> None:
        """Read until there is a message or a deadline, ``timeout`` seconds after the call, has passed."""
        while not self._ready:
            if self._io.data is not None or self._read(deadline):
                self._receive()
            elif deadline is not None and time.monotonic() >= deadline:
                within = f" within {in_seconds(timeout)}" if timeout is not None and timeout > 0 else ""
                raise TimedOut(f"nothing received from {self.peer}{within}")
            if self._refusing is not None and self._refusing.refused:
                self._raise_refusal(self._refusing)

    def _read(self, deadline: float | None) -> bool:
        """Wait for input until a deadline; return whether there is any.

        False also when something else was done that was due.  With None there is no such return, and one
        system call less.
        """
        if self._unfinished:
            self._settle()
        while True:
            try:
                if deadline is None:
                    self._read_input()
                elif not self._await_bytes(deadline):
                    return False
                else:
                    self._read_input_now()
            except BlockingIOError:
                # Only a part of a TLS record or of a frame has come, or the system has reported input that it
                # does not have.  Or the time of SO_RCVTIMEO is over.
                if deadline is not None:
                    return False
                self._do_what_is_due()
            except OSError as error:
                self._lose(error)
            else:
                return True

    def _receive_more(self) -> None:
        """Wait for input, and process it.  In ``with UNINTERRUPTED``, except for the wait."""
        with UNINTERRUPTED.sleeping():
            # ``inf`` and not None: this also returns after a deadline of the protocol, which may have ended
            # the conversation.  The caller finds that out.
            arrived = self._io.data is not None or self._read(math.inf)
        if arrived:
            self._receive()

    def _await_bytes(self, deadline: float) -> bool:
        """Wait until there is input or a deadline has passed; return whether there is input."""
        # Our own wait ends at the protocol's deadline too: heartbeats are sent during a long wait.
        due = min(self._protocol.next_deadline() or deadline, deadline)
        if self._poll(min(max(due - time.monotonic(), 0), LONGEST) * 1000):
            return True
        if (self._protocol.next_deadline() or math.inf) <= time.monotonic():
            self._do_what_is_due()
        return False

    def _do_what_is_due(self) -> None:
        with UNINTERRUPTED:
            now = time.monotonic()
            # The short cut does not tell the protocol the time, so to the protocol the peer has been silent
            # since the last read on the usual way.  An empty read is how a host says that it was not.
            if self._short_cut_taken:
                self._short_cut_taken = False
                self._protocol.receive_data(b"", now)
            try:
                self._protocol.handle_timeout(now)
            except RemoteProtocolError as error:
                self._fail(error)
                raise
            self._due = self._protocol.next_deadline() or math.inf
            self._settle()

    def _quietly(self, do: Callable[[], None]) -> None:
        """Do something that may end the conversation, but do not raise.  The next call raises instead."""
        try:
            do()
        except (ConnectionLost, RemoteProtocolError):
            pass

    def _receive(self) -> None:
        """Give to the protocol what was read."""
        with UNINTERRUPTED:
            data, self._io.data = self._io.data, None
            if data is not None:
                self._receive_data(data)

    def _receive_data(self, data: bytes) -> None:
        now = time.monotonic()
        protocol = self._protocol
        try:
            if not data:
                # Raises in the middle of a message, so that a truncated one is not taken for a regular end.
                protocol.receive_eof(now)
                self._lose(None)
            batches = protocol.receive_data(data, now)
        except RemoteProtocolError as error:
            self._ready.add(error.batches)
            self._fail(error)
            raise
        # ``StreamProtocol.confirm`` counts all messages of the conversation, those that the application skips
        # included.
        try:
            self._received += sum(map(len, batches))
        except TypeError:
            raise wrong_answer(protocol, "receive_data", batches, BATCHES) from None
        self._unconfirmed = self._unconfirmed or bool(batches)
        self._ready.add(batches)
        # A peer that sends without a pause would otherwise put off the heartbeats of this side for ever.
        if now >= self._due:
            self._do_what_is_due()
        if protocol.subscriptions:
            # Nothing filters here, so whatever the peer asks for is in effect; and the list must not grow.
            protocol.subscriptions.clear()
            if self._told_of_subscriptions is not None:
                self._told_of_subscriptions.subscribed(now)
        self._settle()

    def _settle(self) -> None:
        """Write what the protocol has to say, and begin TLS or end the conversation if it wants that.

        A handler of a signal may raise while this waits for the peer.  The next read begins with it then.
        """
        with UNINTERRUPTED:
            self._flush()
            self._look_for_upgrade()
            # With messages, the caller gets these first and the end with its next call.
            if self._protocol.closed() and not self._ready:
                self._lose(None)

    def _confirm(self) -> None:
        """Confirm all messages received: the application asks for more, so it has processed what it had."""
        with UNINTERRUPTED:
            self._unconfirmed = False
            self._protocol.confirm(self._received)
            try:
                self._flush()
            except ConnectionLost:
                # The peer has closed and does not take confirmations, but what it sent before can still be
                # read.
                pass

    def _use(self, wire: Wire) -> None:
        """Read and write on this wire from now on."""
        self._wire = wire
        blocking = BlockingSocket(wire) if isinstance(wire, PlainWire) else BlockingWire(wire)
        self._io: Received = blocking
        self._send: Callable[[bytes], int] = (
            wire.connected.send if isinstance(wire, PlainWire) else self._send_to_wire
        )
        self._wait_writable = blocking.wait_writable
        self._limit_reads = blocking.limit_reads
        self._read_input: Callable[[], None] = blocking.read
        self._read_input_now: Callable[[], None] = blocking.read_now
        self._write_some: Callable[[deque[Buffer]], bool] = blocking.write
        self._poll: Callable[[float], object] = blocking.poll

    def _look_for_upgrade(self) -> None:
        """Begin TLS if the protocol wants it.  Everything before it was written."""
        protocol = self._upgrading
        if protocol is None or not protocol.wants_tls():
            return
        connected = self._wire.connected
        try:
            if self._start_tls is None or connected is None or not isinstance(self._wire, PlainWire):
                raise ConnectionLost("the protocol wants TLS, which cannot begin on this connection")
            wire = self._start_tls(connected)
        except (ConnectionLost, OSError, ValueError) as error:
            # OSError and ValueError: there is no usable certificate.  To go on in plain text would hide that.
            self._end(f"no TLS: {error}")
            raise ConnectionLost(self._lost) from None
        except BaseException as error:
            # What a handler of a signal has raised.  Nobody knows how far the handshake is.
            self._end(f"no TLS: the handshake was interrupted by {error!r}")
            raise
        self._use(wire)
        self._limit_reads_to_deadline()
        protocol.tls_started(facts_of(wire, self.peer, self._shared), time.monotonic())
        self._flush()

    def _end(self, reason: str) -> None:
        """End the conversation without a word to the peer."""
        self._lost = f"{self.peer}: {reason}"
        self._wire.close()
        self._stop_reading()

    def _limit_reads_to_deadline(self) -> None:
        """Limit blocking reads, so that the protocol is called at its deadline.

        This needs no extra system call for each read.
        """
        deadline = self._protocol.next_deadline()
        if deadline is None or deadline == math.inf:
            return
        self._due = deadline
        self._limit_reads(deadline - time.monotonic())

    def _shake_hands(self, deadline: float) -> None:
        """Wait until messages may be sent."""
        protocol = self._protocol
        authenticating = protocol if isinstance(protocol, Authenticating) else None
        while not protocol.ready_to_send():
            if authenticating is not None and authenticating.login() is not None:
                authenticating.decide("there is no authentication here", time.monotonic())
                self._flush()
                raise LocalProtocolError(
                    f"{self.peer} logs in, and a direct channel has no engine that decides on logins: "
                    "use an engine of kind stream with the option authenticator"
                )
            if self._read(deadline):
                self._receive()
            elif time.monotonic() >= deadline:
                raise ConnectionLost(f"{self.peer}: the handshake did not end in time")

    def _flush(self) -> None:
        """Write what the protocol has to say.  In ``with UNINTERRUPTED``."""
        data = self._protocol.data_to_send()
        # Small buffers are joined, to be written with one system call.  Joining large ones would copy them.
        try:
            if len(data) > 1 and max(map(len, data)) <= 65536:
                data = [b"".join(data)]
        except TypeError:
            refuse_buffers(self._protocol, data)
            raise
        self._pending.extend(data)
        self._write()

    def _send_to_wire(self, data: bytes) -> int:
        """Write a message to a wire that is no plain socket, as the ``send`` of one does."""
        with UNINTERRUPTED:
            # Nobody has to take it up.
            self._writing = b""
            self._pending.append(data)
            self._write()
        return len(data)

    def _write_held(self) -> None:
        with UNINTERRUPTED:
            self._write()

    def _write(self) -> None:
        """Write all that is pending.  In ``with UNINTERRUPTED``; a handler may raise while this waits."""
        self._take_up()
        # Unfinished: a wire may have taken from what is pending, and still have it.
        if not self._pending and not self._unfinished:
            return
        self._unfinished = True
        try:
            while not self._write_some(self._pending):
                with UNINTERRUPTED.sleeping():
                    self._wait_writable()
        except OSError as error:
            # What the peer sent before can still be read, and the next read must not begin with this.
            self._unfinished = False
            self._pending.clear()
            self._lose(error)
        self._unfinished = False

    def _lose(self, error: OSError | None) -> NoReturn:
        # The first reason stays: later errors, such as that of writing to a socket that is shut down, follow
        # from it.
        self._lost = self._lost or f"{self.peer}: {error or 'closed by the peer'}"
        raise ConnectionLost(self._lost) from error

    def _fail(self, error: RemoteProtocolError) -> None:
        """End a conversation in which the peer has broken a rule: say so to it, and read no more."""
        self._lost = f"{self.peer}: {error}"
        try:
            self._flush()
            self._wire.shut_down()
        except (ConnectionLost, OSError):
            # The peer has gone already.  The caller of this raises ``error`` in any case.
            pass
        finally:
            self._stop_reading()

    def _stop_reading(self) -> None:
        """Let every later read raise, and send nothing more."""

        def stopped(*_: object) -> NoReturn:
            raise ConnectionLost(self._lost)

        # Replaced instead of tested for: a test of a flag would be added to each message.
        self._read_input = self._read_input_now = self._poll = self._write_some = stopped

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Tell the peer that the conversation ends, and close the connection.

        If the peer is still sending, wait a few seconds until it has closed its side (``closing_wire.py``).
        """
        if self._wire.fileno() < 0:
            return
        with UNINTERRUPTED:
            self._protocol.close("closed", time.monotonic())
            try:
                self._flush()
                self._hang_up()
            except (ConnectionLost, OSError):
                # The peer has gone already, so there is nobody to tell.
                pass
            finally:
                self._lost = self._lost or f"{self.peer}: the channel is closed"
                self._wire.close()

    def _hang_up(self) -> None:
        """Shut down the sending half; read and drop what the peer sends, until it closes.

        Closing a socket with unread input makes the system send a reset, which can destroy our last bytes
        before the peer has read them.  A peer that has sent nothing is not waited for.
        """
        wire = self._wire
        if wire.connected is not None:
            # Below, ``receive`` must return None and not wait when there is no input.
            wire.connected.setblocking(False)
        wire.shut_down()
        deadline = time.monotonic() + SECONDS
        discarded = 0
        readable = select.poll()
        readable.register(wire.fileno(), select.POLLIN)
        while discarded <= DISCARDED_BYTES:
            data = wire.receive(READ_SIZE)
            if data == b"":
                return
            if data is not None:
                discarded += len(data)
            # Nothing was unread, so closing sends no reset.
            elif not discarded:
                return
            else:
                with UNINTERRUPTED.sleeping():
                    ready = readable.poll(max(deadline - time.monotonic(), 0) * 1000)
                if not ready:
                    # The peer had its time.
                    return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _no_short_cut(_: Any) -> None:
    """Return None: what a protocol without a short cut has for ``encode_one`` and ``decode_one``."""
