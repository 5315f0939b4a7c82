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

    def _readable_leased(self) -> bool | None:
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
        """What is waited for; None: the bell alone, since there was no lease yet."""
        self._expects = False
        """Whether there was nothing to receive at the last look."""
        self._only_bell = False
        """Whether somebody keeps the descriptor of the bell."""

    def fix(self) -> None:
        """Have ``fileno`` stay the same from now on: somebody keeps it."""
        if self._end.borrows and hasattr(select, "epoll"):
            self._only_bell = self._add() is None

    def _add(self) -> LeasedSocket | None:
        """Return what is waited for when there is a lease; None: there were too many descriptors already."""
        if self._leased is None and not self._only_bell:
            with suppress(OSError):
                self._leased = LeasedSocket(self._end.caller.fileno())
        return self._leased

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
        if leased is None and self._end.leased is not None:
            leased = self._add()
        if leased is None:
            return None
        # Before the look: what comes behind it makes the descriptor readable again.
        leased.take_notice()
        readable = self._socket._readable_leased()
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
        end = self._end
        lease = end.leased
        if lease is not None and lease.active:
            leased = self._add()
            if leased is None:
                return end.arm()
            leased.watch(lease)
        return end.arm_to_receive()

    def close(self) -> None:
        """The socket is closed, perhaps by another thread: close the descriptor, if it is not the bell's."""
        leased, self._leased = self._leased, None
        if leased is not None:
            leased.close()
