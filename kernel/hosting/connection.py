"""Connection: one stream connection of an engine, from its wire to its owner.

Every engine with conversations over a stream socket needs the same: to read when there is input, to write
what the socket takes and to keep the rest, to stop reading for a while, to be called at a deadline, and to
end once.  A connection does this.  The meaning of the bytes is left to its owner (``ConnectionOwner``): the
stream host, the AMQP server and client, the TCP half of one-to-many.

Turns
    A connection is passive.  Its thread calls it when its descriptor is ready or its timer is due, and it
    calls its owner, at most once for each such event.  One read (at most 512 KiB) is one turn; then
    other engines have theirs.  Writing is tried at once, in the turn that made the bytes: most sockets take
    them, and waiting for the poller to say so would cost a turn for each batch.  The descriptor is watched
    for writing only while the socket is full.

Level-triggered
    The poller reports a descriptor as long as it is ready.  So a connection may read once and return, and may
    stop reading with input left in the socket: it will be told again.  With an edge-triggered poller each
    would have to read until the socket is empty, and one busy connection would hold up all others.

Back-pressure
    There is no queue for input.  An owner that cannot take more pauses the connection; then the receive
    buffer of the system fills, then the send buffer of the peer, and the peer's own flow control does the
    rest.  Output is limited by the owner: while ``writing`` is true it hands over no more messages.  Only
    answers (pongs, confirmations, replies) are added while the socket is full, because the protocol makes
    them for what was read.  Beyond ``answers_limit`` bytes of them, the connection is not read, so that no
    more answers become due.

Reasons to pause
    Reading goes on when no reason is left.  Each reason has one party that sets and clears it:

    ==================  ======================================================================================
    ``ROUTES_FULL``     the owner: a pipe that blocks is full, or the disk is behind
    ``ALARM``           the owner: memory or disk space runs low
    ``RATE``            the owner: the peer sends faster than it may
    ``UPGRADING``       the owner: a TLS handshake in the middle of the stream reads the socket itself
    ``ANSWERS_UNREAD``  the connection: the peer does not read the answers to what it sends
    ``LOGIN_REFUSED``   the owner: a login has failed, and is answered after a while
    ``ANSWERING``       the owner: it answers one request at a time, and this one is not answered yet
    ==================  ======================================================================================

    While we do not read, we cannot know whether the peer is alive.  Its silence is then no reason to close
    the connection: ``on_not_read`` tells the owner.  ``ANSWERS_UNREAD`` is the exception, because the peer
    itself has caused it: it counts as alive only when it takes some of what waits for it.

Read sizes
    A large buffer for a small message costs an mmap and a munmap; a small buffer at a high data rate costs
    system calls.  So the size grows while reads come back full, and falls after two short reads in a row
    (``read_size.py``).  It is also kept so small that the owner needs about five milliseconds for one read,
    for the sake of other engines.

Acknowledgements
    With Nagle's algorithm, which is the default of sockets, a peer sends a small packet only when all that it
    has sent before is acknowledged.  The system acknowledges what we answer together with the answer, and all
    else 40 ms later.  So a client that acknowledges a message and then sends one waits 40 ms in between.
    paho, MQTT.js, libmosquitto and stomp.py leave the algorithm on.  An owner that has no answer to what such
    a peer has sent calls ``acknowledge`` (docs/decisions/0052-acknowledgements-at-once.md).

Deadlines
    The timer is set to the deadline or to a time before it.  Deadlines mostly move to later times (with each
    byte that is read), which costs nothing: the timer fires at the old time and is set again.  A thread that
    was busy has not looked at its sockets, so a connection reads once more before it calls ``on_deadline``.

The end
    A connection ends once, with a reason.  ``end`` closes at once, for a peer that is lost.  ``close`` is for
    an end in good order: what is queued is written, the sending half is shut down, and input is read and
    thrown away until the peer has closed too (``closing_wire.py``).  Closing a socket with unread input would
    make the system send a reset, which can destroy our last bytes before the peer has read them.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kernel.contracts.engine import Host
from kernel.contracts.message import Buffer
from kernel.contracts.protocol import LargeBodies
from kernel.hosting.closing_wire import close_in_order
from kernel.hosting.lazy_timer import LazyTimer
from kernel.hosting.read_size import FIRST_READ_SIZE, READ_SIZE, SMALLEST_READ, fair_read_size
from kernel.hosting.wire import Wire

if TYPE_CHECKING:
    from kernel.hosting.lease import Lease

LOOK = 0.02
"""Seconds between two looks whether a lease is still used."""
ANSWERS_LIMIT = 1024 * 1024
"""Bytes of answers that may wait for a peer before it is not read any more."""

_QUICK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""Only Linux has it."""
_INTERNET = (socket.AF_INET, socket.AF_INET6)


class Pause:
    """Reasons not to read a connection.  Several may hold at once, so they are bits."""

    ROUTES_FULL = 1
    ALARM = 2
    RATE = 4
    UPGRADING = 8
    ANSWERS_UNREAD = 16
    LOGIN_REFUSED = 32
    ANSWERING = 64


class ConnectionOwner:
    """What a connection calls, in its thread.  ``now`` is the time of the host's clock, in seconds.

    An owner that has no deadlines and no batches to go on with overrides ``on_data``, ``on_eof`` and
    ``on_ended``.
    """

    def on_data(self, data: bytes, now: float) -> None:
        """Process bytes that were read.  Empty bytes do not occur; the end is ``on_eof``."""
        raise NotImplementedError

    def on_filled(self, count: int, now: float) -> None:
        """Process ``count`` bytes that were read into the memory of ``LargeBodies.room``."""

    def on_eof(self, now: float) -> None:
        """The peer sends no more.  The owner has to end or to close the connection."""
        raise NotImplementedError

    def on_written(self) -> None:
        """Some of what waited was written.  If ``writing`` is true, more still waits."""

    def next_deadline(self) -> float | None:
        """Return the time at which ``on_deadline`` has to be called; None: not at all."""
        return None

    def on_deadline(self, now: float) -> None:
        """The deadline has passed.  What had arrived by then was given to ``on_data`` before."""

    def on_not_read(self, now: float) -> None:
        """Do not count the time up to now as silence: we have not read the peer, or it is slow to read."""

    def on_ended(self, reason: str) -> None:
        """The connection is over.  Called once; nothing else is called after it."""
        raise NotImplementedError


class Connection:
    """A wire, and everything between it and its owner.

    ``large``: receives large bodies into its own buffer.  ``answers_limit``: bytes of answers that may wait
    for a peer; None for an owner that goes on sending messages while the socket is full, and so has a limit
    of its own.
    """

    __slots__ = (
        "__weakref__",
        "_answers",
        "_answers_limit",
        "_host",
        "_large",
        "_lent_input",
        "_out",
        "_owner",
        "_read_size",
        "_receive_into",
        "_send_first",
        "_short_read",
        "_timer",
        "_unwritten",
        "arm",
        "bytes_in",
        "bytes_out",
        "ended",
        "largest_read",
        "lease",
        "paused",
        "wire",
        "writing",
    )

    def __init__(
        self,
        host: Host,
        wire: Wire,
        owner: ConnectionOwner,
        *,
        large: LargeBodies | None = None,
        answers_limit: int | None = ANSWERS_LIMIT,
    ) -> None:
        self.wire: Wire = wire
        self.bytes_in: int = 0
        """Bytes read."""
        self.bytes_out: int = 0
        """Bytes given to ``send``, written or not."""
        self.writing: bool = False
        """Whether the socket is full, so that something waits to be written."""
        self.paused: int = 0
        """The reasons not to read (``Pause``)."""
        self.largest_read: int = READ_SIZE
        """Bytes that one read asks for at the most."""
        self.ended: bool = False
        self.lease: Lease | None = None
        """The lease of an application thread that reads or writes the socket at present."""
        self._lent_input = False
        self._host = host
        self._owner = owner
        self._out: deque[Buffer] = deque()
        # Bytes in ``_out``; -1: to be counted. Owners ask in each turn, and many small pieces may wait.
        self._unwritten = 0
        self._answers = 0
        self._answers_limit = answers_limit
        self._read_size = FIRST_READ_SIZE
        # Whether the last read was a short one.
        self._short_read = False
        # Only a plain wire has it.  TLS and WebSocket keep bytes of their own, for which no descriptor
        # becomes readable, and their payload has to be copied out of records or frames in any case.
        self._receive_into: Callable[[memoryview], int | None] | None = getattr(wire, "receive_into", None)
        self._large = large if self._receive_into is not None else None
        # Only a plain wire has this, too: the others make records or frames of what they are given.
        self._send_first: Callable[[Buffer, deque[Buffer]], bool] | None = getattr(wire, "send_first", None)
        self._timer = LazyTimer(host, self._on_time)
        self.arm: Callable[[float | None], None] = self._timer.arm
        """Have ``on_deadline`` called at a deadline; None: there is none for now."""

    def __repr__(self) -> str:
        state = "ended" if self.ended else f"{self.unwritten} bytes unwritten, paused: {self.paused}"
        return f"<Connection {state}>"

    @property
    def unwritten(self) -> int:
        """Bytes that the socket has not taken yet."""
        # Behind the end the wire is written by who closes it (``close_in_order``).
        if self._unwritten < 0 or self.ended:
            self._unwritten = sum(map(len, self._out))
        return self._unwritten

    def start(self) -> None:
        """Begin to read."""
        self._watch()
        self._look_for_early_data()

    # ------------------------------------------------------------------ reading

    def pause(self, reason: int) -> None:
        """Do not read while this reason holds."""
        before, self.paused = self.paused, self.paused | reason
        # Only the first reason changes the watch; further ones are bits alone.
        if not before:
            self._watch()

    def resume(self, reason: int) -> None:
        """Take back a reason not to read; read again if there is no other one."""
        if self.paused & reason:
            self.paused &= ~reason
            if not self.paused and not self.ended:
                # Before reading begins again: the protocol must not count the pause as silence of the peer,
                # and its deadline may have passed in the meantime.
                self._owner.on_not_read(self._host.now())
                self._watch()
                self._look_for_early_data()

    def read_first(self) -> None:
        """Read once after ``start``: most peers that speak first have done so when they are accepted.

        So an owner that has something to say at the beginning says it together with its answer.
        """
        if not (self.ended or self.paused):
            self._on_readable()

    def _look_for_early_data(self) -> None:
        """Read what came together with the handshake of the wire; the descriptor is silent about it."""
        if self.wire.has_early_data:
            # In a turn of its own: owners call ``start`` and ``resume`` in the middle of their own work.
            self._host.soon(self._on_early_data)

    def _on_early_data(self) -> None:
        if not self.ended and not self.paused:
            self._on_readable()

    def _on_readable(self) -> int:
        """Read once, and give the owner what has come; return how many octets that were."""
        asked = min(self._read_size, self.largest_read)
        large = self._large
        try:
            # The protocol may want the read to end where a frame ends, so that the next large body goes into
            # its own buffer.
            if large is None or (asked := large.read_hint(asked)):
                data = self.wire.receive(asked)
            else:
                # The view is released before ``on_filled``: the protocol may then resize or hand over the
                # buffer, which a ``bytearray`` refuses while a view of it exists.
                with large.room() as room:
                    count = self._receive_into(room)  # type: ignore[misc]  # large has it
                if count is None:
                    return 0
                if count > 0:
                    self.bytes_in += count
                    self._owner.on_filled(count, self._host.now())
                    return count
                data = b""
        except OSError as error:
            self.end(f"connection lost: {error}")
            return 0
        if data is None:
            return 0
        now = self._host.now()
        if not data:
            self._owner.on_eof(now)
            return 0
        got = len(data)
        self.bytes_in += got
        # Short reads are not timed, which saves two looks at the clock for each small message.
        if got >= SMALLEST_READ:
            # Large reads by the processor time of this thread, and not by the time that passes: on a busy
            # machine a thread waits longer for a core, or for the interpreter's lock, than it works, and
            # reads would become small when large ones are needed most.  That clock is a system call,
            # which is too much for what a few bytes cost.  They may be judged too slow, and a full read
            # or two make up for it.
            clock = self._host.processor_time if got > FIRST_READ_SIZE else self._host.now
            began = clock()
            self._owner.on_data(data, now)
            self._read_size = fair_read_size(self._read_size, got, asked, clock() - began)
            self._short_read = False
        else:
            self._owner.on_data(data, now)
            if self._short_read:
                self._read_size = FIRST_READ_SIZE
            # The first short read may be the end of a burst that was a little longer than the size asked for.
            # With the larger size the next such burst is one read, and one turn of the owner, not two.
            self._short_read = True
        # TLS and WebSocket may deliver their last bytes and the end in one read; the descriptor does not
        # become readable a second time for the end.  ``on_data`` may have ended the connection.
        if self.wire.at_end and not self.ended:
            self._owner.on_eof(now)
        return got

    def acknowledge(self) -> None:
        """Have the system acknowledge what was read, now and not in 40 ms.  Not for wires other than TCP."""
        connected = self.wire.connected
        if _QUICK is None or connected is None or connected.family not in _INTERNET:
            return
        try:
            # The system forgets it with the next answer, so there is nothing to take back.
            connected.setsockopt(socket.IPPROTO_TCP, _QUICK, 1)
        except OSError:
            # The connection is lost.  Who reads or writes it next says why.
            return

    # ------------------------------------------------------------------ another reader

    def lend(self, lease: Lease) -> None:
        """Leave reading to the thread of an application.  Called by that thread, which has the turn."""
        self.lease = lease
        self._lent_input = True
        self._watch()

    def lend_output(self, lease: Lease) -> None:
        """Let the thread of an application write, and go on reading.

        Called by that thread, which has the turn.
        """
        self.lease = lease

    def lease_used(self) -> None:
        """The peer was heard, by the thread that has the lease."""
        self._owner.on_not_read(self._host.now())

    def look_later(self, lease: Lease) -> None:
        """Look again whether the lease is still used."""
        self._host.set_timer(self._host.now() + LOOK, lease.look, lease)

    def take_back(self, data: bytes | None) -> None:
        """Read again.  ``data`` was read by the other thread, and comes first; None: there is nothing."""
        self.lease = None
        self._lent_input = False
        if data:
            self.bytes_in += len(data)
            self._owner.on_data(data, self._host.now())
        self._watch()

    # ------------------------------------------------------------------ another wire

    def begin_upgrade(self) -> None:
        """Leave the socket to a handshake.

        Everything has to be written before; what is sent from now on waits.
        """
        self.paused |= Pause.UPGRADING
        # As if the socket were full: what the protocol sends during the handshake waits in ``_out`` for TLS.
        self.writing = True
        self._host.poller.watch(self.wire.fileno(), readable=None, writable=None)

    def end_upgrade(self, wire: Wire) -> None:
        """Go on with the wire that the handshake has made."""
        self.wire = wire
        self._receive_into = getattr(wire, "receive_into", None)
        self._send_first = getattr(wire, "send_first", None)
        if self._receive_into is None:
            self._large = None
        self.paused &= ~Pause.UPGRADING
        # ``writing`` is still true, and the socket is writable: so what waits goes out next.
        self._watch()

    # ------------------------------------------------------------------ writing

    def send(self, data: Sequence[Buffer]) -> None:
        """Write now what the socket takes, and the rest when it can.

        What is sent after the end is dropped.
        """
        if self.ended:
            return
        if self.lease is not None:
            self.lease.flush()
        # Tried at once: most sockets take everything, and the poller is not needed.
        if len(data) == 1 and self._send_first is not None and not self.writing:
            # Nothing waits, and so nothing is queued for the usual case.
            self.bytes_out += len(data[0])
            try:
                if self._send_first(data[0], self._out):
                    return
            except OSError as error:
                self.end(f"connection lost: {error}")
                return
            self._unwritten = -1
            self._set_full(full=True)
            return
        # Also while the socket is full: the order of the bytes is the order of the calls.
        self._out.extend(data)
        size = sum(map(len, data))
        self.bytes_out += size
        if self._unwritten >= 0:
            self._unwritten += size
        if not self.writing:
            self._write()
            return
        # The socket is full.  What is added now are answers, which the peer itself has caused.
        self._answers += size
        if self._answers_limit is not None and self._answers > self._answers_limit:
            self.pause(Pause.ANSWERS_UNREAD)

    def _write(self) -> None:
        try:
            done = self.wire.send(self._out)
        except OSError as error:
            self.end(f"connection lost: {error}")
            return
        self._unwritten = 0 if done else -1
        # The descriptor is watched for writing only while the socket is full, so only a change matters here.
        if done == self.writing:
            self._set_full(full=not done)

    def _set_full(self, *, full: bool) -> None:
        self.writing = full
        # When it becomes full: what waits by now are messages, and answers are counted from here.
        self._answers = 0
        self._watch()

    def _on_writable(self) -> None:
        self._write()
        if self.ended:
            return
        if self.paused:
            # The peer reads what we write, so it is slow but alive.
            self._owner.on_not_read(self._host.now())
            if self.ended:
                return
            if self.paused & Pause.ANSWERS_UNREAD and self._answers_limit is not None:
                # ``_answers`` counts since the socket became full.  It may include messages that were written
                # by now.
                self._answers = min(self._answers, self.unwritten)
                # Half, so that a peer at the limit does not pause and resume with every answer.
                if self._answers <= self._answers_limit // 2:
                    self.resume(Pause.ANSWERS_UNREAD)
        self._owner.on_written()

    # ------------------------------------------------------------------ time and descriptor

    def _watch(self) -> None:
        if not self.ended and not self.paused & Pause.UPGRADING:
            self._host.poller.watch(
                self.wire.fileno(),
                readable=None if self.paused or self._lent_input else self._on_readable,
                writable=self._on_writable if self.writing else None,
            )

    def _on_time(self) -> None:
        if self._lent_input and self.lease is not None:
            # What it has read and not returned comes before what is read below.
            self.lease.end()
            if self.ended:
                return
        now = self._host.now()
        # While we do not read the peer, its silence says nothing.  With ANSWERS_UNREAD alone the peer has
        # caused the pause itself, and may run into its deadline.
        if self.paused & ~Pause.ANSWERS_UNREAD:
            self._owner.on_not_read(now)
            if self.ended:
                return
        deadline = self._owner.next_deadline()
        if deadline is not None and deadline <= now:
            # This thread may be late, and the sign of life may be in the socket already.  So read once before
            # the deadline counts as missed.
            if not self.paused:
                self._on_readable()
                if self.ended:
                    return
                deadline = self._owner.next_deadline()
            if deadline is not None and deadline <= now:
                self._owner.on_deadline(now)
                if self.ended:
                    return
                deadline = self._owner.next_deadline()
        # The timer is off once it has fired, whatever the deadline is now.
        self._timer.arm(deadline)

    # ------------------------------------------------------------------ the end

    def end(self, reason: str) -> None:
        """Close at once; what is queued is dropped.  For a connection that is lost."""
        if not self.ended:
            owner = self._detach()
            self.wire.close()
            self._out.clear()
            owner.on_ended(reason)

    def close(self, reason: str, last_words: Sequence[Buffer] = (), *, peer_first: bool = False) -> None:
        """End in good order: write what is queued, and ``last_words``, as far as the peer takes them.

        The owner is told at once; the peer has a few seconds to read and to close its side.  ``peer_first``:
        it is to be the first that closes.
        """
        if not self.ended:
            owner = self._detach()
            self._out.extend(last_words)
            self.bytes_out += sum(map(len, last_words))
            close_in_order(self._host, self.wire, self._out, peer_first=peer_first)
            owner.on_ended(reason)

    def release(self, reason: str) -> Wire:
        """End without closing the wire, and return it: it is somebody else's from now on.

        Nothing may be waiting to be written.
        """
        owner = self._detach()
        owner.on_ended(reason)
        return self.wire

    def _detach(self) -> ConnectionOwner:
        self.ended = True
        if self.lease is not None:
            lease, self.lease = self.lease, None
            # It may have another connection, which is taken back in a later turn.
            lease.end_soon()
        self._host.poller.watch(self.wire.fileno(), readable=None, writable=None)
        # The owner refers to its connection.  Without these references back, both are freed now and not by
        # the next collection of garbage, which costs as much as a fifth of a short connection.
        self._timer.end()
        owner, self._owner = self._owner, _NOBODY
        return owner


_NOBODY = ConnectionOwner()
"""The owner of a connection that has ended."""
