"""Lent wire: a datagram socket that a thread of an application may read and write (``kernel.hosting.lease``).

The owner of the socket watches it with ``watch``, and calls ``settle`` before it works on what it has lent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernel.contracts.engine import Host, Port
from kernel.dispatcher.port import Port as DispatcherPort
from kernel.hosting.connection import LOOK
from kernel.hosting.datagram_wire import DatagramWire

if TYPE_CHECKING:
    from kernel.hosting.lease import HasTurn, Lease, Passed


def pipe_to(lease: Lease, port: Port) -> Passed | None:
    """Return the only pipe that leads from a port, if it is to the application that has asked.

    None as well if the messages that come to the port are to be confirmed, and so have to be looked at.
    """
    if not isinstance(port, DispatcherPort) or port.wants_confirm:
        return None
    pipe = port.short_cut()
    return pipe if pipe is not None and lease.reader_of(pipe) is lease.port else None


def suggest_lease(port: Port) -> None:
    """Tell the only source of a port that its messages come one by one: it may ask for a lease."""
    if isinstance(port, DispatcherPort):
        port.suggest_lease()


def end_with_routes(lease: Lease, port: Port) -> None:
    """End a lease as soon as a route or a pipe of this port changes."""
    if isinstance(port, DispatcherPort):
        port.on_topology = lease.end_soon


class LentWire:
    """``Lendable``, for one socket of an engine."""

    def __init__(
        self,
        host: Host,
        wire: DatagramWire,
        *,
        readable: Callable[[], None],
        writable: Callable[[], None],
        used: Callable[[], None],
    ) -> None:
        """``readable`` reads, ``writable`` writes what waits, and ``used`` sets the owner's timer.

        A timer that a lease makes due earlier is set at the next look, so up to ``LOOK`` seconds late.
        """
        self.wire = wire
        self.ended: bool = False
        """Whether the socket is closed."""
        self.paused: int = 0
        """Not 0: it is not read."""
        self.lease: Lease | None = None
        """The lease of an application thread that reads or writes the socket at present."""
        self._lent_input = False
        self._host = host
        self._readable, self._writable, self._used = readable, writable, used
        self.writing: bool = False
        """Whether datagrams wait until the socket takes more."""

    def holder(self) -> HasTurn | None:
        """Return what the thread of the engine sleeps in, if a lease of the socket is possible."""
        lend_turn = getattr(self._host, "lend_turn", None)
        if lend_turn is None or self.ended or not self.wire.lendable:
            return None
        return lend_turn()  # type: ignore[no-any-return]  # the host's

    # ------------------------------------------------------------------ the owner

    def start(self) -> None:
        """Begin to read."""
        self._watch()

    def write(self, done: bool) -> None:
        """Take notice whether the socket has taken everything; else ``writable`` is called when it can."""
        # The poller is told of changes only.
        if done == self.writing:
            self.writing = not done
            self._watch()

    def pause(self, *, paused: bool) -> None:
        """Stop reading, or go on."""
        if self.paused != paused:
            self.paused = int(paused)
            self._watch()

    def settle(self) -> None:
        """Note what a thread was about to note when a handler of a signal raised in it."""
        lease = self.lease
        if lease is not None:
            lease.settle()

    def close(self) -> None:
        """Forget the socket, which is closed next."""
        self.ended = True
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.end_soon()
        self._host.poller.watch(self.wire.fileno(), readable=None, writable=None)

    def _watch(self) -> None:
        if not self.ended:
            self._host.poller.watch(
                self.wire.fileno(),
                readable=None if self.paused or self._lent_input else self._readable,
                writable=self._writable if self.writing else None,
            )

    # ------------------------------------------------------------------ the lease

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

    def take_back(self, got: Any) -> None:
        """Read again.  ``got`` was read by the other thread, and comes first."""
        self.lease = None
        self._lent_input = False
        self._watch()
        if got is not None:
            self.wire.put_back(got)
            self._readable()
        self._used()

    def lease_used(self) -> None:
        """The lease was used since the last look."""
        self._used()

    def look_later(self, lease: Lease) -> None:
        """Look again whether the lease is still used."""
        self._host.set_timer(self._host.now() + LOOK, lease.look, lease)
