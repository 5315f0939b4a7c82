"""Listening: accepts the clients of a stream protocol, with TLS and WebSocket, and limits their number."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel.hosting.acceptor import Acceptor
from kernel.hosting.handshakes import Handshakes
from kernel.hosting.loopback import is_on_this_machine
from kernel.hosting.wire import Wire
from plugins.engines.broker.front_end import Client
from plugins.engines.broker.host.options import ListenerOptions, listener_address
from plugins.engines.broker.host.origin import certified_name
from plugins.engines.broker.host.rates import Bucket

if TYPE_CHECKING:
    from plugins.engines.broker.host.engine import BrokerEngine


class Accepted(NamedTuple):
    """A connection that has come, after the handshakes of TLS and WebSocket if its address wants them."""

    wire: Wire
    peer: str
    """Where it comes from, as an operator sees it."""
    loopback: bool
    """Whether that is this machine."""
    certified: str | None
    """The name in the client's certificate, if TLS has verified one."""


class StreamFrontEnd:
    """A front end over TCP, TLS, a Unix socket or WebSocket: a listener that makes a client of each connection.

    ``begin`` returns a client that reads and writes by itself from then on; it is called in the broker's
    thread.
    """

    def __init__(
        self,
        engine: BrokerEngine,
        options: ListenerOptions,
        protocol: str,
        begin: Callable[[Accepted], Client],
        *,
        subprotocols: tuple[str, ...] = (),
        takes_text: bool = True,
    ) -> None:
        """``protocol``: the part of an address before ``+``.

        ``subprotocols``: the protocol's names in WebSocket's handshake, the best first (RFC 6455, section
        1.9).  ``takes_text``: whether the protocol allows text messages of WebSocket.
        """
        # Here and not at the first login, so that the mistake ends the start of the engine.
        if options.anonymous and options.anonymous not in engine.options.users:
            raise ValueError(
                f"anonymous = {options.anonymous!r} is none of the users:"
                f" {', '.join(engine.options.users) or 'none'}"
            )
        self.clients = 0
        """Connections that are open."""
        self._engine = engine
        self._options = options
        self.protocol = protocol
        """The name of the protocol, as addresses have it."""
        self._begin = begin
        self._address = listener_address(options.address, protocol)
        self._handshakes = Handshakes(
            self._address,
            server_side=True,
            tls=options.tls,
            seconds=options.handshake_seconds,
            web=options.web,
            subprotocols=subprotocols,
            takes_text=takes_text,
        )
        self._acceptor: Acceptor | None = None
        self._rate: Bucket | None = None

    def start(self) -> str:
        """Listen; return the address with the port that the system chose."""
        # The engine has its host, and with it a clock, only from its start on.
        host, rate = self._engine.host, self._options.connections_per_second
        self._rate = Bucket(rate, host.now()) if rate else None
        self._acceptor = Acceptor(
            host,
            self._engine.name,
            self._address,
            self._handshakes,
            admits=self._admits,
            on_wire=self._on_wire,
        )
        return self._acceptor.address

    @property
    def address(self) -> str:
        """Where it listens; empty while it does not."""
        return "" if self._acceptor is None else self._acceptor.address

    def stop(self) -> None:
        """Stop listening."""
        if self._acceptor is not None:
            self._acceptor.close()

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return no rows.  Override it if sessions outlive connections."""
        return []

    def statistics(self) -> dict[str, int]:
        """Return how many connections were accepted, and how many were closed at once.  Any thread."""
        acceptor = self._acceptor
        if acceptor is None:
            return {"accepted": 0, "refused": 0}
        return {"accepted": acceptor.accepted, "refused": acceptor.refused}

    def begin(self, accepted: Accepted) -> None:
        """Make a client of a connection."""
        client = self._begin(accepted)
        self.clients += 1
        self._engine.add(client, self._on_ended)

    def _on_ended(self) -> None:
        self.clients -= 1

    def _admits(self, under_way: int) -> bool:
        # Handshakes under way count.  Otherwise all the connections of one turn, up to 64, would be let in.
        if self.clients + under_way >= self._options.max_connections or not self._engine.admits_connections:
            return False
        return self._rate is None or self._rate.take_one(self._engine.host.now())

    def _on_wire(self, wire: Wire, peer: str) -> None:
        connected = wire.connected
        assert connected is not None
        loopback, certified = is_on_this_machine(peer), None
        # The wire itself may be a WebSocket over TLS, so the socket decides.
        if isinstance(connected, ssl.SSLSocket):
            certified = certified_name(connected)
        self.begin(Accepted(wire, peer, loopback=loopback, certified=certified))
