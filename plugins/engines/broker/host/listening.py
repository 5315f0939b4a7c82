"""Listening: accepts the clients of a stream protocol, with TLS and WebSocket, and limits their number."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from kernel.contracts.errors import KernelError
from kernel.hosting.acceptor import Acceptor
from kernel.hosting.address import WEB_TRANSPORTS
from kernel.hosting.facts import subject_of
from kernel.hosting.handshakes import Handshakes
from kernel.hosting.loopback import is_on_this_machine
from kernel.hosting.wire import PlainWire, Wire
from plugins.engines.broker.front_end import Client
from plugins.engines.broker.host.options import ListenerOptions, listener_address
from plugins.engines.broker.host.rates import Bucket

if TYPE_CHECKING:
    import socket

    from plugins.engines.broker.host.engine import BrokerEngine
    from plugins.engines.broker.host.stream_client import StreamClient


class Accepted(NamedTuple):
    """A connection that has come, after the handshakes of TLS and WebSocket if its address wants them."""

    wire: Wire
    peer: str
    """Where it comes from, as an operator sees it."""
    loopback: bool
    """Whether that is this machine."""
    certified: str | None
    """The name in the client's certificate, if TLS has verified one."""
    listener: StreamFrontEnd | None = None
    """Where it was accepted."""


class StreamFrontEnd:
    """A front end over TCP, TLS, a Unix socket or WebSocket.

    A listener makes a client of each connection.

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
        self._port_of: StreamFrontEnd | None = None
        """The front end whose port this one shares, if it has none of its own."""
        self._at_path: dict[str, StreamFrontEnd] = {}
        """If others share the port: all of them and itself, by the path of WebSocket."""
        self._turned_away = 0
        """Clients of a shared port that had to go when it was known whom they mean."""

    def share_port(self, other: StreamFrontEnd) -> None:
        """Serve the clients of another front end at the port of this one: they ask for another path.

        Called before either listens.  ``KernelError`` if that is not possible.
        """
        if self._address.transport != other._address.transport or self._options.tls != other._options.tls:
            raise KernelError(
                f"listeners: {self._options.address} and {other._options.address} share a port, and so TLS: give them the same "
                "transport and the same tls"
            )
        self._handshakes.share(other._handshakes)
        self._at_path.setdefault(self._address.path, self)
        self._at_path[other._address.path] = other
        other._port_of = self

    def start(self) -> str:
        """Listen; return the address with the port that the system chose."""
        # The engine has its host, and with it a clock, only from its start on.
        host, rate = self._engine.host, self._options.connections_per_second
        self._rate = Bucket(rate, host.now()) if rate else None
        if self._port_of is not None:
            # It listens already: front ends start in their order.
            return self._port_of.address
        if self._engine.options.shard:
            # The first shard listens, and hands clients over.
            return ""
        self._acceptor = Acceptor(
            host,
            self._engine.name,
            self._address,
            self._handshakes,
            admits=self._admits_for_any if self._at_path else self._admits,
            on_wire=self._on_shared_wire if self._at_path else self._on_wire,
        )
        return self._acceptor.address

    @property
    def web_port(self) -> str:
        """Host and port of its address if it is for WebSocket and the system does not choose; else empty."""
        address = self._address
        return address.authority if address.transport in WEB_TRANSPORTS and address.port else ""

    @property
    def address(self) -> str:
        """Where it listens; empty while it does not."""
        if self._port_of is not None:
            return self._port_of.address
        return "" if self._acceptor is None else self._acceptor.address

    @property
    def listener(self) -> dict[str, Any]:
        """What operators want to know of it."""
        transport = self._address.transport
        return {
            "protocol": self.protocol,
            "address": self.address,
            "transport": transport,
            **self._options.tls.of_listener(transport),
        }

    def stop(self) -> None:
        """Stop listening."""
        if self._acceptor is not None:
            self._acceptor.close()

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return no rows.  Override it if sessions outlive connections."""
        return []

    def statistics(self) -> dict[str, int]:
        """Return how many connections were accepted, and how many were closed at once.  Any thread.

        Those of a shared port are counted by the front end whose port it is.
        """
        acceptor, turned_away = self._acceptor, self._turned_away
        if acceptor is None:
            return {"accepted": 0, "refused": turned_away}
        return {"accepted": acceptor.accepted, "refused": acceptor.refused + turned_away}

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

    def _admits_for_any(self, under_way: int) -> bool:
        """Admit a client of a shared port: whom it means is known after the handshake."""
        # If there is room at any of them the handshake begins. ``_on_shared_wire`` decides when the path is
        # known.
        most = max(each._options.max_connections - each.clients for each in self._at_path.values())
        return under_way < most and self._engine.admits_connections

    def _on_shared_wire(self, wire: Wire, peer: str) -> None:
        meant = self._at_path[wire.path]
        # 0: this handshake is over, and counts as nobody's.
        if meant._admits(0):
            meant._on_wire(wire, peer)
        else:
            meant._turned_away += 1
            wire.close()

    def _on_wire(self, wire: Wire, peer: str) -> None:
        connected = wire.connected
        assert connected is not None
        loopback, certified = is_on_this_machine(peer), None
        # The wire itself may be a WebSocket over TLS, so the socket decides.
        if isinstance(connected, ssl.SSLSocket):
            # None without a verified certificate, or with several names in it.
            certified = subject_of(connected) or None
        self.begin(Accepted(wire, peer, loopback=loopback, certified=certified, listener=self))

    def go_on(self, what: Mapping[str, Any], connected: socket.socket) -> None:
        """Take a client over that the first shard has accepted (``StreamClient.moves``).

        ``what["seen"]`` has all that the client has sent.  The first ``what["written"]`` bytes that this
        session writes are dropped: the client has them already.
        """
        if not self._admits(0):
            self._turned_away += 1
            connected.close()
            return
        # A plain wire in any case: TLS and WebSocket stay in the first shard, which passes the bytes on.
        accepted = Accepted(
            PlainWire(connected), what["peer"], loopback=what["loopback"], certified=what["certified"]
        )
        client = self._begin(accepted)
        self.clients += 1
        self._engine.add(client, self._on_ended)
        cast("StreamClient", client).replay(what["seen"], what["written"])


def share_ports(front_ends: Iterable[object]) -> None:
    """Let front ends for WebSocket that have one host and port share it; ``KernelError`` if they cannot.

    Port 0 is another port for each.
    """
    first_at: dict[str, StreamFrontEnd] = {}
    for each in front_ends:
        if isinstance(each, StreamFrontEnd) and each.web_port:
            first = first_at.setdefault(each.web_port, each)
            if first is not each:
                first.share_port(each)
