"""Options of the stream engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from kernel.hosting.address import Address, parse_address
from kernel.hosting.backoff import BackoffOptions
from kernel.hosting.tls_options import TlsOptions
from kernel.hosting.web_options import WebOptions

if TYPE_CHECKING:
    from kernel.hosting.handshakes import Handshakes

Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Any stream protocol over tcp, unix, tls or WebSocket, dialling or listening."""

    address: str
    """``protocol+transport://place``: ``backend+tcp://127.0.0.1:5555``, ``backend+unix:///run/feed.sock`` ...
    With a transport of another kind, as in ``backend+sctp://127.0.0.1:5000``, the engine is of that kind,
    with its options."""
    mode: Literal["dial", "listen"] = "dial"
    protocol: dict[str, Any] = {}
    """Options of the protocol that the address names."""
    tls: TlsOptions = TlsOptions()
    """For ``tls`` and ``wss`` addresses."""
    web: WebOptions = WebOptions()
    """For ``ws`` and ``wss`` addresses."""
    reconnect: BackoffOptions = BackoffOptions()
    """How a dialler spaces its attempts."""
    connect_timeout: Seconds = 10.0
    """Seconds that one attempt to connect, or a handshake of TLS or WebSocket, may take."""
    max_connections: Count = 10_000
    """Connections of a listener at a time.  Further ones are closed at once, and counted."""
    send_buffer: Annotated[int, msgspec.Meta(ge=0)] = 0
    """SO_SNDBUF in bytes; 0: as the system has it (it then grows by itself)."""
    receive_buffer: Annotated[int, msgspec.Meta(ge=0)] = 0
    """SO_RCVBUF in bytes; 0: as the system has it."""
    forward_subscriptions: bool = True
    """Whether what readers here subscribe to is subscribed to at the peer, where its protocol can; with false
    only what the protocol's own options name."""
    authenticator: str = ""
    """A listener's: the engine that decides on the logins of peers, for protocols that have logins.  It is
    asked to ``operate("authenticate", login)`` with ``mechanism``, ``user``, ``secret`` (bytes), ``peer`` and
    ``facts``, and lets a peer in unless it raises ``KernelError``.  Empty: every login is refused."""
    stamp_reply_to: bool = False
    """A listener marks every message with the connection that it came from (``envelope.reply_to``), so that a
    route with ``router = "reply"`` can take the answer back."""

    def handshakes(self, address: Address, *, server_side: bool) -> Handshakes:
        """Return what follows a connection on the address."""
        from kernel.hosting.handshakes import Handshakes

        return Handshakes(
            address, server_side=server_side, tls=self.tls, seconds=self.connect_timeout, web=self.web
        )

    def __post_init__(self) -> None:
        try:
            parse_address(self.address)
        except ValueError as error:
            raise ValueError(f"address: {error}") from None
