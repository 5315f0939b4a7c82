"""Lazy timer: a timer for a deadline that mostly moves to later times, which costs nothing."""

from __future__ import annotations

from collections.abc import Callable

from kernel.contracts.engine import Host


class LazyTimer:
    """Calls ``callback`` at the deadline or before it.

    The callback has to check the time, and to arm the timer again.
    """

    __slots__ = ("_armed", "_callback", "_host")

    def __init__(self, host: Host, callback: Callable[[], None]) -> None:
        self._host = host
        self._callback = callback
        self._armed: float | None = None

    def arm(self, deadline: float | None) -> None:
        """Have the callback called at ``deadline`` at the latest; None does nothing."""
        # A later deadline leaves the timer as it is: it fires early, and the callback arms it again.  A
        # heartbeat that is put off by each byte read would otherwise cost a timer operation for each read.
        if deadline is not None and (self._armed is None or deadline < self._armed):
            self._armed = deadline
            self._host.set_timer(deadline, self._on_time, self)

    def cancel(self) -> None:
        """Do not call, until the timer is armed again."""
        if self._armed is not None:
            self._armed = None
            self._host.set_timer(None, self._on_time, self)

    def end(self) -> None:
        """Do not call any more, and forget the callback.

        The host keeps a cancelled timer until its time has come; what it would have called must not stay in
        memory as long.
        """
        self.cancel()
        self._callback = _nothing

    def _on_time(self) -> None:
        self._armed = None
        # After ``_armed`` is None, since the callback usually arms the timer again.
        self._callback()


def _nothing() -> None:
    """The callback of a timer that has ended."""
