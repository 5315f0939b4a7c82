"""Caller thread: an application thread that takes part in the matrix.

It hosts no engines and waits only inside its calls.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from kernel.contracts.engine import PortOwner
from kernel.contracts.message import Envelope
from kernel.dispatcher.dispatcher import Dispatcher
from kernel.dispatcher.port import Port
from kernel.dispatcher.port_groups import group_of
from kernel.hosting.lease import Lease
from kernel.hosting.uninterrupted import UNINTERRUPTED
from kernel.pipes.doorbell import Doorbell

_log = logging.getLogger(__name__)


class CallerThread:
    """``kernel.contracts.api.CallerThread``, for the thread that makes it.

    Attributes that are functions are those of the mailbox and of its bell: no call is added on the path of a
    message.
    """

    __slots__ = (
        "_bell",
        "_dispatcher",
        "_mailbox",
        "_slot",
        "_stalls",
        "arm",
        "clear",
        "fileno",
        "port",
        "post",
        "posted",
        "process",
        "sleep",
        "wake",
    )

    def __init__(
        self, dispatcher: Dispatcher, name: str, owner: PortOwner, options: dict[str, Any] | None = None
    ) -> None:
        self._dispatcher = dispatcher
        self._slot = dispatcher.borrow_slot(name)
        # That of the slot is another one as soon as this thread has left.
        mailbox = self._mailbox = self._slot.mailbox
        bell = mailbox.bell
        self._bell: Doorbell | _NoBell = bell
        # Bound methods of the mailbox and its bell, looked up once. Each one is called by the path of a
        # message or of a wait.
        self.posted: deque[Callable[[], Any]] = mailbox.posted
        self.post: Callable[[Callable[[], Any]], None] = mailbox.post
        self.process: Callable[[], bool] = mailbox.process
        self.arm: Callable[[], bool] = mailbox.may_sleep
        self.sleep: Callable[[float | None], bool] = bell.wait
        self.fileno: Callable[[], int] = bell.fileno
        self.wake: Callable[[], None] = bell.ring
        self.clear: Callable[[], None] = bell.clear
        # Last: as soon as the port has joined, other threads post to this one.
        self.port: Port = dispatcher.open_port(self._slot, name, name, owner, options)
        # There is no engine here whose events an operator sees, so the log gets the sentence. ``now`` stays
        # ``time.monotonic``, the clock of ``wait_until``.
        self._stalls = self.port.stall_watch
        self._stalls.report = lambda _, text: _log.warning("%s: %s", name, text)

    def wait_until(self, done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Process what others post until ``done()``; False when it is not within ``timeout`` seconds."""
        return self.wait_for(partial(self.serve, done), timeout)

    def wait_for(self, attempt: Callable[[], bool], timeout: float | None = None) -> bool:
        """Sleep between two calls of ``attempt``, which serves, until it is true; False after ``timeout``."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        # Before ``done`` is asked for the first time: what it waits for may have been posted already.
        if attempt():
            return True
        while True:
            left = math.inf
            if timeout is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
            if self.arm():
                # A caller thread has no timers, so it must not sleep longer than its stall watch allows.
                left = min(left, self.until_stall_timeout())
                seconds = left if left < math.inf else None
                if UNINTERRUPTED.depth:
                    with UNINTERRUPTED.sleeping():
                        self.sleep(seconds)
                else:
                    self.sleep(seconds)
            else:
                # Something came between ``process`` and ``arm``. Without a sleep nobody clears the flag, and
                # every post would ring for a thread that is awake.
                self.disarm()
            if attempt():
                return True

    def serve(self, done: Callable[[], bool]) -> bool:
        """Process what others have posted; return whether ``done()``."""
        with UNINTERRUPTED:
            self.process()
            # After each wake-up: there is no timer that would do it at the deadline.
            self.check_stalls()
            return done()

    def check_stalls(self) -> bool:
        """Stop waiting for destinations whose stall timeout is over; whether there were any."""
        # Asked after each sleep, and mostly nothing is watched.
        return self._stalls.active and self.port.check_stalls()

    def until_stall_timeout(self) -> float:
        """Seconds until ``check_stalls`` has something to do."""
        if not self._stalls.active:
            return math.inf
        deadline = self._stalls.deadline()
        return math.inf if deadline is None else max(0.0, deadline - time.monotonic())

    def ask_lease(self, under: Envelope | None = None) -> Lease | None:
        """Ask who reads what is sent here to lend its connection; None: there is nobody to ask."""
        port = self.port
        # Answers go where the question came from, whatever the router chooses by.
        written = port.short_cut() if under is None else port.only_target()
        reader = None if written is None else self._dispatcher.reader_of(written)
        source = None if reader is None else self._source_with(reader)
        if written is None and under is None and not port.routes:
            return self._ask_to_receive()
        if written is None or reader is None or source is None:
            return None
        lease = Lease(self._mailbox, self.port, written, source, self._dispatcher.reader_of, under)
        reader.post(partial(reader.lend, lease))
        return lease

    def _ask_to_receive(self) -> Lease | None:
        """Ask the only port that sends here, where nothing is sent from here."""
        pipes = self.port.sources()
        source = self._dispatcher.writer_of(pipes[0]) if len(pipes) == 1 else None
        if source is None:
            return None
        lease = Lease(self._mailbox, self.port, None, source, self._dispatcher.reader_of)
        source.post(partial(source.lend, lease))
        return lease

    def ask_lease_to_send(self, on_offered: Callable[[Lease], Any]) -> None:
        """Ask who reads what is sent here to lend its socket for that alone; call ``on_offered`` then."""
        port = self.port
        written = port.short_cut()
        reader = None if written is None else self._dispatcher.reader_of(written)
        if reader is not None:
            lease = Lease(self._mailbox, port, written, None, self._dispatcher.reader_of)
            lease.on_offered = on_offered
            reader.post(partial(reader.lend, lease))

    def waker(self) -> Callable[[], bool] | None:
        """Return what wakes the only thread that is sent to, ahead of a message; None: there is none."""
        pipe = self.port.only_target()
        return None if pipe is None or pipe.reader_bell is None else pipe.reader_bell.ring_ahead

    def _source_with(self, reader: Port) -> Port | None:
        """Return the only port that sends here; ``reader``, if it is one of a group, and all of them do."""
        writers = [self._dispatcher.writer_of(pipe) for pipe in self.port.sources()]
        if len(writers) == 1:
            return writers[0]
        group = group_of(reader)
        groups = [None if writer is None else group_of(writer) for writer in writers]
        if group is None or not all(each is not None and each.whole == group.whole for each in groups):
            return None
        return reader

    def disarm(self) -> None:
        """This thread is awake."""
        self._bell.sleeping = False

    def on_wake(self, callback: Callable[[], Any] | None) -> None:
        """Have ``callback`` called as well when this thread is woken."""
        self._bell.on_ring = callback

    def wake_by(self, callback: Callable[[], Any] | None) -> None:
        """Have ``callback`` called when this thread is woken, instead of the descriptor."""
        self._bell.instead = callback

    def keep_bell(self) -> None:
        """The kernel has ended, and this thread still waits: leave its bell open until ``close``.

        Any thread.
        """
        self._slot.kept = True

    def close(self) -> None:
        """Leave the dispatcher.  Whoever calls something afterwards finds that there may be something."""
        if not self.port.closed:
            self.port.close()
            # The slot and its bell are used again by the next caller thread.  One that clears the flag of a
            # bell that is not its own any more, or takes a ring, would leave that thread asleep for ever.
            bell, self._bell = self._bell, _NoBell()
            bell.on_ring = bell.instead = None
            self.arm, self.sleep, self.fileno = _look, _awake, _closed
            self.wake = self.clear = _nothing
            self._dispatcher.give_back_slot(self._slot)


class _NoBell:
    """Instead of a bell that was given back."""

    __slots__ = ("instead", "on_ring", "sleeping")

    def __init__(self) -> None:
        self.sleeping = False
        self.on_ring: Callable[[], Any] | None = None
        self.instead: Callable[[], Any] | None = None


def _look() -> bool:
    """As ``Mailbox.may_sleep``."""
    return False


def _awake(_: float | None) -> bool:
    """As ``Doorbell.wait``."""
    return True


def _closed() -> int:
    """As ``Doorbell.fileno``."""
    return -1


def _nothing() -> None:
    """As ``Doorbell.ring`` and ``Doorbell.clear``."""
