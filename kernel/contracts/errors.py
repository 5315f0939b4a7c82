"""What can go wrong, named after whose fault it is.  Every text names the engine, peer or file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel.contracts.message import Batch


class KernelError(Exception):
    """The base of all errors of the kernel and its plugins."""


class KernelClosed(KernelError):
    """The kernel was closed while, or before, this call was made."""


class WouldBlock(KernelError):
    """A ``*_nowait`` call found nothing to receive, or no room to send."""


class TimedOut(WouldBlock):
    """A call with a time-out did not finish in time; nothing was sent or taken."""


class WrongThread(KernelError):
    """An object that belongs to one thread was used from another."""


class UnknownName(KernelError):
    """There is no engine, route or kind of that name; the text lists the nearest that exist."""


class PlanError(KernelError):
    """The topology cannot be built.  ``complaints`` has all that is wrong with it, a line each."""

    def __init__(self, complaints: list[str]) -> None:
        super().__init__("\n".join(complaints))
        self.complaints = complaints


class PluginError(KernelError):
    """A plugin could not be loaded or did not keep its contract; the text names its distribution."""


class ProtocolError(KernelError):
    """A conversation was broken; the two subclasses say by whom."""


class LocalProtocolError(ProtocolError):
    """This side tried to do what the protocol, or its present state, does not allow."""


class RemoteProtocolError(ProtocolError):
    """The peer sent what the protocol, or its present state, does not allow.

    ``batches`` has the messages of the same bytes that were complete before the fault: they count as received.
    """

    def __init__(self, text: str, batches: Sequence[Batch] = ()) -> None:
        super().__init__(text)
        self.batches = batches


class ConnectionLost(KernelError):
    """The wire went away: closed by the peer, cut, or silent for longer than was agreed."""
