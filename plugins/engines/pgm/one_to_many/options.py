"""Options of an engine that switches between TCP and multicast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from kernel.contracts.options import ListeningPlace
from kernel.hosting.address import Address, parse_address
from kernel.hosting.backoff import BackoffOptions
from plugins.engines.pgm.location import Location, parse_pgm_address
from plugins.engines.pgm.options import GroupOptions
from plugins.protocols.switchover.options import SwitchoverOptions

SCHEME = "switchover"


class OneToManyOptions(GroupOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One sender and its receivers: over TCP while they are few, by multicast when they are more."""

    mode: Literal["send", "receive"]
    """``send`` listens at ``address`` for receivers, and is a target of routes; ``receive`` connects there.
    """
    address: str
    """``switchover+tcp://127.0.0.1:5556``: where the sender listens."""
    group: str = ""
    """The sender's group: ``epgm://eth0;239.192.1.1:5555`` over UDP, ``pgm://`` over IP. Receivers are told.
    """
    interface: str = ""
    """The interface on which a receiver joins the group: a name, an address or a network.

    Empty: that of its TCP connection.
    """
    switchover: SwitchoverOptions = SwitchoverOptions()
    """When a sender changes from TCP to multicast and back."""
    max_receivers: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    """Connections that a sender has at the same time; more are closed and counted."""
    reconnect: BackoffOptions = BackoffOptions()
    """The times between a receiver's attempts."""
    connect_timeout: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    """Seconds that one attempt to connect may take."""
    silence: Annotated[float, msgspec.Meta(ge=1)] = 15.0
    """Seconds after which an unreachable peer is given up."""
    reorder_bytes: Annotated[int, msgspec.Meta(ge=1 << 20)] = 128 * 1024 * 1024
    """Bytes that a receiver stores while an earlier unit is missing: more than a sender's ``window_bytes``.
    """

    def listens_at(self) -> Iterator[tuple[str, ListeningPlace]]:
        """``Listens``: where a sender takes connections."""
        if self.mode == "send":
            yield "address", parse_tcp(self.address).listening_place()

    def __post_init__(self) -> None:
        try:
            parse_tcp(self.address)
        except ValueError as error:
            raise ValueError(f"address: {error}") from None
        if self.mode == "receive":
            return
        try:
            parse_group(self.group)
        except ValueError as error:
            raise ValueError(f"group: {error}") from None


def parse_tcp(text: str) -> Address:
    """Parse the sender's TCP address. Raises ``ValueError`` with the reason."""
    address = parse_address(text, ("tcp",))
    if address.protocol != SCHEME:
        raise ValueError(f"{text!r}: expected {SCHEME}+tcp://host:port")
    return address


def parse_group(text: str, interface: str = "") -> tuple[str, Location]:
    """Parse ``epgm://[interface;]group:port`` into transport and location.

    ``interface`` is the default.
    """
    transport, separator, location = text.partition("://")
    if not separator:
        raise ValueError(f"{text!r} is no group: expected epgm://interface;group:port")
    if ";" not in location:
        location = f"{interface};{location}"
    address, found = parse_pgm_address(f"backend+{transport}://{location}")
    return address.transport, found
