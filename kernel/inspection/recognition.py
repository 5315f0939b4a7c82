"""Which protocol a conversation speaks: as the user says, by its first bytes, or by a well-known port.

They are asked in this order.  What the user says is final.  First bytes come before ports, because anything
may be sent to a well-known port.  The port decides if nobody recognises the bytes, as in a capture that
begins in the middle of a connection.  For protocols directly over IP there is only the protocol number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from kernel.contracts.kinds import DissectorKind

RECOGNITION_BYTES = 16
"""Bytes of a sender after which its protocol must have been recognised."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the user wants to see."""

    protocols: Collection[str] = ()
    """Names of dissectors; empty: all."""
    ports: Collection[int] = ()
    """TCP or UDP ports of either side; empty: all."""
    meant: Mapping[int, str] = {}
    """The protocol of a port, by the user's word."""


class Recognition:
    """The available dissectors, and the choice among them."""

    def __init__(self, kinds: Sequence[DissectorKind], wanted: Wanted) -> None:
        self._kinds = {kind.name: kind for kind in kinds}
        self._wanted = wanted
        self._chosen = [kind for kind in kinds if not wanted.protocols or kind.name in wanted.protocols]

    def ports_wanted(self, *ports: int) -> bool:
        """Whether packets between these ports are to be shown."""
        return not self._wanted.ports or any(port in self._wanted.ports for port in ports)

    def over_ip(self, number: int) -> DissectorKind | None:
        """Return the dissector for an IP protocol number, or None."""
        for kind in self._chosen:
            if kind.carries == "datagram" and kind.ip_protocol == number:
                return kind
        return None

    def of_ports(self, carries: str, *ports: int) -> DissectorKind | None:
        """Return the dissector that the user named for one of these ports, or else the usual one."""
        for port in ports:
            if port in self._wanted.meant:
                # It exists: the command has refused names that nobody knows.
                kind = self._kinds[self._wanted.meant[port]]
                # The user's word is final: no other dissector is tried for this port.
                return kind if kind in self._chosen and kind.carries == carries else None
        for kind in self._chosen:
            if kind.carries == carries and any(port in kind.ports for port in ports):
                return kind
        return None

    def is_meant(self, *ports: int) -> bool:
        """Whether the user has named the protocol of one of these ports."""
        return any(port in self._wanted.meant for port in ports)

    def of_bytes(self, carries: str, first: bytes) -> DissectorKind | None:
        """Return the dissector that recognises these first bytes, or None."""
        for kind in self._chosen:
            if kind.carries == carries and kind.recognises(first):
                return kind
        return None

    def is_known_port(self, port: int) -> bool:
        """Whether this is a server's port."""
        # Of all dissectors, and not only of the chosen ones: this tells which side is the server, not what is
        # shown.
        return port in self._wanted.meant or any(port in kind.ports for kind in self._kinds.values())
