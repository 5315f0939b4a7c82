"""End: the application's end of a socket, a port with what is needed to wait.

Any thread may use it, one at a time.  As for a channel, what other threads want of it is posted, and done in
the next call.  The order of the steps of a wait is that of ``CallerThread.wait_until``.

What was taken from the pipes waits in ``inbox``.  A pattern may change it on its way there (``incoming``), and
append messages of its own.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from kernel.contracts.api import CallerPort, CallerThread, Join
from kernel.contracts.engine import PortOwner
from kernel.contracts.message import Batch
from kernel.contracts.router import Outlet
from kernel.hosting.fast_sender import FastSender, fast_sender
from plugins.apis.sockets.errors import Again, AgainLater, ContextClosed, SocketClosed

AT_ONCE = 65_536
"""About how many messages are taken from the pipes at once, at the most."""


class End(PortOwner):
    """``kernel.contracts.api.Api``, and the owner of the port."""

    def __init__(self, name: str, join: Join) -> None:
        self.name = name
        self.inbox: deque[Batch] = deque()
        self.incoming: Callable[[Batch], Batch | None] | None = None
        """What the pattern does with a batch; None: nothing."""
        self._reason = ""
        self._left = False
        """Whether the application has closed the socket, and not its context."""
        self.caller: CallerThread = join(self)
        self.port: CallerPort = self.caller.port
        self.posted = self.caller.posted

    def fast(self, long_way: Callable[[Any, str | None, float | None], None]) -> FastSender:
        """Return a sender for bare bodies; ``long_way`` sends the others."""
        # ``int``: one thread after the other may use it.
        sender = fast_sender(self.posted, long_way, int)

        def find_short_cut() -> None:
            pipe = self.port.short_cut()
            # Bare bodies are appended without a look at the marks, so not for a pipe that drops.
            sender.plug(pipe if pipe is not None and pipe.marks.when_full == "block" else None)

        self.port.on_topology = find_short_cut
        find_short_cut()
        return sender

    # ------------------------------------------------------------------ sending

    def room_for(self, batch: Batch) -> bool:
        """Whether this batch need not wait."""
        return self.port.has_room_for(batch)

    def send(self, batch: Batch, timeout: float | None) -> None:
        """Send a batch; wait for room."""
        self.look()
        port = self.port
        if not port.has_room_for(batch):
            port.stop()
            self.wait(
                lambda: port.has_room_for(batch), timeout, "no peer has room for a message, or there is none"
            )
        port.send((batch,))

    # ------------------------------------------------------------------ receiving

    def ready(self) -> bool:
        """Whether something can be received; takes it from the pipes."""
        inbox = self.inbox
        while not inbox:
            taken = self.port.take(AT_ONCE)
            if not taken.batches:
                return False
            if self.incoming is None:
                inbox += taken.batches
            else:
                inbox += filter(None, map(self.incoming, taken.batches))
        return True

    def next_batch(self, timeout: float | None) -> Batch:
        """Return the next batch; wait for it."""
        self.look()
        if not self.inbox and not (self.port.has_input() and self.ready()):
            self._wait(self._ready_or_closed, timeout, "no message has come")
            if self._reason and not self.ready():
                self._raise_closed()
        return self.inbox.popleft()

    # ------------------------------------------------------------------ waiting

    def look(self) -> None:
        """Do what other threads have posted.  Raises if the end is closed."""
        if self.posted:
            self.caller.process()
        if self._reason:
            self._raise_closed()

    def _ready_or_closed(self) -> bool:
        return bool(self._reason) or self.ready()

    def _raise_closed(self) -> None:
        if self._left:
            raise SocketClosed(f"socket {self.name!r} was closed; make another one")
        raise ContextClosed(f"socket {self.name!r}: {self._reason}")

    def wait(self, done: Callable[[], bool], timeout: float | None, why: str) -> None:
        """Wait until ``done()``; raise ``Again`` after ``timeout`` seconds."""
        self._wait(lambda: bool(self._reason) or done(), timeout, why)
        if self._reason and not done():
            self._raise_closed()

    def _wait(self, done: Callable[[], bool], timeout: float | None, why: str) -> None:
        if timeout == 0:
            raise Again(f"socket {self.name!r}: {why}")
        if not self.caller.wait_until(done, timeout):
            self.caller.disarm()
            raise AgainLater(f"socket {self.name!r}: {why} (waited {timeout} s)")

    def arm(self) -> bool:
        """Prepare to wait for the descriptor; False if there may be something already."""
        return self.caller.arm() and not self._reason

    def disarm(self) -> None:
        """Take ``arm`` back, and do what has come."""
        self.caller.disarm()
        self.caller.clear()
        self.caller.process()

    def until_stall_timeout(self) -> float:
        """Return the longest time to wait for the descriptor."""
        return min(self.caller.until_stall_timeout(), math.inf)

    # ------------------------------------------------------------------ the port's owner

    # Called inside ``process``: whoever waits tests its condition next.

    def on_output(self) -> None:
        """Something has come."""

    def on_writable(self) -> None:
        """There is room."""

    def on_confirmed(self, position: int) -> None:
        """Nothing is confirmed on the routes of sockets."""

    # ------------------------------------------------------------------ the end

    @property
    def closed(self) -> bool:
        """Whether it has left the kernel."""
        return self.port.closed

    def kernel_closed(self, reason: str) -> None:
        """Wake whoever waits.  Any thread."""
        self.caller.post(lambda: self._close(reason))

    def _close(self, reason: str) -> None:
        self._reason = self._reason or reason

    def leave(self) -> None:
        """Leave the kernel, because the application has closed the socket."""
        self._left = not self._reason
        self.dispose()

    def dispose(self) -> None:
        """Leave the kernel."""
        if not self.port.closed:
            self.port.on_topology = lambda: None
            self._close("the context was closed")
            self.caller.close()


class PublishingEnd(End):
    """The end of a socket whose peers subscribe."""

    def __init__(self, name: str, join: Join) -> None:
        self.wanted: dict[bytes, Counter[Outlet]] = {}
        """Who has subscribed to which prefix, and how often."""
        self.on_subscription: Callable[[str, bytes, bool, str], Any] | None = None
        """Called with ``subscribe`` or ``unsubscribe``, the prefix, whether it is the first or the last, and the name
        of the port of the peer."""
        super().__init__(name, join)

    def on_asked(self, verb: str, pattern: str, outlet: Outlet) -> None:
        """A peer has subscribed or unsubscribed, or has gone."""
        # The pattern is ``prefix:`` and the octets of the prefix: sockets of this API have no keys.
        prefix = pattern.partition(":")[2].encode("utf-8", "surrogateescape")
        readers = self.wanted.setdefault(prefix, Counter())
        before = bool(readers)
        if verb == "subscribe":
            readers[outlet] += 1
        else:
            readers[outlet] -= 1
            if not readers[outlet]:
                del readers[outlet]
        after = bool(readers)
        if not after:
            del self.wanted[prefix]
        if self.on_subscription is not None:
            self.on_subscription(verb, prefix, before != after, outlet.target)

    def subscribers(self, topic: bytes | None, *, exact: bool = False) -> int:
        """Return how many peers get messages that begin with ``topic``, or that are it; None: any messages."""
        peers: set[Outlet] = set()
        for prefix, readers in self.wanted.items():
            if topic is None or (topic == prefix if exact else topic.startswith(prefix)):
                peers.update(readers)
        return len(peers)
