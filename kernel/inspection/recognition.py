"""Which protocol is this?  Told by the user, seen in the first bytes, or guessed from a well-known port."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from kernel.contracts.kinds import DissectorKind

ENOUGH = 16
"""Bytes after which a sender has said what it speaks."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the user wants to see."""

    protocols: Collection[str] = ()
    """Names of dissectors; none: all."""
    ports: Collection[int] = ()
    """Of either side, TCP's or UDP's; none: all."""
    meant: Mapping[int, str] = {}
    """What is spoken on a port, whatever it looks like."""


class Recognition:
    """The dissectors that there are, and how to choose one."""

    def __init__(self, kinds: Sequence[DissectorKind], wanted: Wanted) -> None:
        self._kinds = {kind.name: kind for kind in kinds}
        self._wanted = wanted
        self._chosen = [kind for kind in kinds if not wanted.protocols or kind.name in wanted.protocols]

    def ports_wanted(self, *ports: int) -> bool:
        """Whether packets between these ports are to be shown."""
        return not self._wanted.ports or any(port in self._wanted.ports for port in ports)

    def over_ip(self, number: int) -> DissectorKind | None:
        """Return what is carried by IP under that number."""
        for kind in self._chosen:
            if kind.carries == "datagram" and kind.ip_protocol == number:
                return kind
        return None

    def of_ports(self, carries: str, *ports: int) -> DissectorKind | None:
        """Return what the user says is spoken there, or else what is usual there."""
        for port in ports:
            if port in self._wanted.meant:
                kind = self._kinds[self._wanted.meant[port]]
                return kind if kind in self._chosen and kind.carries == carries else None
        for kind in self._chosen:
            if kind.carries == carries and any(port in kind.ports for port in ports):
                return kind
        return None

    def is_meant(self, *ports: int) -> bool:
        """Whether the user has said what is spoken there."""
        return any(port in self._wanted.meant for port in ports)

    def of_bytes(self, carries: str, first: bytes) -> DissectorKind | None:
        """Return what begins like this."""
        for kind in self._chosen:
            if kind.carries == carries and kind.recognises(first):
                return kind
        return None

    def is_known_port(self, port: int) -> bool:
        """Whether servers listen there."""
        return port in self._wanted.meant or any(port in kind.ports for kind in self._kinds.values())
