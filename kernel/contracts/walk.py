"""Walk: one message's way through the code, as ``kernel tour`` follows it in a running system."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec


class Hop(NamedTuple):
    """One function that sees the message."""

    file: str
    """From the folder in which the package lies: ``kernel/dispatcher/port.py``."""
    function: str
    """Its qualified name, without ``<locals>``."""
    what: str
    """What happens there, in a few words."""
    at_return: bool = False
    """It is passed when the function returns; otherwise when it is called."""


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """A message, where it goes, and the functions on its way that are worth a look."""

    hops: tuple[Hop, ...]
    """In order.  The last one before the message goes to another thread is the function that hands it over."""
    follow: Callable[[Callable[[], None], Callable[[], None]], None]
    """``follow(begin, end)`` starts what is needed and sends messages until the system is warm.  Then it calls ``begin``, which
    returns when every thread sleeps, sends one message from the same thread, waits until it has arrived, and calls ``end``."""
