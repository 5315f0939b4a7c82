"""The errors of sockets.  Each has the ``errno`` that libzmq has for it."""

from __future__ import annotations

import errno

from kernel.contracts.errors import KernelClosed, KernelError, TimedOut, WouldBlock

EFSM, ETERM = 156_384_763, 156_384_765
"""Numbers that only ØMQ has."""


class SocketError(KernelError):
    """A call of a socket cannot be done."""

    errno: int = errno.EINVAL


class WrongState(SocketError):
    """It is not the turn of this call: a REQ sends and then receives, a REP receives and then sends."""

    errno: int = EFSM


class Unreachable(SocketError):
    """There is no peer with this identity (ROUTER with ``router_mandatory``)."""

    errno: int = errno.EHOSTUNREACH


class NotSupported(SocketError):
    """This type of socket has no such call."""

    errno: int = errno.ENOTSUP


class OptionError(SocketError):
    """An option cannot be set to this value, for this type of socket, or any more."""


class PlaceError(SocketError):
    """A place cannot be bound to, connected to or removed.

    ``errno`` is that of the system, if it has refused.
    """

    errno: int = errno.EADDRINUSE

    def __init__(self, text: str, number: int | None = None) -> None:
        super().__init__(text)
        if number is not None:
            self.errno = number


class EngineOptionError(PlaceError, OptionError):
    """The first place cannot be there, since the option ``engine`` has what the engine does not take."""

    errno: int = errno.EINVAL


class SocketClosed(SocketError):
    """The socket was closed."""

    errno: int = errno.ENOTSOCK


class ContextClosed(KernelClosed):
    """The context was closed, while or before this call was made."""

    errno: int = ETERM


class Again(WouldBlock):
    """The call would have to wait, and was told not to."""

    errno: int = errno.EAGAIN


class AgainLater(Again, TimedOut):
    """The call has waited for its timeout."""
