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

Halves
    What is lent is a ``Half``: a conversation, and what its owner has to know of each message that went past
    it.  What is sent may go over another one than that which is read, if both belong to one thread: the two
    links of an application that exchanges messages with an engine in another process.  ``_writes`` is the
    connection that is written, ``_reads`` the one that is read; mostly they are the same.  A lease may have
    one direction only: a multicast group is either sent to or received.  Who only sends never waits, and the
    time between two messages tells whether they are lone ones.

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
        list goes on from there.  The half notes a message in one function, which makes no call behind its
        last look at the list: so either all of it is noted and the list is empty, or nothing is.
    6.  *Numbers.*  A half may number what it sends, and its owner as well.  So between the last look whether
        the lease is still valid and the system call there is no place for a handler, which might let the
        owner go on.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sized
from functools import partial
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, Protocol

from kernel.contracts.api import NOT_YET
from kernel.contracts.message import PLAIN, Envelope
from kernel.hosting.forking import call_in_children
from kernel.hosting.spinning import SpinningPoll
from kernel.pipes.doorbell import Doorbell
from kernel.pipes.mailbox import Mailbox
from kernel.pipes.pipe import Pipe

if TYPE_CHECKING:
    from kernel.dispatcher.port import Port

_TRIES, _PAUSE = 10, 50e-6
"""How often, and after how many seconds, a thread looks again whether the other one has ended its turn."""
_APART = 50e-6
"""Seconds between two calls that send above which messages are lone ones, where nothing is received.  To send
one directly takes some 20 us of the time of the application, which it may need for itself."""
_TOGETHER = 8
"""Messages that are closer together, and are sent directly nevertheless."""
_LONGEST = 3600.0
"""Seconds of the longest wait.  ``poll`` takes at most 24 days."""


class HasTurn(Protocol):
    """What the thread of a connection sleeps in."""

    turn: Lock | None
    """Held by that thread except while it sleeps.  Another one, or None: the one before is
    not valid any more."""
    spin: float | None
    """The option of that name of that thread."""


class Lendable(Protocol):
    """A socket and its owner, for whoever has a lease.  ``Connection`` is one."""

    @property
    def ended(self) -> bool:
        """Whether the socket is closed."""
        ...

    @property
    def writing(self) -> bool:
        """Whether something waits until the socket takes more."""
        ...

    @property
    def paused(self) -> int:
        """Not 0: it must not be read."""
        ...

    lease: Lease | None
    """The lease of an application thread that reads or writes the socket at present."""

    def lend(self, lease: Lease) -> None:
        """Leave reading to the thread of an application.  Called by that thread, which has the turn."""
        ...

    def lend_output(self, lease: Lease) -> None:
        """Let the thread of an application write, and go on reading.

        Called by that thread, which has the turn.
        """
        ...

    def take_back(self, got: Any) -> None:
        """Read again.  ``got`` was read by the other thread and comes first; false: there is nothing."""
        ...

    def lease_used(self) -> None:
        """The lease was used since the last look."""
        ...

    def look_later(self, lease: Lease) -> None:
        """Look again whether the lease is still used, in ``LOOK`` seconds."""
        ...


class Lent(Protocol):
    """What the owner of a conversation lends of it."""

    @property
    def connection(self) -> Lendable:
        """The socket, for the thread that owns it."""
        ...

    @property
    def holder(self) -> HasTurn:
        """What that thread sleeps in."""
        ...


class Withholding(Protocol):
    """A conversation in which a message may have to wait for another."""

    withheld: bool
    """Whether messages wait in the pipe until the peer has answered."""


class Sends(Lent, Protocol):
    """The half that is written."""

    @property
    def withholding(self) -> Withholding:
        """What knows whether an answer may be received directly."""
        ...

    @property
    def addresses(self) -> Questions | None:
        """What knows of questions; None: the protocol has none."""
        ...

    def sending(self) -> tuple[Callable[..., int], Any]:
        """Return the function that gives data to the system, and its argument behind the data.

        The argument is None if there is none.  The function returns how many bytes the system has taken, or
        raises ``OSError``.
        """
        ...

    def encode(self, body: bytes) -> bytes | None:
        """Return what to send for one message; None: the usual way is needed.  Changes nothing."""
        ...

    def note_sent(self, lease: Lease, sent: list[int], size: int, length: int) -> None:
        """Note that the system has what ``encode`` returned: ``size`` bytes for a body of ``length``.

        Not if ``sent`` is empty; else empty it.  No call behind the look at it.
        """
        ...

    def note_interrupted(self, lease: Lease, data: bytes, length: int, sent: int) -> None:
        """As ``note_sent``, for a message whose sender was interrupted, or of which a part was sent.

        In the thread of the connection, which sends the rest, and does not count in the pipe.
        """
        ...


class Receives(Lent, Protocol):
    """The half that is read."""

    @property
    def descriptor(self) -> int:
        """That of the socket."""
        ...

    def receiving(self) -> tuple[Callable[[int], Any], int]:
        """Return the function that reads without waiting, and its argument."""
        ...

    def decode(self, got: Any) -> Any:
        """Return the body if what was read is one message and nothing else; else None.  Changes nothing."""
        ...

    def note_received(self, lease: Lease, got: list[Any], body: Any) -> bool:
        """Note the message that ``decode`` has returned, and put it into ``lease.kept``.

        False, and nothing noted, if ``got`` is empty; else empty it.  No call behind the look at it.
        """
        ...


class Half(Sends, Receives, Protocol):
    """A conversation, for both directions."""


class Passed(Protocol):
    """What a pipe counts."""

    written: int
    taken: int
    bytes_taken: int
    """Bytes of the bodies that its reader has taken."""


class Asking(Protocol):
    """Knows which question the peer has not answered."""

    asked: Any
    """The envelope of the question that is open; None: there is none."""


class Questions(Asking, Protocol):
    """``Asking`` of a protocol that has questions and answers."""

    @property
    def envelope(self) -> Envelope | None:
        """That of the question of the peer, or that of what is asked; None: it is not known yet."""
        ...

    @property
    def asks(self) -> bool:
        """Whether what is sent are questions."""
        ...


class _NoQuestions:
    """``Asking`` for a protocol that has no questions."""

    __slots__ = ("asked",)

    asked: Any


class _NothingWaits:
    """``Withholding``, where nothing is sent."""

    withheld = False


class Lease:
    """What an application thread has asked for; ``offered`` when it may begin."""

    __slots__ = (
        "__weakref__",
        "_bell",
        "_close",
        "_connection",
        "_data",
        "_decode",
        "_encode",
        "_got",
        "_has_input",
        "_holder",
        "_last",
        "_length",
        "_may_send",
        "_note_received",
        "_note_sent",
        "_on_left",
        "_only_sends",
        "_poll",
        "_posted",
        "_read",
        "_reads",
        "_receive",
        "_rings",
        "_seen",
        "_send",
        "_sends",
        "_sent",
        "_thread",
        "_to",
        "_to_connection",
        "_turn",
        "_waiting",
        "_waits",
        "_withholding",
        "_writes",
        "active",
        "addressed",
        "asking",
        "descriptor",
        "envelope",
        "incoming",
        "kept",
        "offered",
        "on_offered",
        "outgoing",
        "port",
        "question",
        "reader_of",
        "received",
        "sends",
        "source",
        "trips",
    )

    def __init__(
        self,
        mailbox: Mailbox,
        port: Port,
        outgoing: Pipe | None,
        source: Port | None,
        reader_of: Callable[[Pipe], Port | None],
        under: Envelope | None = None,
    ) -> None:
        """Ask for what is sent to ``outgoing``, and for what comes from ``source``; None: not for this.

        ``under``: see ``ask_lease``.
        """
        self.port: Port = port
        """The port of the application."""
        self.source: Port | None = source
        """The only port from which it receives; None: it only sends."""
        self.addressed: bool = under is not None
        """Whether who has asked takes messages that belong to questions and their answers."""
        self.envelope: Envelope = under or PLAIN
        """That of all that is received: of the questions of the peer, or of its answers to ours."""
        self.sends: Sends | None = None
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
        self.outgoing: Any = outgoing
        """The pipe that messages take on the usual way (``Passed``); None: it only receives."""
        self.incoming: Any = None
        """The same of those that are received.  Set with the offer."""
        self.on_offered: Callable[[Lease], Any] = _ignore
        """Called with it in the thread of the application when a lease that only sends is offered: no wait
        that ends would look for it."""
        self.asking: Asking = _NoQuestions()
        """What knows which question is open."""
        self.question: Envelope | None = None
        """The envelope of our questions; None: what is sent is no question."""
        self.trips: int = 0
        """Messages that went past the thread of the connection."""
        self._thread = get_ident()
        self._waits = False
        self._rings = mailbox.bell.fileno
        self._bell: Doorbell | _Unheard = mailbox.bell
        self._on_left: Callable[[], Any] = _nothing
        self._posted = mailbox.posted
        self._has_input = port.has_input
        # Nothing can be sent past a pipe that does not exist.
        self._waiting: Sized = (None,) if outgoing is None else outgoing.queue
        self._only_sends = source is None
        self._last, self._close = 0.0, 0
        self._may_send = False
        self._sent: list[int] = []
        self._data = b""
        self._length = 0
        self._got: list[Any] = []
        self._seen = 0
        self._turn: Any = None
        self._sends: Any = None
        self._withholding: Withholding = _NothingWaits()
        self._writes: Any = None
        self._reads: Any = None
        call_in_children(self, Lease.stop)

    # ------------------------------------------------------------------ in the thread of the application

    def send(self, body: Any) -> bool:
        """Send a message; False: send it on the usual way, after ``give_back``."""
        # One message between two waits: more than that are faster in batches.
        if self._posted or type(body) is not bytes or get_ident() != self._thread:
            return False
        if not self._may_send and not self._sends_first():
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
            self._data, self._length = data, len(body)
            size, sent = len(data), self._sent
            to = self._to
            call = map(self._send, (data,)) if to is None else map(self._send, (data,), to)
            # Once more: here is the last place where a handler may run before the system has the data (6).
            if not self.active or self._turn is not self._holder.turn:
                return False
            try:
                sent.extend(call)
            except OSError:
                # The socket is full, or lost: the usual way finds out.
                return False
            # Nothing is there if a handler has waited for the other thread, which has ended the lease
            # (``flush``).
            if not sent or sent[0] == size:
                self._note_sent(self, sent, size, self._length)
                if self._only_sends:
                    self._last = time.perf_counter()
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
        longest = -1 if timeout is None else min(timeout, _LONGEST) * 1000
        bell = self._bell
        # As ``Mailbox.may_sleep``: the flags first, then the look.  No call behind the bell: it is that of
        # another thread as soon as ``waits`` is false behind ``abandon``.
        self._waits = bell.sleeping = True
        try:
            self._posted.rotate(0)
            ready = () if self._posted else self._poll(longest)
        except BaseException:
            bell.sleeping = self._waits = False
            self._on_left()
            raise
        bell.sleeping = self._waits = False
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
            if (
                not self.active
                or self._turn is not self._holder.turn
                or self._posted
                or self._reads.paused
                # The other thread has to send the next question when the answer to this one is here.
                or self._withholding.withheld
            ):
                return False
            got = self._got
            try:
                got.extend(map(self._receive, self._read))
            except BlockingIOError:
                return None
            except OSError:
                return False
            # Without it if a handler has waited for the other thread, which has ended the lease and taken it.
            body = self._decode(got[0]) if got else None
            # What is no short message stays in ``_got``, and is given back with the lease.
            return body is not None and self._note_received(self, got, body)

    def _begin(self) -> bool:
        """Take the socket over, or both of them."""
        if not self.offered or (self._turn.locked() and not self._turn_ends()):
            return False
        with self._turn:
            written, read = self._writes, self._reads
            if (
                not (self.offered and self._turn is self._holder.turn)
                or (written is not None and (written.ended or written.lease is not None))
                or (read is not None and (read.ended or read.paused or read.lease is not None))
                # What came through the other thread is received first, and the lease stays offered.
                or self._posted
                or (read is not None and self._has_input())
            ):
                return False
            if written is not None and written is not read:
                written.lend_output(self)
            if read is not None:
                read.lend(self)
            self.active = True
        return True

    def _sends_first(self) -> bool:
        """Whether a message may be sent before which nothing was waited for."""
        if not self._only_sends:
            # It may begin here, while nothing is on its way. A little later the other thread could
            # have read the answer.
            return not self.active and self._begin()
        # Few together are sent directly as well: a sender that was late sends what was due meanwhile.
        self._close = 0 if time.perf_counter() - self._last > _APART else self._close + 1
        return self._close < _TOGETHER and (self.active or self._begin())

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

    def abandon(self, on_left: Callable[[], Any]) -> None:
        """The thread of the application is going to leave: touch its bell no more.  Any thread."""
        self._bell, self._on_left = _Unheard(), on_left

    def waits(self) -> bool:
        """Whether the thread of the application waits in ``receive``.  Any thread."""
        return self._waits

    # ------------------------------------------------------------------ in the thread of the connection

    def offer(
        self,
        sends: Sends | None,
        source: Receives | None,
        incoming: Passed | None,
        to_connection: Callable[[Callable[[], Any]], Any],
    ) -> None:
        """Let the application's thread begin when it waits next.

        It writes to the connection of ``sends`` and reads that of ``source``, which may be the same half, or
        one of both.
        """
        self.incoming, self._to_connection = incoming, to_connection
        if sends is not None:
            self._lend(sends)
        if source is not None:
            self._borrow(source)
        # After ``_to_connection``, which ``give_back`` uses if there is a lock.
        self._turn = self._holder.turn
        # Last: the other thread looks at this alone.
        self.offered = True
        self._looked_at().look_later(self)
        if source is None:
            self.port.post(partial(self.on_offered, self))

    def _lend(self, sends: Sends) -> None:
        """Set what is used to send."""
        self._sends, self._holder = sends, sends.holder
        self._withholding = sends.withholding
        self._connection = self._writes = sends.connection
        # A protocol without addresses has no questions, so nothing has to wait for an answer.
        addresses = sends.addresses
        if addresses is not None:
            self.asking = addresses
            self.envelope = addresses.envelope or self.envelope
            self.question = self.envelope if addresses.asks else None
        self._send, to = sends.sending()
        # As ``map`` takes it.
        self._to = None if to is None else (to,)
        self._encode, self._note_sent = sends.encode, sends.note_sent

    def _borrow(self, source: Receives) -> None:
        """Set what is used to receive."""
        self._reads, self._holder = source.connection, source.holder
        self._receive, read = source.receiving()
        self._read = (read,)
        self._decode, self._note_received = source.decode, source.note_received
        self.descriptor = source.descriptor
        sleep = select.poll()
        sleep.register(self.descriptor, select.POLLIN)
        # The bell as well: what other threads post has to wake it.
        sleep.register(self._rings(), select.POLLIN)
        self._poll = SpinningPoll(sleep.poll, self._holder.spin)

    def _looked_at(self) -> Lendable:
        """Return the connection whose timer looks whether the lease is used."""
        return self._writes if self._reads is None else self._reads  # type: ignore[no-any-return]

    def look(self) -> None:
        """End it, unless it was used since the last look."""
        if not self.offered or self.trips == self._seen or self._turn is not self._holder.turn:
            self.end()
            return
        self._seen = self.trips
        connection = self._looked_at()
        connection.lease_used()
        connection.look_later(self)

    def stop(self) -> None:
        """The connection has ended, or must not be used directly any more; this may be a forked child."""
        self.offered = self.active = False

    def end_soon(self) -> None:
        """As ``end``, from within the work of the connection, or when one of two has ended."""
        self.stop()
        self._to_connection(self.end)

    def flush(self) -> None:
        """Note a message that the system has, and send the rest of it, if its sender was interrupted."""
        if self._sent:
            self._sends.note_interrupted(self, self._data, self._length, self._sent.pop())

    def settle(self) -> None:
        """As ``flush``, before the owner works on what it has lent.

        Ends the lease if its thread does not give the turn up: a handler waits in it for the other thread.
        """
        self.flush()
        if self._turn is not self._holder.turn:
            self.end()

    def end(self) -> None:
        """Take the sockets back.  Not to be called in the middle of the work of a connection."""
        self.stop()
        written, read = self._writes, self._reads
        # The connection may have been given back already, and lent to another thread.
        if written is not None and written.lease is self:
            self.flush()
            if written is not read:
                written.lease = None
                if read is None:
                    written.lease_used()
        if read is not None and read.lease is self:
            read.take_back(self._got.pop() if self._got else None)


class _Unheard:
    """Instead of the bell of a thread that is going to leave."""

    __slots__ = ("sleeping",)

    def __init__(self) -> None:
        self.sleeping = False


def _ignore(_: Lease) -> None:
    """Nobody waits for the offer."""


def _nothing() -> None:
    """Whoever has the lease is not about to leave."""
