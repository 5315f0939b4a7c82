"""Options of the web engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from kernel.contracts.options import ListeningPlace
from kernel.hosting.address import SOCKET_TRANSPORTS, Address, parse_address
from kernel.hosting.tls_options import TlsOptions

Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class WebEngineOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Pages for operators and their tools, over HTTP.

    ``/`` is a page for browsers, ``/metrics`` for Prometheus, ``/health/ready``, and RabbitMQ's management
    API under ``/api/``.
    """

    address: str = "127.0.0.1:15672"
    """Where to listen: ``host:port`` (port 0 takes a free one), ``http+tls://host:port``,
    ``http+unix:///path``.  Without ``broker`` it has to be on this machine."""
    broker: str = ""
    """The engine of a broker whose users may log in (HTTP Basic).  For the metrics they
    need the tag ``monitoring`` or ``administrator``.  Empty: there is no login, and the address has to be one
    of this machine alone."""
    tls: TlsOptions = TlsOptions()
    """For ``http+tls`` addresses."""
    max_connections: Count = 100
    """Connections at a time.  Further ones are closed at once, and counted."""
    max_header_bytes: Annotated[int, msgspec.Meta(ge=1024)] = 16_384
    """Bytes of the first line and the headers of a request.  A longer one is refused with 431."""
    max_body_bytes: Annotated[int, msgspec.Meta(ge=0)] = 1_048_576
    """Bytes of a request's body: definitions, or a message.  A longer one is refused with 413."""
    handshake_seconds: Seconds = 10.0
    """Seconds that a TLS handshake may take."""
    request_seconds: Seconds = 10.0
    """Seconds that a client may take to send a request.  A slower one is refused with 408."""
    idle_seconds: Seconds = 120.0
    """Seconds that a connection may stay open between two requests."""
    send_seconds: Seconds = 30.0
    """Seconds that a client may take to read an answer.  Then the connection is closed."""

    def __post_init__(self) -> None:
        try:
            address = self.parsed()
        except ValueError as error:
            raise ValueError(f"address: {error}") from None
        self.tls.check_listener(address.transport)
        if not self.broker and not _is_local(address):
            raise ValueError(
                f"address: {self.address!r} can be reached from other machines, so pages need a login: name the "
                'engine of a broker whose users may read them (broker = "NAME"), or listen on 127.0.0.1'
            )

    def parsed(self) -> Address:
        """Return the address."""
        return parse_address(self.address, SOCKET_TRANSPORTS, "http")

    def listens_at(self) -> Iterator[tuple[str, ListeningPlace]]:
        """``Listens``: its address."""
        yield "address", self.parsed().listening_place()


def _is_local(address: Address) -> bool:
    if address.transport == "unix":
        return True
    from kernel.hosting.loopback import names_loopback

    return names_loopback(address.host)
