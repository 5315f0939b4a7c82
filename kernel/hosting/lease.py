"""Lease: an application thread reads and writes the socket of one connection itself.

A lone message and its answer cross two threads on each side: the application's and the poll thread.  While an
application thread sends one message, waits for one, sends one, and so on, it may do without the poll thread:
it encodes the message and gives it to the socket, then waits for the socket, reads, and decodes.  The design
is in docs/decisions/0046-leases.md.

Two sides
    The methods under "in the thread of the application" are called by the thread that has asked for the
    lease, the others by the thread of the connection.  What belongs to the connection, its protocol and its
    ports is touched only by who has the *turn*: a lock that the thread of the connection gives up nowhere but
    in its poller.  So the application's thread has it only while the other one sleeps.

Two connections
    What is sent may go over another connection than that which is read, if both belong to one thread: the two
    links of an application that exchanges messages with an engine in another process.  ``_connection`` and
    its companions are those that are written, ``_source`` is the half that is read; mostly they are the same.

Invariants
    1.  *One reader.*  While ``active``, the poller does not watch the socket that is read.  Both change
        together, under the turn.  The poller goes on reading one that is only written.
    2.  *Nobody sleeps elsewhere.*  A thread that goes to sleep at its bell has given its lease back before.
        Whoever does not come back at all loses it at the second look of the thread of the connection
        (``LOOK`` of ``connection.py``), which then watches the socket again.
    3.  *Order.*  A message goes directly only while the pipe is empty and the socket is not full, and comes
        directly only while nothing was posted.  Bytes that are not one whole message are given back before
        anything else is read.
    4.  *Questions.*  An answer is read directly only while no other question waits for it.
    5.  *Signals.*  A handler of Python may raise between any two instructions of the main thread, but not
        within a call of C.  So what the system has taken or given is in a list (``_sent``, ``_got``) before
        anything can be raised: ``list.extend`` calls ``send`` or ``recv`` itself.  Who finds something in a
        list goes on from there.  Between the last look at a list and the return there is no call.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import WeakSet

from kernel.contracts.api import NOT_YET
from kernel.contracts.message import PLAIN, Envelope
from kernel.contracts.protocol import ShortMessages
from kernel.hosting.spinning import SpinningPoll
from kernel.pipes.mailbox import Mailbox
from kernel.pipes.pipe import Pipe

if TYPE_CHECKING:
    from kernel.dispatcher.port import Port
    from kernel.hosting.connection import Connection
    from kernel.hosting.stream_statistics import StreamStatistics

_READ = (16 * 1024,)
"""Bytes of one read.  What is longer is no short message."""
_TRIES, _PAUSE = 10, 50e-6
"""How often, and after how many seconds, a thread looks again whether the other one has ended its turn."""
_LONGEST = 3600.0
"""Seconds of the longest wait.  ``poll`` takes at most 24 days."""


class HasTurn(Protocol):
    """What the thread of a connection sleeps in."""

    turn: Lock | None
    """Held by that thread except while it sleeps.  Another one, or None: the one before is
    not valid any more."""
    spin: float | None
    """The option of that name of that thread."""


class Counting(Protocol):
    """Counts the messages of a conversation."""

    received: int
    sent: int
    withheld: bool
    """Whether messages wait in the pipe until the peer has answered."""


class Asking(Protocol):
    """Knows which question the peer has not answered."""

    asked: Any
    """The envelope of the question that is open; None: there is none."""


class _NoQuestions:
    """``Asking`` for a protocol that has no questions."""

    __slots__ = ("asked",)

    asked: Any


class Half(NamedTuple):
    """A conversation, for one direction."""

    conversation: Counting
    connection: Connection
    protocol: ShortMessages
    counters: StreamStatistics
    holder: HasTurn


class Lease:
    """What an application thread has asked for; ``offered`` when it may begin."""

    __slots__ = (
        "__weakref__",
        "_asking",
        "_bell",
        "_connection",
        "_conversation",
        "_counters",
        "_data",
        "_decode",
        "_encode",
        "_got",
        "_has_input",
        "_holder",
        "_incoming",
        "_may_send",
        "_outgoing",
        "_poll",
        "_posted",
        "_protocol",
        "_question",
        "_receive",
        "_seen",
        "_send",
        "_sent",
        "_source",
        "_thread",
        "_to_connection",
        "_trips",
        "_turn",
        "_waiting",
        "active",
        "addressed",
        "descriptor",
        "envelope",
        "kept",
        "offered",
        "port",
        "reader_of",
        "received",
        "sends",
        "source",
    )

    def __init__(
        self,
        mailbox: Mailbox,
        port: Port,
        outgoing: Pipe,
        source: Port,
        reader_of: Callable[[Pipe], Port | None],
        under: Envelope | None = None,
    ) -> None:
        """``under``: see ``ask_lease``."""
        self.port: Port = port
        """The port of the application."""
        self.source: Port = source
        """The only port from which it receives."""
        self.addressed: bool = under is not None
        """Whether who has asked takes messages that belong to questions and their answers."""
        self.envelope: Envelope = under or PLAIN
        """That of all that is received: of the questions of the peer, or of its answers to ours."""
        self.sends: Half | None = None
        """The half that is written, until the lease is offered.  Set by the thread of the connections."""
        self.reader_of: Callable[[Pipe], Port | None] = reader_of
        """Returns the port that a pipe leads to."""
        self.offered: bool = False
        """Whether the application's thread may begin."""
        self.active: bool = False
        """Whether the application's thread reads and writes the socket.  Changes under the turn."""
        self.received: int = 0
        """Messages that came directly."""
        self.descriptor: int = -1
        """That of the socket that is read; -1: the lease is not offered yet."""
        self.kept: Any = None
        """A body that was received and not returned, because a handler of a signal has raised."""
        self._thread = get_ident()
        self._bell = mailbox.bell
        self._posted = mailbox.posted
        self._has_input = port.has_input
        self._outgoing = outgoing
        self._waiting = outgoing.queue
        self._may_send = False
        self._sent: list[int] = []
        self._data = b""
        self._got: list[bytes] = []
        self._asking: Asking = _NoQuestions()
        self._question: Envelope | None = None
        self._trips = self._seen = 0
        self._turn: Any = None
        _LEASES.add(self)

    # ------------------------------------------------------------------ in the thread of the application

    def send(self, body: Any) -> bool:
        """Send a message; False: send it on the usual way, after ``give_back``."""
        # One message between two waits: more than that are faster in batches.
        if self._posted or type(body) is not bytes or get_ident() != self._thread:
            return False
        # It may begin here, while nothing is on its way. A little later the other thread could
        # have read the answer.
        if not self._may_send and (self.active or not self._begin()):
            return False
        self._may_send = False
        if self._sent or self._got or (self._turn.locked() and not self._turn_ends()):
            return False
        with self._turn:
            # Nothing may be on its way through the other thread, which would be overtaken.
            if (
                not self.active
                or self._turn is not self._holder.turn
                or self._waiting
                or self._connection.writing
            ):
                return False
            data = self._encode(body)
            if data is None:
                return False
            self._data = data
            size, length = len(data), len(body)
            sent = self._sent
            try:
                sent.extend(map(self._send, (data,)))
            except OSError:
                # The socket is full, or lost: the usual way finds out.
                return False
            # No call up to the end of the block: nothing can be raised in between.
            if not sent:
                # A handler has waited for the other thread, which has ended the lease (``flush``).
                return True
            if sent[0] == size:
                del sent[:]
                # What the conversation, the protocol and the pipe count, had the message gone the usual way.
                self._trips += 1
                self._asking.asked = self._question
                self._conversation.sent += 1
                self._protocol.sent += 1
                self._connection.bytes_out += size
                self._counters.bytes_out += size
                self._counters.messages_out += 1
                self._outgoing.written += 1
                self._outgoing.taken += 1
                self._outgoing.bytes_taken += length
                return True
        # The rest is for the other thread.
        self.give_back()
        return True

    def receive(self, timeout: float | None) -> Any:
        """Return the next body; None: receive it on the usual way.

        It is None when something else than one short message has come, and after ``timeout`` seconds.
        """
        if get_ident() != self._thread:
            return None
        if self.kept is not None:
            body, self.kept = self.kept, None
            return body
        # What came the usual way, and what was begun, is received first.
        if self._posted or self._got or self._sent or self._has_input():
            return None
        if not self.active and not self._begin():
            return None
        self._may_send = True
        bell = self._bell
        # As ``Mailbox.may_sleep``: the flag first, then the look.
        bell.sleeping = True
        self._posted.rotate(0)
        ready = () if self._posted else self._poll(-1 if timeout is None else min(timeout, _LONGEST) * 1000)
        bell.sleeping = False
        # Also if the bell has rung together with it: what was posted may end the lease.
        if len(ready) != 1 or ready[0][0] != self.descriptor:
            return None
        if not self._take():
            return None
        body, self.kept = self.kept, None
        return body

    def receive_now(self) -> Any:
        """Return the next body, or ``NOT_YET``; None: receive it on the usual way.

        For a thread that waits in an event loop of its own: with ``NOT_YET`` the bell is armed, and it waits
        for that and for ``descriptor``.  It may be told of the descriptor once for all that has come
        (edge-triggered), since everything is read before it waits.
        """
        if get_ident() != self._thread:
            return None
        if self.kept is not None:
            body, self.kept = self.kept, None
            return body
        # The same looks as in ``receive``.  In a method of their own they would be a call more for each
        # message.
        if self._posted or self._got or self._sent or self._has_input():
            return None
        if not self.active and not self._begin():
            return None
        self._may_send = True
        # As in ``receive``, but it stays armed: a post that rings for nobody costs a call.
        self._bell.sleeping = True
        self._posted.rotate(0)
        if self._posted:
            return None
        taken = self._take()
        if not taken:
            return NOT_YET if taken is None else None
        body, self.kept = self.kept, None
        return body

    def _take(self) -> bool | None:
        """Read once, and put the body into ``kept``.

        None: there is nothing.  False: it is no short message, or the usual way has to look.
        """
        if self._turn.locked() and not self._turn_ends():
            return False
        with self._turn:
            source = self._source
            if (
                not self.active
                or self._turn is not self._holder.turn
                or self._posted
                or source.connection.paused
                # The other thread has to send the next question when the answer to this one is here.
                or self._conversation.withheld
            ):
                return False
            got = self._got
            try:
                got.extend(map(self._receive, _READ))
            except BlockingIOError:
                return None
            except OSError:
                return False
            # Without it if a handler has waited for the other thread, which has ended the lease and taken it.
            data = got[0] if got else b""
            size, body = len(data), self._decode(data)
            length = 0 if body is None else len(body)
            # No call up to the end of the block. The end itself is one.
            # What is no short message stays in ``_got``, and is given back with the lease.
            if body is None or not got:
                return False
            self.kept = body
            del got[:]
            self._trips += 1
            self._asking.asked = None
            self.received += 1
            source.conversation.received += 1
            source.connection.bytes_in += size
            source.counters.bytes_in += size
            source.counters.messages_in += 1
            self._incoming.written += 1
            self._incoming.taken += 1
            self._incoming.bytes_taken += length
        return True

    def _begin(self) -> bool:
        """Take the socket over, or both of them."""
        if not self.offered or (self._turn.locked() and not self._turn_ends()):
            return False
        with self._turn:
            written, read = self._connection, self._source.connection
            if (
                not (self.offered and self._turn is self._holder.turn)
                or written.ended
                or written.lease is not None
                or read.ended
                or read.paused
                or read.lease is not None
                # What came through the other thread is received first, and the lease stays offered.
                or self._posted
                or self._has_input()
            ):
                return False
            if written is not read:
                written.lend_output(self)
            read.lend(self)
            self.active = True
        return True

    def _turn_ends(self) -> bool:
        """Wait a moment for the end of a short turn; return whether it has ended."""
        for _ in range(_TRIES):
            time.sleep(_PAUSE)
            if not self._turn.locked():
                return True
        return False

    def give_back(self) -> None:
        """Let the thread of the connection read again."""
        # None: it was never offered, and nothing has to be given back.
        if self._turn is not None:
            self._to_connection(self.end)

    # ------------------------------------------------------------------ in the thread of the connection

    def offer(
        self,
        sends: Half,
        source: Half,
        incoming: Pipe,
        to_connection: Callable[[Callable[[], Any]], Any],
    ) -> None:
        """Let the application's thread begin when it waits next.

        It writes to the connection of ``sends`` and reads that of ``source``, which may be the same half.
        """
        self._source = source
        self._conversation, self._connection, protocol, self._counters, holder = sends
        self._protocol = protocol
        # A protocol without addresses has no questions, so nothing has to wait for an answer.
        addresses = getattr(protocol, "addresses", None)
        if addresses is not None:
            self._asking = addresses
            self.envelope = addresses.envelope or self.envelope
            self._question = self.envelope if addresses.asks else None
        self._incoming, self._to_connection = incoming, to_connection
        # After ``_to_connection``, which ``give_back`` uses if there is a lock.
        self._holder = holder
        self._turn = holder.turn
        written, read = self._connection.wire.connected, source.connection.wire.connected
        assert written is not None  # the owners of the connections have looked
        assert read is not None
        self._send, self._receive = written.send, read.recv
        self._encode, self._decode = protocol.encode_one, source.protocol.decode_one
        self.descriptor = read.fileno()
        sleep = select.poll()
        sleep.register(self.descriptor, select.POLLIN)
        # The bell as well: what other threads post has to wake it.
        sleep.register(self._bell.fileno(), select.POLLIN)
        self._poll = SpinningPoll(sleep.poll, holder.spin)
        # Last: the other thread looks at this alone.
        self.offered = True
        source.connection.look_later(self)

    def look(self) -> None:
        """End it, unless it was used since the last look."""
        if not self.offered or self._trips == self._seen or self._turn is not self._holder.turn:
            self.end()
            return
        self._seen = self._trips
        self._source.connection.lease_used()
        self._source.connection.look_later(self)

    def stop(self) -> None:
        """The connection has ended, or must not be used directly any more."""
        self.offered = self.active = False

    def end_soon(self) -> None:
        """As ``end``, from within the work of the connection, or when one of two has ended."""
        self.stop()
        self._to_connection(self.end)

    def flush(self) -> None:
        """Write what the socket has not taken of a message that was sent directly."""
        if self._sent:
            data, sent = self._data, self._sent.pop()
            self._asking.asked = self._question
            self._conversation.sent += 1
            self._protocol.sent += 1
            self._counters.messages_out += 1
            self._counters.bytes_out += len(data)
            self._connection.bytes_out += sent
            if sent < len(data):
                self._connection.send([data[sent:]])

    def end(self) -> None:
        """Take the sockets back.  Not to be called in the middle of the work of a connection."""
        self.stop()
        written, read = self._connection, self._source.connection
        # The connection may have been given back already, and lent to another thread.
        if written.lease is self:
            self.flush()
            if written is not read:
                written.lease = None
        if read.lease is self:
            read.take_back(self._got.pop() if self._got else b"")


_LEASES: WeakSet[Lease] = WeakSet()


def _end_all() -> None:
    """A child process has a copy of each lease, and must not use the sockets of its parent."""
    for lease in _LEASES:
        lease.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_end_all)
