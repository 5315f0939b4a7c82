"""Borrower: when an application thread asks for a lease of its connection, and from when on it uses it.

APIs share it.  A thread asks after a few waits in a row that each brought one message.  One that has to give
its lease back soon, or that is refused, asks half as often each time (docs/decisions/0046-leases.md).
"""

from __future__ import annotations

from collections.abc import Callable

from kernel.contracts.api import Lease

FIRST, LEAST_OFTEN = 8, 4096
"""Lone messages in a row after which a lease is asked for: the first time, and later at the most."""


class Borrower:
    """For one application thread."""

    __slots__ = ("_ask", "_asked", "_lone", "after")

    def __init__(self, ask: Callable[[], Lease | None]) -> None:
        self.after: int = FIRST
        """Lone messages in a row after which it asks."""
        self._ask = ask
        self._asked: Lease | None = None
        self._lone = 0

    def waited(self, *, lone: bool) -> Lease | None:
        """Take notice that a wait has ended, which brought one message or not.

        Return a lease to use from now on.
        """
        if not lone:
            self.forget()
            return None
        asked = self._asked
        if asked is not None and asked.offered:
            self._asked = None
            return asked
        self._lone += 1
        if self._lone >= self.after:
            self._lone, self.after = 0, min(2 * self.after, LEAST_OFTEN)
            self._asked = self._ask()
        return None

    def forget(self) -> None:
        """Begin to count again; what was asked for is not used."""
        self._lone, self._asked = 0, None

    def gave_back(self, lease: Lease) -> None:
        """Ask as soon as at the beginning, if the lease was worth it."""
        if lease.trips > 2 * FIRST * FIRST:
            self.after = FIRST
