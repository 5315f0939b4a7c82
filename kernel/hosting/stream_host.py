"""Stream host: the one place where a sans-I/O stream protocol meets a port.

The wire, the descriptor and the timer are the connection's (``connection.py``, where the theory is).  The stream host
passes bytes to the protocol and runs to the port, and the other way round.  While the socket is full nothing is
taken from the pipes, and while a pipe is full nothing is read from the socket: back-pressure needs no more than that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from kernel.contracts.engine import Host, Port
from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Batch
from kernel.contracts.protocol import Crediting, LargeBodies, Refusing, StreamProtocol
from kernel.hosting.connection import Connection, ConnectionOwner, Pause
from kernel.hosting.stream_statistics import StreamStatistics
from kernel.hosting.wire import Wire

BATCH_BYTES = 256 * 1024
"""About how many bytes are taken from the pipes, encoded and written in one go."""

BATCHES_A_TURN = 8
"""How many batches one connection may write before its neighbours have their turn."""


class StreamHost(ConnectionOwner):
    """One conversation.  ``on_end(reason)`` is called once, when it is over, for whatever reason.

    ``on_refused(why)`` is called at the first message that is not sent because the peer would not take it.
    """

    _received = 0  # messages, in this conversation
    _sent_before = 0  # what the port had sent for earlier conversations
    _sent = 0  # messages, in this conversation
    _direct = 0  # messages confirmed at once, because nobody further on confirms
    _wanted = 0  # whether what is sent now is to be confirmed: the port's ``must_confirm``
    _peer_confirmed = 0
    _unwritten = 0  # messages encoded but not written, for peers that do not confirm
    _body_size = 128
    _withheld = False  # whether messages wait in the pipes because the protocol is not ready for them

    def __init__(
        self,
        host: Host,
        wire: Wire,
        protocol: StreamProtocol,
        *,
        peer: str,
        counters: StreamStatistics,
        open_port: Callable[[StreamHost], Port],
        on_open: Callable[[], Any],
        on_end: Callable[[StreamHost, str], Any],
        on_refused: Callable[[str], Any] | None = None,
    ) -> None:
        self.peer = peer
        self._host = host
        self._protocol = protocol
        self._counters = counters
        self._open_port = open_port
        self._on_open = on_open
        self._on_end = on_end
        self._on_refused = on_refused
        self._refusing = protocol if isinstance(protocol, Refusing) else None
        self._crediting = protocol if isinstance(protocol, Crediting) else None
        self._port: Port | None = None
        self._held: list[Batch] = []  # received before the port was there
        self._over_credit: deque[Batch] = deque()  # taken from the pipes, and the peer gives no credit for it
        large = protocol if isinstance(protocol, LargeBodies) else None
        self._connection = Connection(host, wire, self, large=large)

    # ------------------------------------------------------------------ life

    @property
    def ended(self) -> bool:
        """Whether the conversation is over."""
        return self._connection.ended

    def start(self) -> None:
        """Begin the conversation."""
        self._protocol.handle_timeout(self._host.now())
        self._connection.start()
        self._after()

    def close(self, reason: str) -> None:
        """Say good-bye and hang up."""
        if not self.ended:
            self._protocol.close(reason, self._host.now())
            self._close(reason)

    def pending(self) -> bool:
        """Whether something waits to be written."""
        if self._connection.writing or self._over_credit:
            return True
        return self._port is not None and self._port.has_input()

    def _close(self, reason: str) -> None:
        """Write what the protocol has to say last, and end."""
        last_words = self._protocol.data_to_send()
        self._counters.bytes_out += sum(map(len, last_words))
        self._connection.close(reason, last_words)

    def _fail(self, error: RemoteProtocolError) -> None:
        self._counters.protocol_errors += 1
        self._deliver(error.batches)
        self._deliver_held()
        self._close(f"protocol error: {error}")

    # ------------------------------------------------------------------ from the connection

    def on_data(self, data: bytes, now: float) -> None:
        """Bytes have come."""
        self._counters.bytes_in += len(data)
        try:
            batches = self._protocol.receive_data(data, now)
        except RemoteProtocolError as error:
            self._fail(error)
            return
        if batches:
            self._deliver(batches)
        self._after()

    def on_filled(self, count: int, now: float) -> None:
        """Bytes of a large body have come into its own buffer."""
        assert isinstance(self._protocol, LargeBodies)
        self._counters.bytes_in += count
        try:
            batches = self._protocol.filled(count, now)
        except RemoteProtocolError as error:
            self._fail(error)
            return
        if batches:
            self._deliver(batches)
        self._after()

    def on_eof(self, now: float) -> None:
        """The peer sends no more."""
        try:
            self._protocol.receive_eof(now)
        except RemoteProtocolError as error:
            self._fail(error)
        else:
            self._close("closed by the peer")

    def on_written(self) -> None:
        """The socket has taken some of what waited."""
        if not self._connection.writing:
            self._written()
            self.on_output()

    def next_deadline(self) -> float | None:
        """The protocol's."""
        return self._protocol.next_deadline()

    def on_deadline(self, now: float) -> None:
        """Something is due."""
        try:
            self._protocol.handle_timeout(now)
        except RemoteProtocolError as error:
            self._fail(error)
        else:
            self._after()

    def on_not_read(self, now: float) -> None:
        """We are the ones who do not listen: the peer's silence means nothing."""
        self.on_data(b"", now)

    def on_ended(self, reason: str) -> None:
        """The connection is over."""
        self._on_end(self, reason)

    # ------------------------------------------------------------------ messages from the peer

    def _deliver(self, batches: Any) -> None:
        """Pass messages on to the routes."""
        count = 0
        for batch in batches:
            count += len(batch.bodies)
        self._received += count
        self._counters.messages_in += count
        port = self._port
        if port is None:
            self._held += batches
        elif batches:
            self._pass_on(port, batches)

    def _pass_on(self, port: Port, batches: Any) -> None:
        if not port.send(batches):
            self._connection.pause(Pause.ROUTES_FULL)
        if not port.confirms:
            self._protocol.confirm(self._received)  # nobody further on does: it is out of our hands
            self._direct = self._received
            self._sent_before = port.sent()

    def on_writable(self) -> None:
        """The pipes have room again."""
        self._connection.resume(Pause.ROUTES_FULL)

    def on_confirmed(self, count: int) -> None:
        """Every destination has confirmed."""
        if not self.ended and count > self._sent_before:
            self._protocol.confirm(self._direct + count - self._sent_before)
            self._flush()

    def _after(self) -> None:
        """What follows input or a deadline: opening, subscriptions, confirmations, answers."""
        protocol = self._protocol
        if self._port is None and protocol.ready_to_send():
            self._open()
        elif protocol.closed():
            self._deliver_held()
        port = self._port
        if protocol.subscriptions and port is not None:
            for verb, pattern in protocol.subscriptions:
                (port.subscribe if verb == "subscribe" else port.unsubscribe)(pattern)
            protocol.subscriptions.clear()
        if port is not None and port.must_confirm:
            self._take_confirmations(port)
        self._flush()
        if self._withheld and not self._connection.writing:
            self.on_output()
        if self._connection.ended:
            return
        if protocol.closed():
            self._close("closed by the peer")
        else:
            self._connection.arm(protocol.next_deadline())

    def _open(self) -> None:
        """The handshake is over: join the dispatcher, or take over where an earlier conversation ended."""
        self._on_open()
        port = self._port = self._open_port(self)
        self._sent_before = port.sent()
        self._wanted = port.must_confirm
        if self._wanted:
            self._want_confirm()
            again = port.rewind()
            if self._crediting is not None:
                self._over_credit.extend(again)
            elif again:
                self._send(again)
        self._deliver_held()
        self.on_output()

    def _deliver_held(self) -> None:
        """Pass on what came before there was a port, even if the conversation is over by now."""
        if self._held:
            held, self._held = self._held, []
            if self._port is None:
                self._port = self._open_port(self)
            self._pass_on(self._port, held)

    def _want_confirm(self) -> None:
        """From the next message on somebody waits for confirmations."""
        self._peer_confirmed = self._sent  # nobody waits for those before
        self._protocol.want_confirm()

    def _take_confirmations(self, port: Port) -> None:
        confirmed = self._protocol.confirmed()
        if confirmed is not None and confirmed > self._peer_confirmed:
            news = confirmed - self._peer_confirmed
            self._peer_confirmed = confirmed
            port.confirm(news)

    # ------------------------------------------------------------------ to the wire

    def on_output(self) -> None:
        """The pipes have something."""
        port, connection, protocol = self._port, self._connection, self._protocol
        if port is None or connection.ended:
            return
        self._withheld = False
        for _ in range(BATCHES_A_TURN):
            if connection.writing:
                return
            if not protocol.ready_to_send():
                self._withheld = True
                return
            most = BATCH_BYTES // self._body_size or 1
            batches = port.take(most) if self._crediting is None else self._take_on_credit(port, most)
            if not batches:
                return
            if port.must_confirm != self._wanted:
                self._wanted = port.must_confirm
                if self._wanted:
                    self._want_confirm()
            self._send(batches)
            if connection.ended:
                return
        if self._over_credit or port.has_input():
            self._host.soon(self.on_output)

    def _take_on_credit(self, port: Port, most: int) -> list[Batch]:
        """Take no more messages than the peer has given credit for.

        The port gives whole batches, and so may give more than it was asked for.  The rest waits here.
        """
        assert self._crediting is not None
        credit = self._crediting.may_send()
        if credit is not None:
            if credit <= 0:
                self._withheld = True
                return []
            most = min(most, credit)
        waiting = self._over_credit
        if not waiting:
            waiting.extend(port.take(most))
        batches = []
        while waiting and most > 0:
            batch = waiting.popleft()
            if len(batch.bodies) > most and credit is not None:
                waiting.appendleft(batch.slice(most, len(batch.bodies)))
                batch = batch.slice(0, most)
            most -= len(batch.bodies)
            batches.append(batch)
        return batches

    def _send(self, batches: list[Batch]) -> None:
        count = size = 0
        for batch in batches:
            count += len(batch.bodies)
            size += batch.size
        self._body_size = size // count + 1
        self._counters.messages_out += count
        self._sent += count
        self._unwritten += count
        self._protocol.send_batches(batches, self._host.now())
        self._flush()
        if self._refusing is not None and self._refusing.refused:
            self._take_refusals(self._refusing.refused)

    def _take_refusals(self, refused: list[str]) -> None:
        """Count what was not sent, tell of it once, and wait for no confirmation of it."""
        first = refused[0]
        self._counters.messages_refused += len(refused)
        self._counters.messages_out -= len(refused)
        refused.clear()
        if self._on_refused is not None:
            tell, self._on_refused = self._on_refused, None
            tell(first)
        port = self._port
        if self.ended or port is None or not port.must_confirm:
            return
        self._take_confirmations(port)
        if not self._connection.writing:
            self._written()

    def _flush(self) -> None:
        """Write what the protocol has, as much as goes."""
        data = self._protocol.data_to_send()
        if data:
            self._counters.bytes_out += sum(map(len, data))
            connection = self._connection
            connection.send(data)
            if self._unwritten and not connection.writing:
                self._written()

    def _written(self) -> None:
        """All is with the operating system; for a peer that does not confirm this is all there will be."""
        count, self._unwritten = self._unwritten, 0
        port = self._port
        if count and port is not None and port.must_confirm and self._protocol.confirmed() is None:
            port.confirm(count)
