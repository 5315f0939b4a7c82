"""Poller: the descriptors of a thread, and the callbacks to call when they are ready.  Level-triggered."""

from __future__ import annotations

import select
import selectors
from collections.abc import Callable
from threading import Lock
from typing import Protocol

from kernel.pipes.doorbell import Doorbell

Callback = Callable[[], "int | None"]
"""One that reads may return how many octets that were (``Poller.octets``)."""
Blame = Callable[[Exception], None]
Watch = tuple[Callback | None, Callback | None, Blame]


TURN_TIMEOUT = 1.0
"""Seconds for which a thread waits for its turn.  Others need it for a read or a write that does not wait."""

_PARTS = 10
"""Parts of such a wait.  A call of C may hold the interpreter's lock for longer than all of it.

Who has the turn cannot give it up meanwhile, and can between two parts.
"""


class Poller(Protocol):
    """The methods of a poller that a loop uses."""

    turn: Lock | None
    """Held by the thread that polls, except while it sleeps here.  None: nobody has asked for it, or
    this poller has none."""
    spin: float | None
    """The option of that name of the thread that polls.  Set with ``turn``."""
    following: int
    """While a callback runs: the descriptor that was found ready together with its own and
    comes next; -1: none."""
    octets: int
    """How many octets callbacks have read, as far as they say it."""

    def fileno(self) -> int:
        """A descriptor that is readable while any of the watched is ready."""
        ...

    def watch(self, fd: int, readable: Callback | None, writable: Callback | None, blame: Blame) -> None:
        """Watch ``fd``, or change how it is watched; with None twice, stop watching it.

        ``blame`` gets what a callback raises.
        """
        ...

    def watch_bell(self, bell: Doorbell) -> None:
        """Wake from ``poll`` when the bell is rung."""
        ...

    def poll(self, timeout: float | None) -> int:
        """Wait up to ``timeout`` seconds, and call the callbacks of descriptors that are ready.

        Return how many were ready.
        """
        ...

    def close(self) -> None:
        """Close the descriptor."""
        ...


class EpollPoller:
    """For Linux."""

    def __init__(self) -> None:
        self.turn: Lock | None = None
        self.spin: float | None = None
        self.following: int = -1
        self.octets: int = 0
        self._epoll = select.epoll()
        self._watches: dict[int, Watch] = {}

    def fileno(self) -> int:
        """The epoll descriptor itself can be polled."""
        return self._epoll.fileno()

    def watch(self, fd: int, readable: Callback | None, writable: Callback | None, blame: Blame) -> None:
        """Watch ``fd``, or change how it is watched; with None twice, stop watching it."""
        events = (select.EPOLLIN if readable else 0) | (select.EPOLLOUT if writable else 0)
        if not events:
            if self._watches.pop(fd, None) is not None:
                try:
                    self._epoll.unregister(fd)
                except OSError:
                    # The descriptor was closed before, which removed it from the epoll set.
                    pass
        elif fd in self._watches:
            self._watches[fd] = (readable, writable, blame)
            self._epoll.modify(fd, events)
        else:
            # First, since it may raise: then nothing is watched, and nothing is remembered.
            try:
                self._epoll.register(fd, events)
            except FileExistsError:
                # A handler of a signal has raised between the two steps above, in a thread that has a lease.
                self._epoll.modify(fd, events)
            self._watches[fd] = (readable, writable, blame)

    def watch_bell(self, bell: Doorbell) -> None:
        """Edge-triggered: each ring wakes us once, and nobody has to read the bell empty."""
        # No callback: waking up is the effect.
        self._watches[bell.fileno()] = (None, None, _raise)
        # An eventfd reports an edge at each write, also while it is still readable. So no ring is missed, and
        # each wake-up saves the system call that would read it.
        self._epoll.register(bell.fileno(), select.EPOLLIN | select.EPOLLET)

    def poll(self, timeout: float | None) -> int:
        """Wait, call whoever is ready, and return how many descriptors were."""
        # At most 256 at once, so that the mailbox and the timers have their turn. What is left is reported by
        # the next call.
        turn = self.turn
        if turn is None:
            events = self._epoll.poll(timeout, 256)
        else:
            turn.release()
            try:
                events = self._epoll.poll(timeout, 256)
            finally:
                if not (turn.acquire(timeout=TURN_TIMEOUT / _PARTS) or _waits_on(turn)):
                    # A handler of a signal runs in the middle of a short use of the connection, and may wait
                    # for this very thread. Who has the old lock finds that it is not valid any more.
                    self.turn = None
        watches = self._watches
        count = len(events)
        for at, (fd, event) in enumerate(events, 1):
            self.following = events[at][0] if at < count else -1
            watch = watches.get(fd)
            # An earlier callback of this batch has closed it. If its number was given to a new descriptor
            # meanwhile, the callback of that one is called although nothing may be there.
            if watch is None:
                continue
            readable, writable, blame = watch
            try:
                # Errors and hang-ups are reported whatever was asked for. Both callbacks get them: the next
                # system call on the descriptor then says what happened.
                if writable is not None and event & (select.EPOLLOUT | select.EPOLLERR | select.EPOLLHUP):
                    writable()
                    # It may have closed the descriptor, or may no longer want it watched.
                    if fd not in watches:
                        continue
                if readable is not None and event & ~select.EPOLLOUT:
                    octets = readable()
                    if octets is not None:
                        self.octets += octets
            except Exception as error:
                # Ends the engine that watches this descriptor; the others of the thread go on.
                blame(error)
        return len(events)

    def close(self) -> None:
        """Close the descriptor.  Who waits for the turn gets it, and finds that it is not valid any more."""
        turn, self.turn = self.turn, None
        if turn is not None:
            turn.release()
        self._epoll.close()


class SelectorPoller:
    """For systems without epoll (macOS: kqueue)."""

    def __init__(self) -> None:
        self.turn: Lock | None = None
        self.spin: float | None = None
        self.following: int = -1
        self.octets: int = 0
        self._selector = selectors.DefaultSelector()

    def fileno(self) -> int:
        """The kqueue descriptor can be polled."""
        return self._selector.fileno()

    def watch(self, fd: int, readable: Callback | None, writable: Callback | None, blame: Blame) -> None:
        """Watch ``fd``, or change how it is watched; with None twice, stop watching it."""
        events = (selectors.EVENT_READ if readable else 0) | (selectors.EVENT_WRITE if writable else 0)
        # -1: its socket was closed before.
        known = fd >= 0 and fd in self._selector.get_map()
        if not events:
            if known:
                self._selector.unregister(fd)
        elif known:
            self._selector.modify(fd, events, (readable, writable, blame))
        else:
            self._selector.register(fd, events, (readable, writable, blame))

    def watch_bell(self, bell: Doorbell) -> None:
        """Level-triggered: the bell is read when it has rung."""
        self.watch(bell.fileno(), bell.silence, None, _raise)

    def poll(self, timeout: float | None) -> int:
        """Wait, call whoever is ready, and return how many descriptors were."""
        ready = self._selector.select(timeout)
        for at, (key, events) in enumerate(ready, 1):
            self.following = ready[at][0].fd if at < len(ready) else -1
            readable, writable, blame = key.data
            try:
                if writable is not None and events & selectors.EVENT_WRITE:
                    writable()
                if (
                    readable is not None
                    and events & selectors.EVENT_READ
                    and key.fd in self._selector.get_map()
                ):
                    octets = readable()
                    if octets is not None:
                        self.octets += octets
            except Exception as error:
                # As above: ends one engine only.
                blame(error)
        return len(ready)

    def close(self) -> None:
        """Close the descriptor."""
        self._selector.close()


def _waits_on(turn: Lock) -> bool:
    """Wait for the turn in the parts that are left; whether it came."""
    return any(turn.acquire(timeout=TURN_TIMEOUT / _PARTS) for _ in range(_PARTS - 1))


def _raise(error: Exception) -> None:
    raise error


def new_poller() -> Poller:
    """Return the best poller that this system has."""
    return EpollPoller() if hasattr(select, "epoll") else SelectorPoller()
