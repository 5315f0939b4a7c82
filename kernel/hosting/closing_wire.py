"""Closing wire: closes a wire in good order, in a few seconds.

What is queued is written, then the sending half is shut down.  So the peer reads our last bytes and then the
end.  What the peer still sends is read and dropped until it closes, too.  The reason: if a socket is closed
with unread input, the system sends a reset, and a reset makes the peer's system drop what the peer has not
read yet.  A client that writes a lot and then closes would never see our answer.

Some protocols say that the peer closes (``peer_first``).  Then the sending half stays open for as long: a
client that has asked for the end and still reads would take an end behind the answer for a lost connection.
"""

from __future__ import annotations

from collections import deque

from kernel.contracts.engine import Host
from kernel.contracts.message import Buffer
from kernel.hosting.read_size import READ_SIZE
from kernel.hosting.wire import Wire

SECONDS = 3.0
"""How long a peer may take to read our last bytes and to close its side."""

DISCARDED_BYTES = 64 * 1024 * 1024
"""How much input is read and dropped in the meantime, at most."""


def close_in_order(host: Host, wire: Wire, out: deque[Buffer], *, peer_first: bool = False) -> None:
    """Close a wire in good order; ``out`` is written before.

    ``peer_first``: the peer is to close, and this side only if it has not within ``SECONDS``.
    """
    # Most peers that close first have done so by now.  Then there is nothing to wait for.
    if not (out or wire.announces_end) and _has_ended(wire):
        wire.close()
    else:
        ClosingWire(host, wire, out, peer_first=peer_first).begin()


def _has_ended(wire: Wire) -> bool:
    try:
        # Little: what comes before the end is looked at by ``ClosingWire``.
        return wire.receive(1) == b""
    except OSError:
        # An error is an end as well: nothing can be lost any more.
        return True


class ClosingWire:
    """A wire that has no owner any more.

    Only the host has references to it: the watch of its descriptor and its timer.  When the engine ends, the
    host drops both, and the wire is closed with the last reference.
    """

    def __init__(self, host: Host, wire: Wire, out: deque[Buffer], *, peer_first: bool) -> None:
        self._peer_first = peer_first
        self._host = host
        self._wire = wire
        self._out = out
        # Not this object: a cancelled timer may keep its key for a while, and with it the wire.
        self._timer_key = object()
        self._discarded = 0
        self._closed = False
        self._watched = False
        self._written = False
        """Whether everything was written.  A wire with frames of its own may still have some that left
        ``out``."""

    def __del__(self) -> None:
        if not self._closed:
            self._wire.close()

    def begin(self) -> None:
        """Write and read what is possible now, and continue when the descriptor is ready."""
        self._send()
        # Most peers that close first have done so by now.  Then nothing needs to be watched, and a socket
        # need not be shut down before it is closed.
        if self._written:
            if self._wire.announces_end:
                self._shut_down()
            if not self._closed:
                self._read()
            if not (self._closed or self._wire.announces_end):
                self._shut_down()
        if not self._closed:
            self._host.set_timer(self._host.now() + SECONDS, self._give_up, self._timer_key)
            self._watch()

    def _write(self) -> None:
        self._send()
        # The half-close must follow the last byte, so it waits until everything was written.
        if self._written:
            self._shut_down()
        if not self._closed:
            self._watch()

    def _send(self) -> None:
        try:
            self._written = self._wire.send(self._out)
        except OSError:
            # The peer has gone already, so there is nobody to wait for.
            self._close()

    def _shut_down(self) -> None:
        if self._peer_first:
            return
        try:
            self._wire.shut_down()
        except OSError:
            self._close()

    def _give_up(self) -> None:
        self._peer_first = False
        # TLS and WebSocket have words of their own for the end.
        self._shut_down()
        self._close()

    def _watch(self) -> None:
        self._watched = True
        self._host.poller.watch(
            self._wire.fileno(), readable=self._read, writable=None if self._written else self._write
        )

    def _read(self) -> None:
        try:
            data = self._wire.receive(READ_SIZE)
        except OSError:
            # An error is an end as well: nothing can be lost any more.
            data = b""
        if data is None:
            return
        self._discarded += len(data)
        # A peer that goes on sending without end would keep this wire for all of ``SECONDS`` at full speed.
        if not data or self._discarded > DISCARDED_BYTES:
            self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._watched:
                self._host.poller.watch(self._wire.fileno(), readable=None, writable=None)
                self._host.set_timer(None, self._give_up, self._timer_key)
            self._wire.close()
            self._out.clear()
