"""Shared turns: an application's thread that waits runs the loop of a poll thread meanwhile.

The poll thread is the *owner* of its loop, the application's thread a *helper*
(docs/decisions/0039-who-waits-turns.md).  Two pollers::

    outer    the owner sleeps here: its bell, trio, and the inner poller
      inner    the sockets of engines; a helper watches it and its own bell, and hides it from the outer one

So a helper begins and ends without waking the owner.

Two locks.  *The turn* is held by whoever calls engines: by the owner at all times but when it sleeps, by a helper
only while it works.  *The seat* is the helper's from its beginning to its end.  A helper waits for neither: if the
owner is awake, it leaves.  The owner waits for the turn, and for the seat at the end of the loop.

Invariants:

1. Nobody sleeps with the turn.
2. Whoever gives the turn up has set the flag of the owner's bell and then found the mailbox empty, or has rung.
3. The inner poller is hidden only while ``_helper`` is set.  Who clears it shows the inner poller next.  Showing is
   one system call, which may be repeated, and which wakes the owner if something is ready.
4. The helper is woken for its own mailbox by its own bell, which rings for a recall, too.
5. Descriptors are moved from one poller to the other by the owner, with both locks.

While nobody has asked for it (``wanted``), the loop has one poller and uses none of this.
"""

from __future__ import annotations

import math
import select
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from kernel.pipes.doorbell import Doorbell
from kernel.pipes.mailbox import Mailbox
from kernel.threads.poller import Blame, Callback, Events

FOR_EVER = 3600.0
"""Seconds of the longest sleep.  ``poll`` takes at most 24 days."""

TURNS_FOR_OTHERS = 64
"""Turns in which a helper has worked without getting anything itself; then it leaves the loop to the owner."""

BUSY_TURNS = 32
"""Turns of the owner without a sleep after which the loop is not lent any more."""

UNHELPED = 64
"""Times that the owner was woken for a socket since somebody last helped; then the loop is not lent any more."""


class SharedPoller(Protocol):
    """The methods of a poller that are used here (``EpollPoller``)."""

    def fileno(self) -> int:
        """A descriptor that is readable while any of the watched is ready."""
        ...

    def watch(self, fd: int, readable: Callback | None, writable: Callback | None, blame: Blame) -> None:
        """Watch a descriptor."""
        ...

    def pause(self, fd: int) -> None:
        """Report a descriptor no more."""
        ...

    def resume(self, fd: int) -> None:
        """Report it again."""
        ...

    def wait(self, timeout: float | None) -> Events:
        """Sleep until something is ready; call nobody."""
        ...

    def poll(self, timeout: float | None, events: Events | None = None) -> int:
        """Wait, and call whoever is ready, or whoever is in ``events``."""
        ...


class Sleep(Protocol):
    """Sleeps until one of two descriptors is readable (``select.poll``)."""

    def poll(self, timeout: float | None) -> Events:
        """Sleep at most ``timeout`` milliseconds; return what is ready."""
        ...


class LoopToShare(Protocol):
    """What a loop does for this."""

    def move_out(self) -> None:
        """Have the outer poller watch the bell and trio instead of the inner one."""
        ...

    def move_back(self) -> None:
        """Have the inner poller watch them again, and wait there."""
        ...

    def take_help(self, look: bool) -> bool:
        """Do a turn in the calling thread, for what was posted, and with ``look`` for descriptors that are ready.

        Return whether nothing is left for the owner.
        """
        ...


class Stay(Protocol):
    """What the thread of a helper needs while it helps (``helper.py``)."""

    def begin(self, wake: Callable[[], None]) -> bool:
        """Begin; False: this thread cannot help now.  ``wake`` is called when the helper should look at ``over``."""
        ...

    def over(self) -> bool:
        """Whether the helper should leave."""
        ...

    def end(self) -> None:
        """End.  May raise what a handler of the application raises."""
        ...


class SharedTurns:
    """The turns of one loop."""

    def __init__(
        self,
        mailbox: Mailbox,
        inner: SharedPoller,
        outer: SharedPoller,
        loop: LoopToShare,
        stay: Callable[[], Stay],
        new_lock: Callable[[], Any] = threading.Lock,
        new_sleep: Callable[[int, int], Sleep] | None = None,
    ) -> None:
        self.wanted: bool = False
        """Whether a thread has asked to help.  Written by any thread."""
        self.lent: bool = False
        """Whether a thread may help.  Written by the owner, with the turn."""
        self._mailbox = mailbox
        self._inner = inner
        self._outer = outer
        self._loop = loop
        self._stay = stay
        self._new_sleep = new_sleep or _sleep_at
        self._sleeps: dict[Doorbell, Sleep] = {}
        self._turn = new_lock()
        self._seat = new_lock()
        self._open = True
        self._helper: Mailbox | None = None
        """Whose thread helps.  Written with the turn."""
        self._tired: Mailbox | None = None
        """Whose thread has worked long enough for others, and is not to help in its next wait."""
        self._busy = 0
        self._unhelped = 0
        self._error: BaseException | None = None
        self._inner_fd = inner.fileno()
        outer.watch(self._inner_fd, self._on_inner, None, _raise)
        outer.pause(self._inner_fd)

    # ------------------------------------------------------------------ the owner

    def lend(self) -> None:
        """Allow helpers.  The owner, before it sleeps; from here on it polls with ``poll``."""
        self.wanted = False
        if self._open and not self.lent:
            self._turn.acquire()
            self._busy = self._unhelped = 0
            self._loop.move_out()
            self._outer.resume(self._inner_fd)
            self.lent = True

    def poll(self, timeout: float | None) -> int:
        """Poll as the loop's poller does.  The owner, with the turn, while the loop is lent."""
        if timeout == 0:
            self._busy += 1
            # More than a moment's work: from now on the owner looks after the sockets itself.
            if self._busy > 1:
                self._recall()
            if self._busy >= BUSY_TURNS:
                self._withdraw()
            return 0 if self._helper is not None else self._inner.poll(0)
        self._busy = 0
        # The flag of the bell was set, and the mailbox was empty.
        self._turn.release()
        try:
            events = self._outer.wait(timeout)
        finally:
            self._turn.acquire()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        self._outer.poll(0, events)
        if self._unhelped >= UNHELPED:
            self._withdraw()
        return len(events)

    def close(self) -> None:
        """Let nobody help any more; wait until the present helper has left.  The owner."""
        self._open = False
        if self.lent:
            self._recall()
            self._seat.acquire()
            self._withdraw_now()
            self._seat.release()

    def refuse(self) -> None:
        """Let nobody begin any more.  With the turn."""
        self._open = False

    def _on_inner(self) -> None:
        # A helper may have begun since the outer poller said so.
        if self._helper is None:
            self._unhelped += 1
            self._inner.poll(0)

    def _recall(self) -> None:
        # A copy: the helper may be leaving.
        helper = self._helper
        if helper is not None:
            self._leave()
            helper.bell.ring()

    def _leave(self) -> None:
        """The owner looks after the sockets again.  The owner, or the helper."""
        self._helper = None
        self._outer.resume(self._inner_fd)

    def _withdraw(self) -> None:
        # A helper that was recalled may still be in the inner poller.  Then later.
        if self._helper is None and self._seat.acquire(False):
            self._withdraw_now()
            self._seat.release()

    def _withdraw_now(self) -> None:
        self.lent = False
        self._outer.pause(self._inner_fd)
        self._loop.move_back()
        self._turn.release()

    # ------------------------------------------------------------------ a helper

    def wait(self, mailbox: Mailbox, timeout: float | None) -> bool:
        """Wait in the loop's place until something was posted to ``mailbox``.  The thread of that mailbox.

        False: it did not wait.  True may be before the time, and with nothing posted.
        """
        if not self.lent:
            self.wanted = True
            return False
        if self._tired is mailbox:
            self._tired = None
            return False
        # Before the preparations, which cost more.
        if not self._open or self._seat.locked() or self._turn.locked():
            return False
        stay = self._stay()
        begun = False
        try:
            begun = stay.begin(mailbox.bell.ring)
            if not begun or not self._seat.acquire(False):
                return False
            try:
                return self._help(mailbox, timeout, stay)
            finally:
                self._seat.release()
        finally:
            if begun:
                stay.end()

    def _help(self, mailbox: Mailbox, timeout: float | None, stay: Stay) -> bool:
        """Begin, sleep and work, and leave.  With the seat."""
        # The owner is awake, and is the better one to see what is to be done.
        if not self._turn.acquire(False):
            return False
        try:
            # With the seat the loop stays lent; with the turn it stays open.
            if not self.lent or not self._open:
                return False
            self._unhelped = 0
            self._helper = mailbox
            self._outer.pause(self._inner_fd)
        finally:
            self._turn.release()
        try:
            self._sleep_and_work(mailbox, timeout, stay)
        finally:
            mailbox.bell.sleeping = False
            # Also if the owner has done it, in another step than this look at ``_helper``.
            self._leave()
        return True

    def _sleep_and_work(self, mailbox: Mailbox, timeout: float | None, stay: Stay) -> None:
        bell = mailbox.bell
        sleep = self._sleeps.get(bell)
        if sleep is None:
            sleep = self._sleeps[bell] = self._new_sleep(bell.fileno(), self._inner_fd)
        until = math.inf if timeout is None else time.monotonic() + timeout
        for _ in range(TURNS_FOR_OTHERS):
            # The owner clears ``_helper`` before it rings.
            if not mailbox.may_sleep() or self._helper is not mailbox or stay.over():
                return
            left = None if timeout is None else min(max(0.0, until - time.monotonic()), FOR_EVER) * 1000
            ready = [fd for fd, _ in sleep.poll(left)]
            bell.sleeping = False
            if self._inner_fd not in ready:
                # Rung, or the time is over.  What was posted is found by the caller.
                if ready:
                    bell.silence()
                return
            # The owner is awake, so it has to see what is ready: this thread shows it.
            if not self._turn.acquire(False):
                return
            try:
                if self._helper is not mailbox or not self._open:
                    return
                self._work(look=True)
            finally:
                self._turn.release()
        self._tired = mailbox

    def send(self, mailbox: Mailbox, send: Callable[[], bool]) -> bool:
        """Call ``send``, and do what it has posted, instead of waking the owner.  The thread of that mailbox.

        Returns what ``send`` returns.
        """
        stay = self._stay()
        begun = False
        try:
            begun = stay.begin(_nothing)
            return self._send(mailbox, send) if begun else send()
        finally:
            if begun:
                stay.end()

    def _send(self, mailbox: Mailbox, send: Callable[[], bool]) -> bool:
        # What is posted now rings nobody yet.  No handler of a signal comes between that and the ring.
        mailbox.rings = []
        try:
            return send()
        finally:
            rings, mailbox.rings = mailbox.rings, None
            for bell in rings:
                if bell is not self._mailbox.bell or not self._do():
                    bell.ring()

    def _do(self) -> bool:
        """Do what was posted to the loop, if nobody has the turn; return whether it was done."""
        if not self._turn.acquire(False):
            return False
        try:
            # Else the owner is awake without the turn, or will be.
            if not self.lent or not self._open:
                return False
            self._work(look=False)
            return True
        finally:
            self._turn.release()

    def _work(self, *, look: bool) -> None:
        """Take a turn.  Leaves the mailbox empty with the flag set, or has rung the bell."""
        bell = self._mailbox.bell
        # This thread reads the mailbox now, so nobody has to ring.
        bell.sleeping = False
        try:
            quiet = self._loop.take_help(look)
        except BaseException as error:
            # Not the application's: the owner raises it.
            self._error = error
            quiet = False
        if not quiet or not self._mailbox.may_sleep():
            bell.ring()


def _sleep_at(bell: int, inner: int) -> Sleep:
    sleep = select.poll()
    sleep.register(bell, select.POLLIN)
    sleep.register(inner, select.POLLIN)
    return sleep


def _nothing() -> None:
    """Nobody sleeps who would have to be woken."""


def _raise(error: Exception) -> None:
    raise error
