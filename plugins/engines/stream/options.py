"""Options of the stream engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from kernel.contracts.options import ListeningPlace
from kernel.hosting.address import Address, parse_address
from kernel.hosting.backoff import BackoffOptions
from kernel.hosting.tls_options import TlsOptions
from kernel.hosting.web_options import WebOptions

if TYPE_CHECKING:
    from kernel.hosting.handshakes import Handshakes

Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
# setsockopt(2) takes an int of C.
BufferSize = Annotated[int, msgspec.Meta(ge=0, le=0x7FFF_FFFF)]


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Any stream protocol over tcp, unix, tls or WebSocket, dialling or listening."""

    address: str
    """``protocol+transport://place``: ``backend+tcp://127.0.0.1:5555``, ``backend+unix:///run/feed.sock`` ...
    With a transport of another kind, as in ``backend+sctp://127.0.0.1:5000``, the engine is of that kind,
    with its options."""
    mode: Literal["dial", "listen"] = "dial"
    """``dial``: the engine connects to the address; ``listen``: it accepts connections there."""
    protocol: dict[str, Any] = {}
    """Options of the protocol that the address names."""
    tls: TlsOptions = TlsOptions()
    """For ``tls`` and ``wss`` addresses."""
    web: WebOptions = WebOptions()
    """For ``ws`` and ``wss`` addresses."""
    reconnect: BackoffOptions = BackoffOptions()
    """The waits of a dialler between its attempts."""
    connect_timeout: Seconds = 10.0
    """Seconds that one attempt to connect, or a handshake of TLS or WebSocket, may take."""
    max_connections: Count = 10_000
    """Connections of a listener at a time.  Further ones are closed at once, and counted."""
    send_buffer: BufferSize = 0
    """SO_SNDBUF in bytes; 0: the system decides, and may let it grow."""
    receive_buffer: BufferSize = 0
    """SO_RCVBUF in bytes; 0: the system decides, and may let it grow."""
    forward_subscriptions: bool = True
    """Whether subscriptions of readers here are passed on to the peer, if its protocol has subscriptions.
    With false, only the patterns in the protocol's own options are subscribed to."""
    authenticator: str = ""
    """For a listener: the engine that decides on the logins of peers, for protocols that have logins.  Its
    ``operate("authenticate", login)`` is called with ``mechanism``, ``user``, ``secret`` (bytes), ``peer``
    and ``facts``.  The login is accepted unless it raises ``KernelError``.  Empty: every login is refused."""
    stamp_reply_to: bool = False
    """For a listener: whether every message is marked with the connection from which it came
    (``envelope.reply_to``).  A route with ``router = "reply"`` then takes the answer back."""

    def handshakes(self, address: Address, *, server_side: bool) -> Handshakes:
        """Return the handshakes (TLS, WebSocket) that follow a connection on the address."""
        from kernel.hosting.handshakes import Handshakes

        return Handshakes(
            address, server_side=server_side, tls=self.tls, seconds=self.connect_timeout, web=self.web
        )

    def listens_at(self) -> Iterator[tuple[str, ListeningPlace]]:
        """``Listens``: a listener's address."""
        if self.mode == "listen":
            yield "address", parse_address(self.address).listening_place()

    def dials_to(self) -> Iterator[tuple[str, str]]:
        """``Dials``: a dialler's address."""
        if self.mode == "dial":
            yield "address", self.address

    def __post_init__(self) -> None:
        try:
            address = parse_address(self.address)
        except ValueError as error:
            raise ValueError(f"address: {error}") from None
        if self.mode == "listen":
            self.tls.check_listener(address.transport)
