"""Addresses: ``protocol+transport://place``, as in ``backend+tcp://127.0.0.1:5555``."""

from __future__ import annotations

import msgspec

from kernel.contracts.options import ListeningPlace

SOCKET_TRANSPORTS = ("tcp", "tls", "unix")
WEB_TRANSPORTS = ("ws", "wss")
WIRE_TRANSPORTS = (*SOCKET_TRANSPORTS, *WEB_TRANSPORTS)
"""Those for which ``Handshakes`` makes a wire of a connected socket."""
STREAM_TRANSPORTS = (*WIRE_TRANSPORTS, "inproc")


class Address(msgspec.Struct, frozen=True):
    """Where a conversation takes place, and in what language."""

    protocol: str
    transport: str
    place: str

    @property
    def host(self) -> str:
        """The host of a ``host:port`` place; empty for every interface."""
        host = self.authority.rpartition(":")[0]
        # The brackets of an IPv6 address (RFC 3986, section 3.2.2) are not part of the host.
        return host[1:-1] if host.startswith("[") else host

    @property
    def port(self) -> int:
        """The port of a ``host:port`` place."""
        # From the right: an IPv6 address has colons of its own.
        return int(self.authority.rpartition(":")[2])

    def listening_place(self) -> ListeningPlace:
        """Return the place at which an engine listens that has this address."""
        if self.transport in ("tcp", "tls", *WEB_TRANSPORTS):
            return ListeningPlace("tcp", self.host, self.port)
        return ListeningPlace(self.transport, self.place)

    @property
    def authority(self) -> str:
        """The place without the path of a WebSocket: ``host:port``."""
        return self.place.partition("/")[0] if self.transport in WEB_TRANSPORTS else self.place

    @property
    def path(self) -> str:
        """The path of a WebSocket, ``/`` if none is named."""
        return "/" + self.place.partition("/")[2]

    def __str__(self) -> str:
        return f"{self.protocol}+{self.transport}://{self.place}"


def parse_address(
    text: str, transports: tuple[str, ...] = STREAM_TRANSPORTS, only: str | None = None
) -> Address:
    """Read an address; ``ValueError`` says what is wrong with it and how it should look.

    ``only``: the one protocol that is possible here.  Then ``host:port`` alone is an address, with the first
    of the transports.
    """
    if only is not None and "://" not in text:
        text = f"{only}+{transports[0]}://{text}"
    scheme, separator, place = text.partition("://")
    protocol, plus, transport = scheme.partition("+")
    if not separator or not plus or not protocol or not place:
        raise ValueError(
            f"{text!r} is no address: it takes protocol+transport://place, as in backend+tcp://127.0.0.1:5555"
        )
    if only not in (None, protocol):
        known = ", ".join(f"{only}+{each}" for each in transports)
        raise ValueError(f"{text!r}: an address here begins with one of {known}")
    if transport not in transports:
        raise ValueError(f"{text!r}: there is no transport {transport!r} here, only {', '.join(transports)}")
    address = Address(protocol, transport, place)
    if transport in ("tcp", "tls", *WEB_TRANSPORTS):
        host, colon, port = address.authority.rpartition(":")
        # ``isdigit`` alone is also true of digits of other scripts, which ``int`` would take.
        if not colon or not (port.isascii() and port.isdigit()):
            raise ValueError(f"{text!r}: {place!r} is no host:port")
        if int(port) > 65535:
            raise ValueError(f"{text!r}: the port {port} is not between 0 and 65535")
        if ":" in host and not (host.startswith("[") and host.endswith("]")):
            raise ValueError(f"{text!r}: an IPv6 host stands in brackets, as in [::1]:{port}")
        if not host.startswith("[") and not _may_be_a_name(host):
            raise ValueError(f"{text!r}: {host!r} is no name of a host")
    return address


def _may_be_a_name(host: str) -> bool:
    """Whether Python would ask for the addresses of a host, and not raise ``UnicodeError``; empty is one."""
    if host.isascii():
        # RFC 1035, section 2.3.4.  A name may end with a dot.
        return not host or all(0 < len(label) < 64 for label in host.removesuffix(".").split("."))
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True
