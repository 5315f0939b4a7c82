"""Monitors: what happens to the places and the connections of a socket, as events with types.

A ``Watch`` makes events of what the socket's engine reports and of what the application does; a ``Monitor``
keeps them until the application asks.  The backend for pyzmq has a watch as well, and sends its events as
messages.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias

import msgspec

from kernel.contracts.engine import EngineEvent
from plugins.apis.sockets.errors import Again, AgainLater, SocketClosed

MOST_EVENTS: Final = 10_000
"""Events that a monitor keeps for an application that does not ask; behind that the oldest are dropped."""

What: TypeAlias = Literal[
    "listening",
    "closed",
    "connecting",
    "retrying",
    "connected",
    "accepted",
    "refused",
    "disconnected",
    "bind failed",
    "accept failed",
]
"""What may happen."""


class SocketEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that has happened to a place or to a connection.

    * ``listening``, ``closed``: the application has bound to a place, or unbound.
    * ``connecting``: it has connected to a place; ``retrying``: an attempt has failed, or the connection was
      lost.
    * ``connected``: a peer to which this socket connects is there, after its handshake; ``accepted``: one
      that has connected to this socket is.
    * ``refused``: a handshake has failed, at either side.
    * ``disconnected``: a connection has ended.
    * ``bind failed``: the application could not bind; ``accept failed``: the system had nothing left for a
      peer.
    """

    what: What
    place: str
    """The place; of a peer that has connected to this socket: its address; of ``accept failed``: empty."""
    reason: str = ""
    """Why, for ``retrying`` and the last four."""
    code: str = ""
    """Of ``refused``: the status of ZAP with which a login was refused, such as ``400``, or the name of a
    fault in the peer's handshake, such as ``mechanism-mismatch``.  Of ``bind failed`` and ``accept failed``:
    such as ``EMFILE``."""
    next_try: float | None = None
    """Of ``retrying``: seconds until the next attempt."""


_FROM_ENGINES: dict[str, What] = {
    "disconnected": "disconnected",
    "refused": "refused",
    "retrying": "retrying",
}


class Watch:
    """Passes the events of one socket to ``tell``, in the threads in which they happen."""

    def __init__(
        self, engine: str, listeners: list[Callable[[EngineEvent], Any]], tell: Callable[[SocketEvent], Any]
    ) -> None:
        """``listeners``: those of the kernel, among which this one is until ``stop``."""
        self._engine = engine
        self._listeners = listeners
        self.tell: Callable[[SocketEvent], Any] = tell
        """Takes an event."""
        listeners.append(self._told)

    def _told(self, event: EngineEvent) -> None:
        """Take an event of any engine of the kernel.  Any thread."""
        if event.engine != self._engine:
            return
        # Peers of connect places are called after the place.
        ours = "://" in event.peer
        what: What | None = _FROM_ENGINES.get(event.what)
        if event.what == "connected":
            what = "connected" if ours else "accepted"
        if what is None:
            return
        if what == "refused" and not event.peer:
            self.tell(SocketEvent(what="accept failed", place="", reason=event.detail, code=event.code))
            return
        self.tell(
            SocketEvent(
                what=what,
                place=event.peer if ours else f"tcp://{event.peer}",
                reason=event.detail,
                code=event.code,
                next_try=event.next_try,
            )
        )

    def stop(self) -> None:
        """Tell no more."""
        # Another thread may be faster.
        with suppress(ValueError):
            self._listeners.remove(self._told)


class Monitor:
    """The events of a socket from now on.

    ``Socket.monitor`` makes it; a ``for`` ends when the socket is closed.

    Any thread may ask it, whatever other threads do with the socket.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._events: deque[SocketEvent] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self.dropped: int = 0
        """Events that were dropped because nobody has asked for them."""
        self.on_change: Callable[[], Any] | None = None
        """Called in any thread when there is an event, or when it is over."""
        self.on_close: Callable[[], Any] = lambda: None
        """Set by its socket."""

    def take(self, event: SocketEvent) -> None:
        """Keep an event until the application asks.  Any thread."""
        with self._changed:
            if len(self._events) >= MOST_EVENTS:
                self._events.popleft()
                self.dropped += 1
            self._events.append(event)
            self._changed.notify()
        self._tell_of_change()

    def _tell_of_change(self) -> None:
        told = self.on_change
        if told is not None:
            told()

    def recv(self, *, timeout: float | None = None) -> SocketEvent:
        """Return the next event; wait for it at most ``timeout`` seconds (``Again``).

        ``SocketClosed`` when all that has happened was returned, and the socket or the monitor is closed.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._events or self._closed, timeout):
                kind = AgainLater if timeout else Again
                raise kind(f"monitor of socket {self._name!r}: nothing has happened")
            if self._events:
                return self._events.popleft()
        raise SocketClosed(f"monitor of socket {self._name!r}: it is over")

    def close(self) -> None:
        """End it: a call that waits raises ``SocketClosed``.  What has happened can still be received."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.on_close()
        self._tell_of_change()

    def __iter__(self) -> Iterator[SocketEvent]:
        """Return events until the socket, its context or the monitor is closed."""
        while True:
            try:
                event = self.recv()
            except SocketClosed:
                return
            yield event

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
