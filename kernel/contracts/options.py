"""What an options class may say of itself, so that mistakes are found before anything runs.

Both interfaces are optional for an options class, also for one that is a field of another.  The methods are
called with checked options, by ``kernel check`` and when a plan is read.  They must not wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol as Interface
from typing import runtime_checkable

import msgspec


class ListeningPlace(msgspec.Struct, frozen=True):
    """A place at which only one engine can listen."""

    network: str
    """``tcp``, ``udp``, ``unix``, or another name; places of different networks have nothing in common."""
    name: str
    """The host, empty for every interface; of a network without ports, the whole place."""
    port: int = 0
    """The port; 0: the system chooses one, or the network has none."""
    path: str = ""
    """What tells apart the clients of several listeners of one engine that share the port, as the path of a
    WebSocket does; empty: the port cannot be shared."""

    def shares_with(self, other: ListeningPlace) -> bool:
        """Return whether two listeners of one engine can share a port, because their paths differ."""
        at, other_at = (self.network, self.name, self.port), (other.network, other.name, other.port)
        return at == other_at and self.path != other.path and bool(self.path and other.path)

    def overlaps(self, other: ListeningPlace) -> bool:
        """Return whether two engines cannot both listen there, as far as the texts tell."""
        if self.network != other.network or self.port != other.port:
            return False
        if self.network in _WITH_PORTS:
            # The system gives each of them another port.
            if not self.port:
                return False
            # One that listens on every interface leaves the port to nobody.  The wildcard of one family
            # leaves it to the other.
            for one, two in ((self.name, other.name), (other.name, self.name)):
                if not one or (one == "0.0.0.0" and ":" not in two) or (one == "::" and ":" in two):
                    return True
        # Names are not looked up: a check must not wait for the network.
        return self.name == other.name

    def __str__(self) -> str:
        if self.network not in _WITH_PORTS:
            return self.name
        host = f"[{self.name}]" if ":" in self.name else self.name
        return f"{self.network} {host}:{self.port}"


_WITH_PORTS = ("tcp", "udp")


# Found by ``isinstance``, by their methods: options classes are structs of plugins, which derive from nothing
# else.
@runtime_checkable
class Listens(Interface):
    """Optional for an options class: an engine with these options listens somewhere."""

    def listens_at(self) -> Iterable[tuple[str, ListeningPlace]]:
        """Return the option that names a place, and the place, for each place."""
        ...


@runtime_checkable
class NeedsFiles(Interface):
    """Optional for an options class: an engine with these options reads files when it starts."""

    def unreadable(self) -> Iterable[tuple[str, str]]:
        """Return the option and the complaint for each file that cannot be used.

        The complaint names the file.  One of a folder that another engine of the file writes is dropped.

        Called by ``kernel check`` only: the file may exist on the machine that runs the topology.
        """
        ...


@runtime_checkable
class Dials(Interface):
    """Optional for an options class: an engine with these options connects to somewhere.

    ``kernel dry-run`` connects there, with the fields ``tls``
    (``kernel.hosting.tls_options``) of the same class.
    """

    def dials_to(self) -> Iterable[tuple[str, str]]:
        """Return the option and the address, ``protocol+transport://place``, for each place."""
        ...


@runtime_checkable
class WritesFolders(Interface):
    """Optional for an options class: an engine with these options writes to the disk."""

    def folders(self) -> Iterable[tuple[str, str]]:
        """Return the option and the path for each folder.  The engine makes one that does not exist."""
        ...
