"""Stream host: the one place where a sans-I/O stream protocol meets a socket, a port and a clock.

It is passive.  Its thread calls it when the socket is readable or writable, when its port's pipes have something, and at
the protocol's deadline.  Sending is tried at once from where the batch arrived; only a full socket buffer makes it wait
for the descriptor.  While the socket is full nothing is taken from the pipes, and while a pipe is full nothing is
read from the socket: back-pressure needs no further words.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from kernel.contracts.engine import Host, Port
from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Batch, Buffer
from kernel.contracts.protocol import LargeBodies, Refusing, StreamProtocol
from kernel.hosting.read_size import FIRST_READ_SIZE, next_read_size
from kernel.hosting.stream_statistics import StreamStatistics
from kernel.hosting.wire import Wire

BATCH_BYTES = 256 * 1024
"""About how many bytes are taken from the pipes, encoded and written in one go."""

ANSWERS_LIMIT = 1024 * 1024
"""Bytes of answers (pongs, confirmations) that may wait for a peer that does not read them."""

BATCHES_A_TURN = 8
"""How many batches one connection may write before its neighbours have their turn."""


class StreamHost:
    """One connection.  ``on_end(reason)`` is called once, when it is over, whyever.

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
    _armed: float | None = None
    _answers = 0  # bytes that the protocol added while the socket was full

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
        self.ended = False
        self._host = host
        self._wire = wire
        # TLS keeps bytes of its own, which no descriptor tells of, so it is always read to the end
        self._receive_into: Callable[[memoryview], int | None] | None = getattr(wire, "receive_into", None)
        self._large = protocol if isinstance(protocol, LargeBodies) else None
        self._protocol = protocol
        self._counters = counters
        self._open_port = open_port
        self._on_open = on_open
        self._on_end = on_end
        self._on_refused = on_refused
        self._refusing = protocol if isinstance(protocol, Refusing) else None
        self._port: Port | None = None
        self._out: deque[Buffer] = deque()
        self._read_size = FIRST_READ_SIZE
        self._reading = True
        self._writing = False
        self._held: list[Batch] = []  # received before the port was there

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Begin the conversation."""
        self._protocol.handle_timeout(self._host.now())
        self._watch()
        self._after()

    def close(self, reason: str) -> None:
        """Say good-bye, write what goes at once and hang up."""
        if not self.ended:
            self._protocol.close(reason, self._host.now())
            self._last_words()
            self._end(reason)

    def pending(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._out) or (self._port is not None and self._port.has_input())

    def _end(self, reason: str) -> None:
        if self.ended:
            return
        self.ended = True
        self._host.poller.watch(self._wire.fileno(), readable=None, writable=None)
        self._host.set_timer(None, self._on_timer, self)
        self._wire.close()
        self._out.clear()
        self._on_end(self, reason)

    def _last_words(self) -> None:
        self._out.extend(self._protocol.data_to_send())
        try:
            self._wire.send(self._out)
        except OSError:  # the wire is cut: there is nobody to tell
            pass

    def _fail(self, error: RemoteProtocolError) -> None:
        self._counters.protocol_errors += 1
        self._deliver(error.batches)
        self._deliver_held()
        self._last_words()
        self._end(f"protocol error: {error}")

    # ------------------------------------------------------------------ from the wire

    def _on_readable(self) -> None:
        try:
            batches = self._receive()
        except OSError as error:
            self._end(f"connection lost: {error}")
            return
        except RemoteProtocolError as error:
            self._fail(error)
            return
        if batches is None:
            return
        if batches:
            self._deliver(batches)
        self._after()

    def _receive(self) -> list[Batch] | None:
        """Read once; the batches that it completes, None when there was nothing or the stream has ended."""
        protocol = self._protocol
        most = self._read_size
        data: bytes | None = None
        if self._large is not None and self._receive_into is not None:
            with self._large.room() as room:
                count = self._receive_into(room) if room else -1
            if count is None:
                return None
            if count > 0:
                self._counters.bytes_in += count
                return self._large.filled(count, self._host.now())
            most = self._large.read_hint(most)
            data = b"" if count == 0 else self._wire.receive(most)
        else:
            data = self._wire.receive(most)
        if data is None:
            return None
        if not data:
            protocol.receive_eof(self._host.now())
            self._end("closed by the peer")
            return None
        self._counters.bytes_in += len(data)
        self._read_size = next_read_size(self._read_size, len(data), most)
        return protocol.receive_data(data, self._host.now())

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
            self._reading = False
            self._watch()
        if not port.confirms:
            self._protocol.confirm(self._received)  # nobody further on does: it is out of our hands
            self._direct = self._received
            self._sent_before = port.sent()

    def on_writable(self) -> None:
        """The pipes have room again."""
        self._reading = True
        self._watch()

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
        if not self.ended:
            if protocol.closed():
                self._end("closed by the peer")
            else:
                self._arm()

    def _open(self) -> None:
        """The handshake is over: join the dispatcher, or take over where an earlier conversation ended."""
        self._on_open()
        port = self._port = self._open_port(self)
        self._sent_before = port.sent()
        self._wanted = port.must_confirm
        if self._wanted:
            self._want_confirm()
            again = port.rewind()
            if again:
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
        port = self._port
        if port is None or self.ended:
            return
        for _ in range(BATCHES_A_TURN):
            if self._writing:
                return
            batches = port.take(BATCH_BYTES // self._body_size or 1)
            if not batches:
                return
            if port.must_confirm != self._wanted:
                self._wanted = port.must_confirm
                if self._wanted:
                    self._want_confirm()
            self._send(batches)
            if self.ended:
                return
        if port.has_input():
            self._host.soon(self.on_output)

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
        if not self._out:
            self._written()

    def _flush(self) -> None:
        """Write what the protocol has, as much as goes."""
        data = self._protocol.data_to_send()
        if not data and not self._out:
            return
        out = self._out
        out.extend(data)
        self._counters.bytes_out += sum(map(len, data))
        if self._writing:  # the descriptor will tell
            self._answers += sum(map(len, data))
            if self._answers > ANSWERS_LIMIT:
                self._end("the peer does not read the answers that it asks for")
            return
        self._write()

    def _write(self) -> None:
        try:
            done = self._wire.send(self._out)
        except OSError as error:
            self._end(f"connection lost: {error}")
            return
        if done:
            self._written()
        if done == self._writing:
            self._writing = not done
            self._watch()

    def _written(self) -> None:
        """All is with the operating system; for a peer that does not confirm this is all there will be."""
        self._answers = 0
        count, self._unwritten = self._unwritten, 0
        port = self._port
        if count and port is not None and port.must_confirm and self._protocol.confirmed() is None:
            port.confirm(count)

    def _on_writable_wire(self) -> None:
        self._write()
        if not self._writing:
            self.on_output()

    # ------------------------------------------------------------------ time and descriptors

    def _watch(self) -> None:
        if not self.ended:
            self._host.poller.watch(
                self._wire.fileno(),
                readable=self._on_readable if self._reading else None,
                writable=self._on_writable_wire if self._writing else None,
            )

    def _arm(self) -> None:
        """Have the timer at the deadline or before.  Deadlines mostly move away, which costs nothing here."""
        deadline = self._protocol.next_deadline()
        if deadline is not None and (self._armed is None or deadline < self._armed):
            self._armed = deadline
            self._host.set_timer(deadline, self._on_timer, self)

    def _on_timer(self) -> None:
        self._armed = None
        now = self._host.now()
        if not self._reading:  # we are the ones who do not listen: the peer's silence means nothing
            self._protocol.receive_data(b"", now)
        deadline = self._protocol.next_deadline()
        if deadline is not None and deadline <= now:
            if self._reading:  # what came while the thread was busy came in time
                self._on_readable()
                if self.ended:
                    return
            try:
                self._protocol.handle_timeout(now)
            except RemoteProtocolError as error:
                self._fail(error)
                return
        self._after()
