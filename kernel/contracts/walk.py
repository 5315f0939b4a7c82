"""Walk: the path of one message through the code, which ``kernel tour`` follows in a running system."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec


class Hop(NamedTuple):
    """One function on the path of the message."""

    file: str
    """The file's path, relative to the folder that contains the package: ``kernel/dispatcher/port.py``."""
    function: str
    """Its qualified name, without ``<locals>``."""
    what: str
    """What happens there, in a few words."""
    at_return: bool = False
    """Whether the hop is at the return of the function, not at its call."""


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """A message, and the important functions on its path."""

    hops: tuple[Hop, ...]
    """In order.  Before the message changes to another thread, the last hop is the function that hands it
    over."""
    follow: Callable[[Callable[[], None], Callable[[], None]], None]
    """``follow(begin, end)`` starts a system and sends messages until it is warm.

    Then it calls ``begin``, which returns when every thread sleeps, sends one message from the same thread,
    waits until the message has arrived, and calls ``end``."""
