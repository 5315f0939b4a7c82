"""The errors of the kernel.  Each class says whose fault it is; each text names the engine, peer or file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    """A call did not finish within its timeout; nothing was sent or received."""


class WrongThread(KernelError):
    """An object that belongs to one thread was used from another."""


class UnknownName(KernelError):
    """There is no engine, route or kind of that name; the text lists the most similar names."""


class PlanError(KernelError):
    """The topology is wrong.  ``complaints`` has one line for each fault."""

    def __init__(self, complaints: list[str]) -> None:
        super().__init__("\n".join(complaints))
        self.complaints = complaints


class PluginError(KernelError):
    """A plugin could not be loaded or did not keep its contract; the text names its distribution."""


class ProtocolError(KernelError):
    """A rule of a protocol was broken; the two subclasses say by which side."""


class LocalProtocolError(ProtocolError):
    """This side tried to do what the protocol, or its present state, does not allow."""


class RemoteProtocolError(ProtocolError):
    """The peer sent what the protocol, or its present state, does not allow.

    ``batches`` has the messages of the same bytes that were complete before the fault: they count as
    received.
    """

    def __init__(self, text: str, batches: Sequence[Batch] = ()) -> None:
        # In two reads these messages would have been received and the fault raised later. Where the network
        # has cut the bytes must not make a difference.
        super().__init__(text)
        self.batches = batches


class LoginRefused(KernelError):
    """The engine that decides on logins has refused one (operation ``authenticate``)."""


class ConnectionLost(KernelError):
    """The connection is gone: closed by the peer, cut, or silent for longer than was agreed."""


def similar(name: str, known: Iterable[str]) -> str | None:
    """Return the name of ``known`` that ``name`` may be a misspelling of, for the text of an error."""
    # Imported here, since most programs never need it.
    import difflib

    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the hint for a name that is not known."""
    known = sorted(known)
    if near := similar(name, known):
        return f"did you mean {near!r}?"
    return f"known: {', '.join(known)}" if known else "there are none"
