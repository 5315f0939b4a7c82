"""Leased socket: what an event loop watches while one of its tasks has a lease.

One whose loop is not ours, and may watch one descriptor alone, has its bell in it as well.

An epoll of its own stands between the loop and the socket.  A socket that its own thread has closed leaves
the epoll by itself; the loop would still have its number, which may be that of another file by then.
"""

from __future__ import annotations

import select
from contextlib import suppress

from kernel.contracts.api import Lease
from kernel.hosting.forking import call_in_children


class LeasedSocket:
    """The socket of the lease that a task uses at present.

    ``descriptor`` is readable when something has come to it; call ``take_notice`` then.
    """

    def __init__(self, bell: int | None = None) -> None:
        """``bell``: a descriptor that is to be watched as well, as long as it is readable."""
        # Where there is no epoll there are no leases.
        self._epoll = select.epoll()
        if bell is not None:
            self._epoll.register(bell, select.EPOLLIN)
        self.descriptor: int = self._epoll.fileno()
        self._lease: Lease | None = None
        self._forked = False
        """Whether this process is a child that was forked: the epoll is that of its parent."""
        call_in_children(self, LeasedSocket.forked)

    def watch(self, lease: Lease | None) -> None:
        """Watch the socket of this lease and no other; None: watch none."""
        if lease is self._lease or self._forked:
            return
        if self._lease is not None:
            # It may be gone, and its number may be that of a file that is not here.
            with suppress(OSError, ValueError):
                self._epoll.unregister(self._lease.descriptor)
        self._lease = lease
        if lease is not None:
            # The connection may have ended meanwhile, and this may be closed: the bell tells of that.
            with suppress(OSError, ValueError):
                # Edge-triggered: the loop must not run in circles while no task reads.
                self._epoll.register(lease.descriptor, select.EPOLLIN | select.EPOLLET)

    def take_notice(self) -> None:
        """Have ``descriptor`` readable again only when more has come."""
        if self._forked:
            return
        try:
            self._epoll.poll(0)
        except ValueError:
            # Closed by another thread, which closes the kernel.
            return
        # The thread of the connection reads it again.
        if self._lease is not None and not self._lease.active:
            self.watch(None)

    def forked(self) -> None:
        """This process is a child that was forked: take nothing out of the epoll of its parent."""
        self._forked = True

    def close(self) -> None:
        """Close the descriptor."""
        self._epoll.close()
