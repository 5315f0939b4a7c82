"""Waiting: how a program waits for a socket by a descriptor: in ``poll``, or in a loop of its own.

The lease that its thread may have goes on meanwhile: the descriptor says, too, when something comes to the
socket that was lent, and a look receives with the lease (docs/decisions/0046-leases.md).
"""

from __future__ import annotations

import select
from contextlib import suppress
from typing import Protocol

from kernel.hosting.leased_socket import LeasedSocket
from kernel.hosting.uninterrupted import UNINTERRUPTED
from plugins.apis.sockets.end import End


class Looks(Protocol):
    """The socket that is waited for."""

    def readable_leased(self) -> bool | None:
        """Whether a message can be received with the lease; None: look in the usual way."""
        ...

    def readable(self) -> bool:
        """Whether a message can be received."""
        ...


class Waiting:
    """For one socket."""

    def __init__(self, end: End, socket: Looks) -> None:
        self._end = end
        self._socket = socket
        self._leased: LeasedSocket | None = None
        """What is waited for, if it may use leases; None: the bell alone."""
        self._expects = False
        """Whether there was nothing to receive at the last look."""

    def prepare(self) -> None:
        """Have leases go on from now on, where they may be used.  ``fileno`` may be another one."""
        if self._leased is None and self._end.borrows and hasattr(select, "epoll"):
            # Without one, if there are too many descriptors.
            with suppress(OSError):
                self._leased = LeasedSocket(self._end.caller.fileno())

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        leased = self._leased
        return self._end.caller.fileno() if leased is None else leased.descriptor

    def readable(self) -> bool:
        """Whether a message can be received at once."""
        with UNINTERRUPTED:
            readable = self.look_leased()
            if readable is None:
                readable = self._socket.readable()
                self.looked(readable)
            return readable

    def look_leased(self) -> bool | None:
        """Return whether something can be received with the lease, and arm; None: look in the usual way."""
        leased = self._leased
        if leased is None:
            return None
        # Before the look: what comes behind it makes the descriptor readable again.
        leased.take_notice()
        readable = self._socket.readable_leased()
        return readable if readable is not None and self.arm() else None

    def looked(self, readable: bool) -> None:
        """Take notice of a look in the usual way.

        A program that waits before each message, sends one, and so on, gets a lease.
        """
        if readable and self._expects:
            self._end.waited()
        self._expects = not readable

    def arm(self) -> bool:
        """Prepare to wait for ``fileno``; False if there may be something already."""
        end, leased = self._end, self._leased
        if leased is None:
            return end.arm()
        lease = end.leased
        if lease is not None and lease.active:
            leased.watch(lease)
        return end.arm_to_receive()

    def close(self) -> None:
        """The socket is closed, perhaps by another thread: close the descriptor, if it is not the bell's."""
        leased, self._leased = self._leased, None
        if leased is not None:
            leased.close()
