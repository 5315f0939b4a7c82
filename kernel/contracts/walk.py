"""Walk: the path of one message through the code, which ``kernel tour`` follows in a running system."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple
from typing import Protocol as Interface

import msgspec

if TYPE_CHECKING:
    from kernel.topology.system import Kernel


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


class Application(Interface):
    """An application that receives, in a thread of its own."""

    def wait(self) -> None:
        """Wait until one more message has arrived.  ``TimedOut`` if none arrives."""
        ...


class Tour(Interface):
    """What ``kernel tour`` gives to a walk."""

    def begin(self) -> None:
        """Wait until every thread sleeps, and record calls from then on."""
        ...

    def end(self) -> None:
        """Record no more."""
        ...

    def application(self, kernel: Kernel, name: str) -> AbstractContextManager[Application]:
        """Return an application that opens the native channel ``name`` and waits in ``receive`` for messages.

        When the block ends, ``kernel`` is closed.
        """
        ...


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """A message, and the important functions on its path."""

    hops: tuple[Hop, ...]
    """In order.  Before the message changes to another thread, the last hop is the function that hands it
    over."""
    # From the same thread, because ``begin`` has only the calls of its own thread and of threads that were
    # started for the walk recorded.
    follow: Callable[[Tour], None]
    """Starts a system and sends messages until it is warm: connections are made, and caches are filled.

    Then it calls ``tour.begin``, sends one message from the same thread, waits until the message has arrived,
    and calls ``tour.end``."""
