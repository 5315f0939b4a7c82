"""Blocking wires: their calls wait, for a thread that has nothing else to do.

A plain socket waits in ``recv`` by itself, which costs one system call less for each message.  TLS and
WebSocket have bytes of their own, so their descriptor is polled first.

A handler of a signal may raise anywhere (docs/decisions/0050-signals.md).  What is read is in ``data`` before
one can run (``SpinningRead``), or is read while handlers are held.  So nothing that was read is lost.
"""

from __future__ import annotations

import select
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator
from itertools import repeat

from kernel.contracts.message import Buffer
from kernel.hosting.spinning import Received, SpinningPoll, SpinningRead
from kernel.hosting.uninterrupted import UNINTERRUPTED
from kernel.hosting.wire import PlainWire, Wire, drop_sent

READ_SIZE = 32 * 1024
"""Bytes asked for in one read: more would cost an mmap and a munmap for each small message."""

LONGEST = 3600.0
"""Seconds of one wait: 25 days are more milliseconds than ``poll`` can be asked for."""

# SO_RCVTIMEO takes a finite time, and 0 there means no limit at all.
_FOR_EVER = 365 * 86400.0
_SHORTEST = 0.01


class _Polled:
    """What both have: they are asked whether they can be read or written."""

    data: bytes | None
    """What was read and not taken from here; ``b""`` at the end of the stream.  Nothing else is read before
    it is None again."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.data = None
        # ``poll`` and not ``select``: it has no limit for the number of a descriptor.
        self._readable = select.poll()
        self._readable.register(wire.fileno(), select.POLLIN)
        self._writable = select.poll()
        self._writable.register(wire.fileno(), select.POLLOUT)

    def wait_writable(self) -> None:
        """Wait until something can be written, without limit: a peer that does not read makes us wait."""
        self._writable.poll()


class BlockingSocket(_Polled):
    """A plain socket."""

    def __init__(self, wire: PlainWire) -> None:
        super().__init__(wire)
        self._connected = wire.connected
        # ``read`` blocks in it.
        self._connected.setblocking(True)
        self._begun: list[Buffer] = []
        # The functions themselves, without a method around them: one call less for each message.
        self.read: Callable[[], None] = SpinningRead(self._connected.recv, READ_SIZE, self)
        """Wait for input and put it into ``data``; ``BlockingIOError`` after the time of ``limit_reads``."""
        self.poll: Callable[[float], object] = SpinningPoll(self._readable.poll)
        """Return whether there is input, true or false; wait for it, at most so many milliseconds."""
        self._reads_now: Iterator[bytes] = map(
            self._connected.recv, repeat(READ_SIZE), repeat(socket.MSG_DONTWAIT)
        )

    def read_now(self) -> None:
        """Put what there is into ``data``; ``BlockingIOError`` if there is nothing."""
        into: Received = self
        for into.data in self._reads_now:
            return

    def write(self, buffers: deque[Buffer]) -> bool:
        """Write as much as the socket takes; return whether that is everything.  Handlers are held."""
        try:
            while buffers:
                drop_sent(buffers, self._connected.send(buffers[0], socket.MSG_DONTWAIT), self._begun)
        except BlockingIOError:
            return False
        return True

    def limit_reads(self, seconds: float) -> None:
        """Let ``read`` wait no longer than this."""
        seconds = min(max(seconds, _SHORTEST), _FOR_EVER)
        # A ``struct timeval``: seconds and microseconds.
        packed = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        self._connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, packed)


class BlockingWire(_Polled):
    """Any other wire: TLS, or WebSocket."""

    # Again, for checkers of types that would infer it from ``read_now``.
    data: bytes | None

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self._milliseconds: float | None = None

    def read_now(self) -> None:
        """Put about ``READ_SIZE`` bytes into ``data``; ``BlockingIOError`` if there is nothing."""
        with UNINTERRUPTED:
            self.data = b"" if self._wire.at_end else self._wire.receive(READ_SIZE)
            if self.data is None:
                raise BlockingIOError

    def read(self) -> None:
        """Do the same, but wait once for input.

        ``BlockingIOError`` also if only a part of a TLS record or of a frame has come: the caller then looks
        at its deadlines, and calls again.
        """
        try:
            self.read_now()
        except BlockingIOError:
            # Once and not in a loop: a peer that sends pings only, or a record byte by byte, must not keep
            # the caller from its deadlines.
            self._readable.poll(self._milliseconds)
        else:
            return
        self.read_now()

    def write(self, buffers: deque[Buffer]) -> bool:
        """Write as much as the wire takes; return whether that is everything.  Handlers are held."""
        return self._wire.send(buffers)

    def poll(self, milliseconds: float) -> bool:
        """Return whether ``read_now`` may have something; wait for it, at most this long."""
        # The descriptor does not become readable for what the wire has taken from the socket already.
        if self._wire.at_end or self._wire.has_early_data:
            return True
        return bool(self._readable.poll(milliseconds))

    def limit_reads(self, seconds: float) -> None:
        """Let ``read`` wait no longer than this."""
        # The socket of a wire does not block, so SO_RCVTIMEO would have no effect on it.
        self._milliseconds = min(max(seconds, _SHORTEST), LONGEST) * 1000
