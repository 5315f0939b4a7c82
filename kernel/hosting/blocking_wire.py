"""Blocking wire: makes a wire's calls wait, for a thread that has nothing else to do.

For wires with bytes of their own, TLS and WebSocket.  A plain socket waits by itself, which costs one system
call less for each message.
"""

from __future__ import annotations

import select
from collections import deque

from kernel.contracts.message import Buffer
from kernel.hosting.wire import Wire


class BlockingWire:
    """Has the calls that ``BlockingHost`` makes on a plain socket and its poll object, for any wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        # ``poll`` and not ``select``: it has no limit for the number of a descriptor.
        self._readable = select.poll()
        self._readable.register(wire.fileno(), select.POLLIN)
        self._writable = select.poll()
        self._writable.register(wire.fileno(), select.POLLOUT)
        self.milliseconds: float | None = None
        """How long ``recv`` waits for input; None: without limit."""

    def recv_now(self, most: int) -> bytes:
        """Return about ``most`` bytes, ``b""`` at the end; ``BlockingIOError`` if there is nothing now."""
        data = b"" if self._wire.at_end else self._wire.receive(most)
        if data is None:
            raise BlockingIOError
        return data

    def recv(self, most: int) -> bytes:
        """Do the same, but wait once for input.

        ``BlockingIOError`` also if only a part of a TLS record or of a frame has come: the caller then looks
        at its deadlines, and calls again.
        """
        try:
            return self.recv_now(most)
        except BlockingIOError:
            # Once and not in a loop: a peer that sends pings only, or a record byte by byte, must not keep
            # the caller from its deadlines.
            self._readable.poll(self.milliseconds)
        return self.recv_now(most)

    def sendall(self, data: Buffer) -> None:
        """Write everything."""
        buffers: deque[Buffer] = deque((data,))
        while not self._wire.send(buffers):
            # Without limit, as ``sendall`` of a blocking socket: a peer that does not read makes the sender
            # wait.
            self._writable.poll()

    def poll(self, milliseconds: float) -> bool:
        """Return whether ``recv_now`` may have something; wait for it, at most this long."""
        # The descriptor does not become readable for what the wire has taken from the socket already.
        if self._wire.at_end or self._wire.has_early_data:
            return True
        return bool(self._readable.poll(milliseconds))
