"""Channel: with it an application thread takes part in the matrix and sends and receives messages.

Threads
-------
A channel belongs to the thread that opened it.  That thread is one row and one column of the matrix, with one
port, one mailbox and one doorbell (``CallerThread``).  Nothing here has a lock: other threads only append to
the pipes that lead here, and post calls into the mailbox.  The calls run in this thread, when it is inside a
method of the channel.  Between two calls of the application nothing happens here: no route is updated, no
confirmation is counted, no successor gets what an earlier destination left.  Only ``kernel_closed`` may be
called by any thread, and it only posts.

Sending
-------
There are two paths.  The fast one (``kernel/hosting/fast_sender.py``) appends a small body to the only pipe,
or to all pipes of a fan-out, without a batch, and with its key or its envelope if it has one, under credit
that was given in advance.  All else takes the slow path, ``_send_batch``: it processes the mailbox first,
since a posted call may change the routes or close the channel, waits for room, and gives the batch to the
port.  Both paths append to the same queue, so messages of one channel keep their order.  On the slow path the
unused credit is given back first: credit counts as written, so a pipe would look fuller than it is.

Receiving
---------
The port is asked for all batches that have come, up to ``NativeOptions.batch`` messages.  They are kept in
``_unread``, and ``receive`` takes one body after the other from an iterator.  The port is asked again when
``_unread`` is empty.

Confirmations
-------------
``_position`` is the position of the last message taken from the port; None: no route in confirms.  The
application has received the messages up to ``_position - len(_unread)``, and ``confirm`` confirms these.
With ``auto_confirm`` that is done when the application asks for more and nothing is left, and when the
``with`` block ends without an error.  So a message is never confirmed before the application has come back
from processing it.  For the other direction the port counts: ``sent()`` and ``confirmed()`` are positions,
too.

Waiting
-------
A call that cannot go on sleeps at the doorbell, an eventfd.  The order of the steps is fixed: process the
mailbox, test the condition, ``arm`` (which sets the flag ``sleeping`` and then looks at the mailbox once
more), sleep.  A writer appends first and looks at the flag afterwards, so that no arrival is missed.  The
condition changes only by a posted call or by the clock, so it is tested again only after one of these.
After ``WouldBlock`` the flag stays set: the next post makes the descriptor readable, and so it serves
``select``, asyncio, a callback or a signal as well (``fileno``, ``on_arrival``, ``signal_on_arrival``).

Signals
-------
The handler of a signal may raise anywhere in a call (docs/decisions/0050-signals.md).  What takes several
steps is done in ``with UNINTERRUPTED``.  The shortest paths do without: there is no call between two steps
that belong together, in ``fast_sender``, in ``MessageReader`` and in ``CallerPort.take_alone``, which takes
from the only source.

What a call costs
-----------------
``send`` on the fast path takes about 110 ns, ``receive`` out of a batch is one step of an iterator.  The slow
path costs more than ten times that for each call, whether it sends one message or a batch.  A thread that has
to be woken costs a system call on each side: a question and its answer between two threads take 16 µs on one
core, and 82 on two, which have to be woken as well.  There each side wakes the other one before it does its
own part (``WakingAhead``).
"""

from __future__ import annotations

import logging
import math
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import get_ident
from types import TracebackType
from typing import Any

from kernel.contracts.api import Join, Lease
from kernel.contracts.bodies import all_checked, checked
from kernel.contracts.durations import in_seconds
from kernel.contracts.envelopes import checked_envelope, checked_text, envelope_with
from kernel.contracts.errors import KernelClosed, TimedOut, WrongThread
from kernel.contracts.groups import in_group
from kernel.contracts.message import (
    PLAIN,
    Batch,
    Buffer,
    Envelope,
    Message,
    batch_of,
    batch_of_one,
)
from kernel.contracts.mixed_batch import Entry, EnvelopesByKey
from kernel.hosting.borrower import Borrower
from kernel.hosting.fast_sender import Send, fast_sender, send_whole
from kernel.hosting.forking import FORKED, OfThisProcess, call_in_children
from kernel.hosting.message_reader import MessageReader
from kernel.hosting.uninterrupted import UNINTERRUPTED
from plugins.apis.native.options import NativeOptions
from plugins.apis.native.requests import REPLY_NAME, Requests, new_token
from plugins.apis.native.statistics import ChannelStatistics
from plugins.apis.native.waking_ahead import WakingAhead

_log = logging.getLogger(__name__)

ALL = 1 << 30
"""More messages than any batch has: no limit."""


class Channel(OfThisProcess):
    """Send and receive.  Usable in a ``with`` statement and in a ``for`` loop."""

    def __init__(self, name: str, join: Join, options: NativeOptions | None = None) -> None:
        options = options or NativeOptions()
        self.name = name
        self._options = options
        token = new_token()
        caller = self.caller = join(self, {"subscriptions": list(options.subscriptions), REPLY_NAME: token})
        self._port = caller.port
        self._posted = caller.posted
        self._thread = get_ident()
        self._closed = ""
        self.on_served: Callable[[], Any] | None = None
        """Called after calls of other threads were processed, or a stall timeout was over.

        The condition that somebody waits for may be true now."""
        self.on_close: Callable[[], Any] = lambda: None
        """Called before the channel gives up its place in the matrix, perhaps by another
        thread (``dispose``)."""
        self._fast = fast_sender(self._posted, self._send_long, with_headers=self._send_with_headers)
        self.send: Send = self._fast.send
        """``send(body, *, key=None, headers=None, timeout=None)``: send one message; wait while the pipe is
        full, at most ``timeout`` seconds (``TimedOut``)."""
        self._unread = MessageReader()
        self._token = token
        # None until there is a request: then nobody has to look for answers.
        self._requests: Requests | None = None
        self._position: int | None = None
        # How many messages came with the last batch.
        self._taken = 0
        self._borrower = Borrower(caller.ask_lease)
        self.leased: Lease | None = None
        """The lease that is used."""
        self._direct: Lease | None = None
        """A lease that only sends.  Waits do not end it, since nothing is read with it."""
        # Whether the application watches the descriptor.  Only then it has to be armed again after a wait
        # for something else than messages.
        self._watched = False
        self._warned = False
        self._envelopes = EnvelopesByKey()
        self._ahead = WakingAhead()
        self._port.accept_mixed()
        self._port.on_topology = self._find_short_cut
        self._find_short_cut()
        call_in_children(self, Channel._forked)

    # ------------------------------------------------------------------ sending

    def _send_long(self, body: Buffer, key: str | None, timeout: float | None) -> None:
        """Send on the slow path: what ``send`` does when the fast path cannot be used."""
        if self.leased:
            if key is None and self.leased.send(body):
                return
            # It begins with a wait. What is sent before takes the usual way.
            if self.leased.active or not self.leased.offered:
                self._check_thread()
                self._end_lease()
        elif self._direct is not None:
            if key is None and self._direct.send(body):
                return
            # What was posted is processed below, and is no reason to end it.
            if not self._posted:
                self._check_thread()
                self._end_direct()
        self._send_batch(batch_of_one(checked(body), self._envelope_of(key)), timeout, key)

    def _send_with_headers(
        self, body: Buffer, key: str | None, timeout: float | None, headers: Mapping[str, Any]
    ) -> None:
        """Send one message under an envelope that is made for it."""
        self.send_message(Message(body, envelope_with(key, headers)), timeout=timeout)

    def send_many(
        self,
        bodies: Sequence[Buffer],
        *,
        key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Send a batch under one envelope.  The list belongs to the kernel from now on: do not change it."""
        bodies = all_checked(bodies)
        if bodies:
            self._send_batch(batch_of(bodies, self._envelope_of(key, headers)), timeout)

    def send_parts(
        self,
        parts: Sequence[Buffer],
        *,
        key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Send one message of several parts, which arrive together or not at all."""
        whole = tuple(map(checked, parts))
        if not whole:
            raise ValueError(
                "send_parts needs at least one part; to send an empty message, give one empty part: [b'']"
            )
        self._send_batch(batch_of([whole], self._envelope_of(key, headers), multipart=True), timeout)

    def send_message(self, message: Message, *, timeout: float | None = None) -> None:
        """Send a message with an envelope of its own."""
        try:
            envelope = message.envelope
        except AttributeError:
            raise TypeError(
                f"send_message takes a kernel.Message, not {type(message).__name__}: send takes a body alone"
            ) from None
        # The rest is not looked at where the key is sound: it would be half of what the call takes.
        if type(envelope) is not Envelope or type(envelope.key) is not str:
            envelope = checked_envelope(envelope)
        if message.parts:
            self._send_batch(
                batch_of([tuple(map(checked, message.parts))], envelope, multipart=True), timeout
            )
        elif not self._fast.send_under(message.body, envelope):
            self._send_batch(batch_of_one(checked(message.body), envelope), timeout)

    def send_batches(self, batches: Iterable[Batch], *, timeout: float | None = None) -> None:
        """Send batches: the form in which the kernel itself passes messages on."""
        for batch in batches:
            if batch.bodies:
                self._send_batch(batch, timeout)

    def send_nowait(
        self, body: Buffer, *, key: str | None = None, headers: Mapping[str, Any] | None = None
    ) -> None:
        """Send one message, or raise ``WouldBlock`` when the pipe is full."""
        if headers is None:
            self.send(body, key=key, timeout=0)
        else:  # what names them does not take the fast path
            self.send(body, key=key, headers=headers, timeout=0)

    def reply(self, message: Message, body: Buffer, *, timeout: float | None = None) -> None:
        """Answer a message: back to where it came from, on a route with ``router = "reply"``."""
        self._ahead.answer()
        # The router finds the destination by the reply address, which is in the envelope of the question.
        if not self._fast.send_under(body, message.envelope):
            self._send_batch(batch_of_one(checked(body), message.envelope), timeout)

    def request(
        self,
        body: Buffer,
        *,
        key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Send a question and return its answer; wait for it, at most ``timeout`` seconds (``TimedOut``).

        The answer is sent with ``reply``, or by whatever sends it back under the envelope of the question,
        and comes on a route with ``router = "reply"``.  Messages that come meanwhile and are no answers wait
        for ``receive``.  An answer that comes too late is dropped.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        asked: list[str] = []
        try:
            number = self._ask(asked, body, key, timeout, headers)
            return self.answer(number, None if deadline is None else max(0.0, deadline - time.monotonic()))
        finally:
            # Without a call, in which a handler of a signal could raise.
            if asked and self._requests is not None and asked[0] in self._requests.answers:
                del self._requests.answers[asked[0]]

    def ask(
        self,
        body: Buffer,
        key: str | None,
        timeout: float | None,
        headers: Mapping[str, Any] | None = None,
    ) -> str:
        """Send a question; return its number.  Call ``forget`` with it at the end."""
        return self._ask([], body, key, timeout, headers)

    def _ask(
        self,
        asked: list[str],
        body: Buffer,
        key: str | None,
        timeout: float | None,
        headers: Mapping[str, Any] | None,
    ) -> str:
        """Send a question; return its number, and append it to ``asked``."""
        self._ahead.wake()
        self._check_thread()
        if self._requests is None:
            # From now on each envelope is looked at.
            self._port.accept_mixed(accepts=False)
            self._requests = Requests(self._token)
        number, envelope = self._requests.ask(key, headers)
        asked.append(number)
        try:
            if not self._fast.send_under(body, envelope):
                self._send_batch(batch_of_one(checked(body), envelope), timeout)
        except BaseException:
            self._requests.forget(number)
            raise
        return number

    def answer(self, number: str, timeout: float | None) -> Message:
        """Return the answer to a question."""
        self._check()
        assert self._requests is not None  # ``ask`` has given the number
        answers = self._requests.answers

        def has_come() -> bool:
            # Until nothing is left to take: nobody else may come and look for this answer, and what is taken
            # here is not announced a second time.
            while answers.get(number) is None and self._take_next():
                pass
            return answers.get(number) is not None

        if not has_come():
            self._wait_aside(has_come, timeout, lambda: "no answer has come")
        message = answers[number]
        assert message is not None  # it has come
        return message

    def forget(self, number: str) -> None:
        """Expect no answer to a question any more."""
        if self._requests is not None:
            self._requests.forget(number)

    def _send_batch(self, batch: Batch, timeout: float | None, key: str | None = None) -> None:
        self._check()
        if self._posted:
            self._process()
            # One of the calls may have been ``kernel_closed``: then the message must not be accepted, as
            # nobody would deliver it.
            self._check()
        # A single message usually comes here because the credit is used up.  With new credit it, and up to
        # 1,023 more after it, take the fast path.
        bare = len(batch.bodies) == 1 and not batch.multipart
        entry: Entry | None = None if batch.envelope is PLAIN else key if type(key) is str else batch.envelope
        if bare and self._fast.refill(batch.bodies[0], entry):
            return
        # Unused credit counts as written.  Without this the pipe could look full, and this thread would wait
        # for room that it has itself.
        self._fast.give_back()
        if not self._port.has_room_for(batch):
            with UNINTERRUPTED:
                # ``stop`` asks for ``on_writable`` and starts the stall timeouts.  It comes before the wait:
                # the call it asks for is what wakes this thread.
                self._port.stop()
            if timeout is None:
                self.warn_without_route()
            self._wait_aside(self._served(lambda: self._port.has_room_for(batch)), timeout, self._why_no_room)
            if bare and self._fast.refill(batch.bodies[0], entry):
                return
        # The next call asks ``has_room_for`` itself, about its own batch.
        send_whole(self._port, batch)

    def _why_no_room(self) -> str:
        """Say why a batch cannot be sent now."""
        if not self._port.routes:
            return (
                f"no route of the running system leaves {self.name!r}, so there is nowhere to send to: add one with "
                f"source {self.name!r}, or send on a name where a route begins"
            )
        return "no room to send: a pipe is full, or no destination of the route is open yet"

    def warn_without_route(self) -> None:
        """Log once that a call waits to send although no route begins here.

        The call waits all the same, since a route may be added: ``Kernel.apply`` replaces routes, too.  But
        somebody who has opened the wrong name would otherwise wait for ever without a word.
        """
        if not self._port.routes and not self._warned:
            self._warned = True
            _log.warning("channel %r waits: %s", self.name, self._why_no_room())

    def has_something(self) -> bool:
        """Whether something can be received at once."""
        self._check_thread()
        if self.leased:
            self._end_lease()
        return self._has_something()

    def _has_something(self) -> bool:
        return bool(self._unread) or self._port.has_input()

    def all_confirmed(self) -> bool:
        """Whether all that was sent on confirming routes has been confirmed."""
        self._check_thread()
        return self._all_confirmed()

    def _all_confirmed(self) -> bool:
        return self._port.confirmed() >= self._port.sent()

    def _find_short_cut(self) -> None:
        """Give the fast sender the only pipe, or all of a fan-out.

        Called after each change of routes or pipes.
        """
        if self.leased:
            self._end_lease()
            return
        if self._direct is not None:
            self._end_direct()
            return
        self._ahead.aim(self.caller.waker())
        pipe = self._port.fast_pipe()
        # A pipe that drops has to see each message, to drop it or to make room for it.  Bare bodies are
        # appended without a look at the marks.
        self._fast.plug(pipe if pipe is not None and pipe.marks.when_full == "block" else None)

    def _envelope_of(self, key: str | None, headers: Mapping[str, Any] | None = None) -> Envelope:
        if headers:
            return envelope_with(key, headers)
        return PLAIN if key is None else self._envelopes[checked_text(key, "a key")]

    # ------------------------------------------------------------------ receiving

    def receive(self, timeout: float | None = None) -> Buffer:
        """Return the body of the next message; wait for it, at most ``timeout`` seconds (``TimedOut``).

        The body of a multi-part message is its parts joined; ``receive_message`` returns them one by one.
        """
        # The fast path: a ``for`` takes one item without a call and without an exception at the end.  It
        # leaves out ``_check``: these messages have been taken, and are returned even if the kernel has been
        # closed.
        for body in self._unread.bodies:
            return body  # type: ignore[no-any-return]
        if self.leased and not self._unread.more():
            until = 0.0 if timeout is None else time.monotonic() + timeout
            body = self.leased.receive(timeout)
            if body is not None:
                return body  # type: ignore[no-any-return]
            if timeout is not None:
                timeout = max(0.0, until - time.monotonic())
        self._next_batch(timeout)
        for body in self._unread.bodies:
            return body  # type: ignore[no-any-return]
        raise AssertionError("a batch has a message")

    def receive_leased(self) -> Any:
        """Return the next body, for a task; None: receive it on the usual way.

        ``NOT_YET``: nothing has come to the socket of the lease that there is (``Lease.receive_now``).
        """
        for body in self._unread.bodies:
            return body
        if self.leased is None or self._unread.more():
            return None
        return self.leased.receive_now()

    def waited(self) -> None:
        """Take notice that a task has waited for the message that it has received."""
        lease = self._borrower.waited(lone=self._taken == 1 and self._position is None and not self._watched)
        if lease is not None and self.leased is None:
            self._use_lease(lease)

    def receive_nowait(self) -> Buffer:
        """Return the next body, or raise ``WouldBlock``."""
        return self.receive(0)

    def receive_many(self, most: int = ALL, timeout: float | None = None) -> list[Buffer]:
        """Return the bodies that have come, at least one and at most ``most``; wait for the first."""
        unread = self._unread
        if self.leased and not unread and most > 0:
            until = 0.0 if timeout is None else time.monotonic() + timeout
            body = self.leased.receive(timeout)
            if body is not None:
                # No call up to here: a handler of a signal that raises would lose it.
                return [body]
            if timeout is not None:
                timeout = max(0.0, until - time.monotonic())
        self._check_thread()
        if most <= 0:
            return []
        if not unread:
            self._check()
            self._fetch(timeout)
        # Not ``_fetch``, which would confirm what the application has not seen yet.
        while self._port.has_input() and len(unread) < most:
            with UNINTERRUPTED:
                if not self._take():
                    break
        return unread.take(most)

    def receive_message(self, timeout: float | None = None) -> Message:
        """Return the next message with its envelope and parts."""
        self._check()
        if not self._unread:
            self._fetch(timeout)
        return self._unread.message()

    def receive_batch(self, most: int = ALL, timeout: float | None = None) -> Batch:
        """Return the next messages that share one envelope, ``most`` at the most."""
        self._check()
        if not self._unread:
            self._fetch(timeout)
        return self._unread.run(most)

    def _fetch(self, timeout: float | None) -> None:
        """Take the messages that have come from the pipes; wait for the first."""
        # The application asks for more, so it has processed all that it received before.
        if self._position is not None and self._options.auto_confirm:
            self._confirm()
        if not self._take_unread():
            self._wait(self._take_unread, timeout, lambda: "nothing to receive")
            lease = self._borrower.waited(
                lone=self._taken == 1 and self._position is None and not self._watched
            )
            if lease is not None:
                self._use_lease(lease)

    def _take_unread(self) -> bool:
        """Serve, and take what has come; return whether there is something to receive."""
        while self._take_next():
            # Answers alone are nothing that ``receive`` waits for.
            if self._unread.batches:
                return True
        return False

    def _take_next(self) -> bool:
        """Serve, and take what has come; return whether there was something."""
        if not self._posted and not self.caller.until_stall_timeout():
            with UNINTERRUPTED:
                self.serve()
        kept = self.leased is not None and self.leased.kept is not None
        requests = self._requests
        # Something may be left in ``arrived`` by a call in which a handler of a signal has raised.
        if not (self._posted or kept or self._port.has_input() or (requests and requests.arrived)):
            return False
        if not kept:
            told = bool(self._posted)
            unread = self._unread.batches
            into = unread if requests is None else requests.arrived
            taken = self._port.take_alone(self._posted, into, self._options.batch)
            if taken is not None:
                if requests is not None:
                    requests.sort(unread)
                self._position = None
                # Whether it is one message is all that matters. Before there was nothing to receive.
                self._taken = len(unread[0].bodies) if len(unread) == 1 else 0
                if told and self.on_served is not None:
                    self.on_served()
                return taken
        with UNINTERRUPTED:
            if self._posted:
                self._process()
            if kept:
                self._end_lease()
                return True
            if requests is not None and requests.arrived:
                requests.sort(self._unread.batches)
                return True
            return self._take()

    def _next_batch(self, timeout: float | None) -> None:
        """Begin to read the next batch; wait for it."""
        self._check()
        if not self._unread.more():
            self._fetch(timeout)
        self._unread.next_batch()

    def _take(self) -> bool:
        """Take what has come; return whether there was something.  In ``with UNINTERRUPTED``."""
        port = self._port
        while True:
            taken = port.take(self._options.batch)
            batches = taken.batches
            if not batches:
                return False
            self._taken = taken.count
            # None: no source waits for a confirmation, neither of these messages nor of earlier ones.
            self._position = taken.position
            if self._requests is not None:
                batches = self._requests.take_out(taken, port.confirm_only)
                # Answers alone are nothing that ``receive`` waits for.
                if not batches:
                    continue
            self._unread.add(batches)
            return True

    # ------------------------------------------------------------------ without the poll thread

    def _use_lease(self, lease: Lease) -> None:
        with UNINTERRUPTED:
            self.leased = lease
            # From here on each message takes the long way, where the lease is.
            self._fast.plug(None)

    def _end_lease(self) -> None:
        """Send and receive through the poll thread again."""
        with UNINTERRUPTED:
            lease = self.leased
            if lease is not None:
                lease.give_back()
                if lease.kept is not None:
                    self._unread.add((batch_of_one(lease.kept),))
                    lease.kept = None
                self.leased = None
                self._borrower.gave_back(lease)
                self._find_short_cut()

    def on_lone(self) -> None:
        """What is sent from here goes out one by one: ask for a lease to do so without the poll thread."""
        if self._direct is None and self.leased is None:
            self.caller.ask_lease_to_send(self._use_direct)

    def _use_direct(self, lease: Lease) -> None:
        if self._direct is None and self.leased is None and lease.offered and not self._closed:
            self._direct = lease
            # From here on each message takes the long way, where the lease is.
            self._fast.plug(None)

    def _end_direct(self) -> None:
        """Send through the poll thread again."""
        with UNINTERRUPTED:
            lease, self._direct = self._direct, None
            if lease is not None:
                lease.give_back()
                self._find_short_cut()

    def confirm(self) -> None:
        """Confirm all messages received so far: the application has processed them.

        For ``auto_confirm = false``; does nothing if no route to here has ``confirm = true``.
        """
        self._check_thread()
        self._confirm()

    def _confirm(self) -> None:
        if self._position is not None:
            with UNINTERRUPTED:
                if self._requests is None:
                    self._port.confirm_through(self._position - len(self._unread))
                else:
                    self._port.confirm_through(self._requests.last_before(len(self._unread), self._position))

    def __iter__(self) -> Iterator[Buffer]:
        """Receive for ever; ends when the kernel or this channel is closed."""
        self._check_thread()
        while True:
            yield from self._unread.bodies
            try:
                self._next_batch(None)
            except KernelClosed:
                return

    # ------------------------------------------------------------------ topics

    def subscribe(self, pattern: str, *, group: str = "") -> None:
        """Subscribe to messages whose key matches, of routes with ``router = "by-key"``.

        A pattern has words with ``*`` and ``#``, or is ``prefix:`` and the beginning of a key.

        With a ``group``, each message goes to one of those who subscribed to this pattern in the group of
        this name.
        """
        self._check()
        # A pipe that was made a moment ago is still a call in the mailbox.  The port asks the pipes that it
        # knows, so it has to know that one first.
        self._process()
        pattern = checked_text(pattern, "a pattern")
        with UNINTERRUPTED:
            self._port.subscribe(in_group(pattern, group) if group else pattern)

    def unsubscribe(self, pattern: str, *, group: str = "") -> None:
        """Take a subscription back."""
        self._check()
        self._process()  # as in ``subscribe``
        pattern = checked_text(pattern, "a pattern")
        with UNINTERRUPTED:
            self._port.unsubscribe(in_group(pattern, group) if group else pattern)

    def wait_subscribed(self, timeout: float | None = None) -> None:
        """Wait until all subscriptions are in effect at the sources, in this kernel and in those behind it.

        Messages that are sent afterwards are selected by them.  A source that is another thread of the
        application applies them in its next call.  A peer that is not connected yet is waited for, if this
        kernel dials it; one that cannot tell (an older version, another protocol) is not.
        """
        self._check()
        self._process()
        with UNINTERRUPTED:
            subscribed = self._port.subscribed()
        if not subscribed:
            self._wait_aside(
                self._served(self._port.subscribed),
                timeout,
                lambda: "not all subscriptions are in effect at their sources",
            )

    # ------------------------------------------------------------------ confirmation of what was sent

    def wait_confirmed(self, timeout: float | None = None) -> None:
        """Wait until every destination has confirmed all messages sent on routes with ``confirm = true``."""
        self._check()
        # Confirmations are posted.  Without this those that have come would be seen only after a wait.
        self._process()
        if not self._all_confirmed():
            self._wait_aside(
                self._served(self._all_confirmed),
                timeout,
                lambda: "not all messages that were sent have been confirmed",
            )

    # ------------------------------------------------------------------ waiting

    def fileno(self) -> int:
        """Return a descriptor that is readable when something has come.

        Then call ``receive_nowait`` until ``WouldBlock``.

        For select, asyncio's ``add_reader`` or any other loop; ``WouldBlock`` arms it again.
        """
        self._check_thread()
        caller = self.caller
        self._watched = True
        if self.leased:
            self._end_lease()
        # Arm first, look afterwards: a message that comes between the two rings the bell by itself.  What was
        # here before will not ring any more, so this thread does.
        if not caller.arm() or self._has_something():
            caller.wake()
        return caller.fileno()

    def on_arrival(self, callback: Callable[[], Any] | None) -> None:
        """Have ``callback()`` called when something has come: once until ``WouldBlock``, as with ``fileno``.

        It runs in the thread that the message came from, often a poll thread.  So it must be quick, and may
        only notify another thread (``loop.call_soon_threadsafe``, ``event.set``).  None: no more calls.
        """
        self._check_thread()
        self.caller.on_wake(callback)
        self.fileno()  # arm, and call at once if there is something already

    def signal_on_arrival(self, number: int) -> None:
        """Have a signal sent to this thread when something has come, once until ``WouldBlock``.

        Real-time signals (from ``signal.SIGRTMIN`` on) are free for applications.
        """
        thread = self._thread
        self.on_arrival(lambda: signal.pthread_kill(thread, number))

    def _wait(self, attempt: Callable[[], bool], timeout: float | None, why: Callable[[], str]) -> None:
        """Sleep, and process the mailbox with ``attempt()``, until that is true.

        ``why()`` says what is missing, for the error after ``timeout`` seconds.
        """
        caller = self.caller
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            if attempt():
                return
            if self._closed:  # ``serve`` may have called ``_set_closed``
                self._check()
            left = math.inf if timeout is None else deadline - time.monotonic()
            # The application will watch the descriptor after ``WouldBlock``, and a ring of an earlier post
            # would make it readable for nothing.  Clear before ``arm``: afterwards it could take away the
            # ring of a post that nobody has seen.
            if left <= 0 and self._watched:
                caller.clear()
            # Who has a lease is the only one that reads the socket.
            if self.leased:
                self._end_lease()
            if not caller.arm():
                continue  # something was posted since ``serve``
            # The bell stays armed, for the application that watches the descriptor.
            if left <= 0:
                # None: ``left`` would be endless.  0: whoever asks so does not want to wait.
                waited = f" (waited {in_seconds(timeout)})" if timeout is not None and timeout > 0 else ""
                raise TimedOut(f"channel {self.name!r}: {why()}{waited}")
            # No other thread watches the clock for this port: a stalled destination is suspended by us.
            left = min(left, caller.until_stall_timeout())
            caller.sleep(left if left < math.inf else None)
            if self._ahead.answered:
                self._ahead.woken()

    def _wait_aside(self, attempt: Callable[[], bool], timeout: float | None, why: Callable[[], str]) -> None:
        """Wait for something else than messages.

        Messages that come meanwhile ring the bell, and the wait takes the ring.  The descriptor has to become
        readable for them afterwards, or an application that watches it would never be told.
        """
        try:
            self._wait(attempt, timeout, why)
        finally:
            if self._watched:
                self.fileno()

    def _served(self, done: Callable[[], bool]) -> Callable[[], bool]:
        """Return an attempt that serves, and then asks ``done``."""

        def attempt() -> bool:
            # Nothing but a processed call or a stall timeout makes ``done()`` true.
            if not self._posted and self.caller.until_stall_timeout():
                return False
            with UNINTERRUPTED:
                return self.serve() and done()

        return attempt

    def serve(self) -> bool:
        """Process the mailbox and the stall timeouts; return whether there was anything."""
        served = self.caller.process()
        if self.caller.check_stalls():
            served = True
        if served and self.on_served is not None:
            self.on_served()
        return served

    def _process(self) -> bool:
        """Call what was posted."""
        with UNINTERRUPTED:
            served = self.caller.process()
            if served and self.on_served is not None:
                self.on_served()
        return served

    def _check(self) -> None:
        # One test where all is well: this is asked for each message that does not take the fast path.
        if self._closed or get_ident() != self._thread:
            self._check_thread()
            raise KernelClosed(f"channel {self.name!r}: {self._closed}")

    def _check_thread(self) -> None:
        """Refuse a call of another thread.  ``receive`` alone does without, for a message of its batch."""
        if get_ident() != self._thread:
            raise WrongThread(
                f"channel {self.name!r} belongs to the thread that opened it: "
                "open another channel of this name in the thread that uses it, they are cheap"
            )

    # ------------------------------------------------------------------ the port's owner

    # The port calls these inside ``process``, so this thread is in one of the channel's methods.  If it is in
    # ``_wait``, it tests its condition next; otherwise nobody is to be told.

    def on_output(self) -> None:
        """Something has come: ``_wait`` tests its condition itself."""

    def on_writable(self) -> None:
        """There is room: ``_wait`` tests its condition itself."""

    def on_confirmed(self, position: int) -> None:
        """Destinations have confirmed: ``_wait`` tests its condition itself."""

    # ------------------------------------------------------------------ the end

    def kernel_closed(self, reason: str) -> None:
        """Called by the kernel, from any thread: wake the thread that waits in a call."""
        # Posted, not set here: the fast path looks at the mailbox for each message, and only at that.
        self.caller.post(lambda: self._set_closed(reason))

    def _set_closed(self, reason: str) -> None:
        # The first reason stays: if the application has closed the channel itself, that is what it is told.
        self._closed = self._closed or reason
        if self.leased:
            self._end_lease()
        self._end_direct()

    def _forked(self) -> None:
        """This process is a child that was forked: refuse each call."""
        self._closed = FORKED
        # The parent receives these messages.
        self._unread.drop()
        self._fast.plug(None)
        # What watches the bell shares the parent's epoll.
        self.on_served, self.on_close = None, lambda: None

    def close(self) -> None:
        """Leave the matrix.  Messages sent are still delivered; those not received go back to the routes."""
        # To close it again is harmless, and ``dispose`` has closed it if the kernel has ended.
        if not self._port.closed:
            self._check_thread()
            self._close()

    def _close(self) -> None:
        with UNINTERRUPTED:
            if not self._port.closed:
                if self.leased:
                    self._end_lease()
                self._end_direct()
                # Gives back the unused credit, which would be counted as messages in the pipe for ever.
                self._fast.plug(None)
                self._closed = self._closed or "it was closed"
                self.on_close()
                self.caller.close()

    def dispose(self) -> None:
        """Called by the kernel when none of its threads is left."""
        # Without the check: ``join`` is often called in another thread, and the owner may be gone.
        self._close()

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called; the kernel then forgets the channel."""
        return self._port.closed

    def statistics(self) -> ChannelStatistics:
        """Return the figures of this moment."""
        return ChannelStatistics(
            name=self.name,
            waiting=len(self._unread),
            unconfirmed=self._port.sent() - self._port.confirmed(),
        )

    def __enter__(self) -> Channel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Without an error the application has processed what it received.  After an error the last messages
        # are delivered again, to the next channel of this name.
        if kind is None and self._options.auto_confirm and not self._port.closed:
            self.confirm()
        self.close()

    def __repr__(self) -> str:
        return f"<Channel {self.name} {'closed' if self._closed else 'open'}>"
