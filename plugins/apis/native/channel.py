"""Channel: an application thread's place in the matrix.  Send and receive, one message or a batch.

A channel belongs to the thread that opened it and has no locks.  ``send`` and ``receive`` of single messages
have a short cut each: a plain message to the only destination is appended to the pipe as it is, under a grant
of places asked for in advance; and what came in a batch is handed out from an iterator.  Everything else
takes the long way, which is the same for one message and for a million.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import Any

from kernel.contracts.api import Join
from kernel.contracts.bodies import all_checked, checked
from kernel.contracts.errors import KernelClosed, TimedOut, WrongThread
from kernel.contracts.groups import in_group
from kernel.contracts.message import PLAIN, Batch, Buffer, Envelope, Message, batch_of
from kernel.hosting.message_reader import MessageReader
from plugins.apis.native.fast_sender import Send, fast_sender
from plugins.apis.native.options import NativeOptions
from plugins.apis.native.statistics import ChannelStatistics

_ALL = 1 << 30


class Channel:
    """Send and receive.  Usable in a ``with`` statement and in a ``for`` loop."""

    def __init__(self, name: str, join: Join, options: NativeOptions | None = None) -> None:
        options = options or NativeOptions()
        self.name = name
        self._options = options
        caller = self.caller = join(self, {"subscriptions": list(options.subscriptions)})
        self._port = caller.port
        self._posted = caller.posted
        self._thread = threading.get_ident()
        self._closed = ""
        self.on_served: Callable[[], Any] = lambda: None
        """Called when others, or the clock, have changed something: who waits may find what he waits for."""
        self._fast = fast_sender(self._posted, self._send_long)
        self.send: Send = self._fast.send
        """``send(body, *, key=None, timeout=None)``: send one message; wait while the pipe is full, at most
        ``timeout`` seconds (``TimedOut``)."""
        self._unread = MessageReader()
        self._position: int | None = None  # of the last message taken; None: nobody waits for confirmations
        self._watched = False
        self._envelopes: dict[str, Envelope] = {}
        self._port.on_topology = self._find_short_cut
        self._find_short_cut()

    # ------------------------------------------------------------------ sending

    def _send_long(self, body: Buffer, key: str | None, timeout: float | None) -> None:
        """What ``send`` does when the short cut does not lead there."""
        self._send_batch(batch_of([checked(body)], self._envelope_of(key)), timeout)

    def send_many(
        self, bodies: Sequence[Buffer], *, key: str | None = None, timeout: float | None = None
    ) -> None:
        """Send a batch under one envelope.  The list is the kernel's from here on: do not change it."""
        bodies = all_checked(bodies)
        if bodies:
            self._send_batch(batch_of(bodies, self._envelope_of(key)), timeout)

    def send_parts(
        self, parts: Sequence[Buffer], *, key: str | None = None, timeout: float | None = None
    ) -> None:
        """Send one message of several parts, which arrive together or not at all."""
        whole = tuple(map(checked, parts))
        if not whole:
            raise ValueError(
                "a message has at least one part, if only an empty one; these are no parts at all"
            )
        self._send_batch(batch_of([whole], self._envelope_of(key), multipart=True), timeout)

    def send_message(self, message: Message, *, timeout: float | None = None) -> None:
        """Send a message with an envelope of its own."""
        if message.parts:
            self._send_batch(
                batch_of([tuple(map(checked, message.parts))], message.envelope, multipart=True), timeout
            )
        else:
            self._send_batch(batch_of([checked(message.body)], message.envelope), timeout)

    def send_batches(self, batches: Iterable[Batch], *, timeout: float | None = None) -> None:
        """Send batches: the form in which the kernel itself passes messages on."""
        for batch in batches:
            if batch.bodies:
                self._send_batch(batch, timeout)

    def send_nowait(self, body: Buffer, *, key: str | None = None) -> None:
        """Send one message, or raise ``WouldBlock`` when the pipe is full."""
        self.send(body, key=key, timeout=0)

    def reply(self, message: Message, body: Buffer, *, timeout: float | None = None) -> None:
        """Answer a message: back to where it came from, on a route with ``router = "reply"``."""
        self._send_batch(batch_of([checked(body)], message.envelope), timeout)

    def _send_batch(self, batch: Batch, timeout: float | None) -> None:
        self._check()
        if self._posted:
            self._process()
            self._check()  # the kernel may just have been closed
        bare = batch.envelope is PLAIN and len(batch) == 1 and not batch.multipart
        if bare and self._fast.refill(batch.bodies[0]):
            return
        self._fast.give_back()
        if not self._port.has_room_for(batch):
            self._port.stop()
            self._wait_aside(lambda: self._port.has_room_for(batch), timeout, "no room to send")
            if bare and self._fast.refill(batch.bodies[0]):
                return
        self._port.send((batch,))

    def has_something(self) -> bool:
        """Whether something can be received at once."""
        return bool(self._unread) or self._port.has_input()

    def all_confirmed(self) -> bool:
        """Whether all that was sent on confirming routes has been confirmed."""
        return self._port.confirmed() >= self._port.sent()

    def _find_short_cut(self) -> None:
        """After a change of routes: is there a single pipe that takes messages as they are?"""
        pipe = self._port.short_cut()
        self._fast.plug(pipe if pipe is not None and pipe.marks.when_full == "block" else None)

    def _envelope_of(self, key: str | None) -> Envelope:
        if key is None:
            return PLAIN
        envelope = self._envelopes.get(key)
        if envelope is None:
            if len(self._envelopes) >= 4096:
                self._envelopes.clear()
            envelope = self._envelopes[key] = Envelope(key=key)
        return envelope

    # ------------------------------------------------------------------ receiving

    def receive(self, timeout: float | None = None) -> Buffer:
        """Return the body of the next message; wait for it, at most ``timeout`` seconds (``TimedOut``).

        The body of a multi-part message is its parts joined; ``receive_message`` has them apart.
        """
        for body in self._unread.bodies:
            return body  # type: ignore[no-any-return]
        self._next_batch(timeout)
        return next(self._unread.bodies)  # type: ignore[no-any-return]

    def receive_nowait(self) -> Buffer:
        """Return the next body, or raise ``WouldBlock``."""
        return self.receive(0)

    def receive_many(self, most: int = _ALL, timeout: float | None = None) -> list[Buffer]:
        """Return what has come, at least one body and at most ``most``; wait for the first."""
        unread = self._unread
        bodies = list(islice(unread.bodies, most))
        while len(bodies) < most and (
            unread.more() or not bodies or (self._port.has_input() and self._take())
        ):
            self._next_batch(timeout)
            bodies += islice(unread.bodies, most - len(bodies)) if most < _ALL else unread.bodies
        return bodies

    def receive_message(self, timeout: float | None = None) -> Message:
        """Return the next message with its envelope and parts."""
        self._check()
        if not self._unread:
            self._fetch(timeout)
        return self._unread.message()

    def receive_batch(self, most: int = _ALL, timeout: float | None = None) -> Batch:
        """Return the next messages that share one envelope, ``most`` at the most."""
        self._check()
        if not self._unread:
            self._fetch(timeout)
        return self._unread.run(most)

    def _fetch(self, timeout: float | None) -> None:
        """Take what has come out of the pipes; wait for it."""
        if self._position is not None and self._options.auto_confirm:
            self.confirm()
        if self._posted:
            self._process()
        if not self._take():
            self._wait(self._take, timeout, "nothing to receive")

    def _next_batch(self, timeout: float | None) -> None:
        """Begin to read the next batch; wait for it."""
        self._check()
        if not self._unread.more():
            self._fetch(timeout)
        self._unread.next_batch()

    def _take(self) -> bool:
        taken = self._port.take(self._options.batch)
        if not taken.batches:
            return False
        self._unread.add(taken.batches)
        self._position = taken.position
        return True

    def confirm(self) -> None:
        """All that was received is dealt with (``auto_confirm = false``, routes with ``confirm = true``)."""
        if self._position is not None:
            self._port.confirm_through(self._position - len(self._unread))

    def __iter__(self) -> Iterator[Buffer]:
        """Receive for ever; ends when the kernel is closed."""
        while True:
            yield from self._unread.bodies
            try:
                self._next_batch(None)
            except KernelClosed:
                return

    # ------------------------------------------------------------------ topics

    def subscribe(self, pattern: str, *, group: str = "") -> None:
        """Want messages whose key matches, of routes with ``router = "by-key"``.

        ``prefix:`` patterns match beginnings.

        With a ``group``, each message goes to one of those who subscribed to this pattern in the group of
        this name.
        """
        self._check()
        self._process()  # pipes that are on their way here are asked, too
        self._port.subscribe(in_group(pattern, group) if group else pattern)

    def unsubscribe(self, pattern: str, *, group: str = "") -> None:
        """Want them no longer."""
        self._check()
        self._process()  # pipes that are on their way here are asked, too
        self._port.unsubscribe(in_group(pattern, group) if group else pattern)

    def wait_subscribed(self, timeout: float | None = None) -> None:
        """Wait until all subscriptions are in effect at the sources in this kernel: what is sent afterwards is chosen by them.

        A source that is another thread of the application applies them in its next call.
        """
        self._check()
        self._process()
        if not self._port.subscribed():
            self._wait_aside(self._port.subscribed, timeout, "not all subscriptions are in effect")

    # ------------------------------------------------------------------ confirmation of what was sent

    def wait_confirmed(self, timeout: float | None = None) -> None:
        """Wait until every destination has confirmed all that was sent on routes with ``confirm = true``."""
        self._check()
        self._process()
        if not self.all_confirmed():
            self._wait_aside(self.all_confirmed, timeout, "not all is confirmed")

    # ------------------------------------------------------------------ waiting

    def fileno(self) -> int:
        """A descriptor that is readable when something has come: then ``receive_nowait`` until ``WouldBlock``.

        For select, asyncio's ``add_reader`` or any other loop; ``WouldBlock`` arms it anew.
        """
        caller = self.caller
        self._watched = True
        if not caller.arm() or self.has_something():
            caller.wake()
        return caller.fileno()

    def on_arrival(self, callback: Callable[[], Any] | None) -> None:
        """Have ``callback()`` called when something has come, as ``fileno`` tells it: once until ``WouldBlock``.

        It runs in the thread that the message came from: it must be quick and may only pass the news on
        (``loop.call_soon_threadsafe``, ``event.set``).  None: no longer.
        """
        self.caller.on_wake(callback)
        self.fileno()

    def signal_on_arrival(self, number: int) -> None:
        """Have this thread sent a signal (a real-time one, say) when something has come.

        As ``on_arrival``.
        """
        thread = self._thread
        self.on_arrival(lambda: signal.pthread_kill(thread, number))

    def _wait(self, done: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Serve the mailbox until ``done()``."""
        caller = self.caller
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            if self.serve() and done():
                return
            self._check()
            left = deadline - time.monotonic()
            if left <= 0:
                caller.clear()
            if not caller.arm():
                continue
            if left <= 0:  # it stays armed, for whoever watches the descriptor
                raise TimedOut(f"channel {self.name!r}: {what} within {timeout} s")
            left = min(left, caller.until_stall_timeout())
            caller.sleep(left if left < math.inf else None)

    def _wait_aside(self, done: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Wait for something else than messages: of those that came meanwhile the descriptor still has to tell."""
        try:
            self._wait(done, timeout, what)
        finally:
            if self._watched:
                self.fileno()

    def serve(self) -> bool:
        """Do what others and the clock want of this thread; return whether there was anything."""
        served = self._process()
        if self.caller.check_stalls():
            self.on_served()
            return True
        return served

    def _process(self) -> bool:
        """Call what was posted."""
        served = self.caller.process()
        if served:
            self.on_served()
        return served

    def _check(self) -> None:
        if threading.get_ident() != self._thread:
            raise WrongThread(
                f"channel {self.name!r} belongs to the thread that opened it: open one more there, they are cheap"
            )
        if self._closed:
            raise KernelClosed(f"channel {self.name!r}: {self._closed}")

    # ------------------------------------------------------------------ the port's owner

    def on_output(self) -> None:
        """Something has come: whoever waits looks by itself."""

    def on_writable(self) -> None:
        """There is room: whoever waits looks by itself."""

    def on_confirmed(self, position: int) -> None:
        """Destinations have confirmed: whoever waits looks by itself."""

    # ------------------------------------------------------------------ the end

    def kernel_closed(self, reason: str) -> None:
        """Called by the kernel, from any thread: wake whoever waits."""
        self.caller.post(lambda: self._set_closed(reason))

    def _set_closed(self, reason: str) -> None:
        self._closed = self._closed or reason

    def close(self) -> None:
        """Leave.  What was sent is still delivered; what was not received goes back to the routes."""
        if not self._port.closed:
            self._fast.plug(None)
            self._closed = self._closed or "it was closed"
            self.caller.close()

    def dispose(self) -> None:
        """Called by the kernel at its very end."""
        self.close()

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called; the kernel then forgets the channel."""
        return self._port.closed

    def statistics(self) -> ChannelStatistics:
        """The figures of this moment."""
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
        if kind is None and self._options.auto_confirm and not self._port.closed:
            self.confirm()  # the application has dealt with what it received: nothing has gone wrong
        self.close()

    def __repr__(self) -> str:
        return f"<Channel {self.name} {'closed' if self._closed else 'open'}>"
