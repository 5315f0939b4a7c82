"""Listening: where the clients of a stream protocol come in, with TLS, and how many of them may."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kernel.contracts.engine import EngineEvent
from kernel.contracts.errors import ConnectionLost
from kernel.hosting.listener import Listener
from kernel.hosting.tls import handshake, server_context
from kernel.hosting.wire import PlainWire, TlsWire, Wire
from plugins.engines.broker.front_end import Client
from plugins.engines.broker.host.options import ListenerOptions, listener_address
from plugins.engines.broker.host.origin import certified_name, is_on_this_machine
from plugins.engines.broker.host.rates import Bucket

if TYPE_CHECKING:
    from plugins.engines.broker.host.engine import BrokerEngine


class Accepted(NamedTuple):
    """A connection that has come, and over TLS has shaken hands."""

    wire: Wire
    peer: str
    """Where it comes from, as an operator sees it."""
    loopback: bool
    """Whether that is this machine."""
    certified: str | None
    """The name in the client's certificate, if TLS has verified one."""


class StreamFrontEnd:
    """A front end over TCP, TLS or a Unix socket: a listener, and what makes a client of each connection.

    ``begin`` returns a client that reads and writes by itself from then on; it is called in the broker's thread.
    """

    def __init__(
        self,
        engine: BrokerEngine,
        options: ListenerOptions,
        protocol: str,
        begin: Callable[[Accepted], Client],
    ) -> None:
        """``protocol``: the part of an address before ``+``."""
        if options.anonymous and options.anonymous not in engine.options.users:
            raise ValueError(f"anonymous = {options.anonymous!r} is none of the users")
        self.clients = 0
        """Connections that are open."""
        self._engine = engine
        self._options = options
        self._begin = begin
        self._address = listener_address(options.address, protocol)
        self._tls = server_context(options.tls) if self._address.transport == "tls" else None
        self._shaking = 0
        """Connections whose TLS handshake is not over."""
        self._listener: Listener | None = None
        self._rate: Bucket | None = None
        self._accepted = self._refused = 0

    def start(self) -> str:
        """Listen; return the address with the port that the system chose."""
        host, rate = self._engine.host, self._options.connections_per_second
        self._rate = Bucket(rate, host.now()) if rate else None
        self._listener = Listener(host, self._engine.name, self._address, self._on_accept)
        return self._listener.address

    def stop(self) -> None:
        """Accept nobody any more."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def statistics(self) -> dict[str, int]:
        """How many connections were accepted, and how many closed at once."""
        return {"accepted": self._accepted, "refused": self._refused}

    def begin(self, accepted: Accepted) -> None:
        """Make a client of a connection."""
        client = self._begin(accepted)
        self.clients += 1
        self._engine.add(client, self._on_ended)

    def _on_ended(self) -> None:
        self.clients -= 1

    def _on_accept(self, connected: socket.socket, peer: str) -> None:
        full = self.clients + self._shaking >= self._options.max_connections
        if full or (self._rate is not None and not self._rate.take_one(self._engine.host.now())):
            self._refused += 1
            connected.close()
            return
        self._accepted += 1
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            loopback = is_on_this_machine(connected)
            self.begin(Accepted(PlainWire(connected), peer, loopback=loopback, certified=None))
        else:
            self._shaking += 1  # at once: others are accepted before the task begins
            self._engine.host.nursery.start_soon(self._shake_hands, connected, peer, self._tls)

    async def _shake_hands(self, connected: socket.socket, peer: str, context: ssl.SSLContext) -> None:
        """TLS first; the conversation begins after it."""
        loopback = is_on_this_machine(connected)
        seconds = self._options.handshake_seconds
        try:
            wrapped = await handshake(connected, context, server_side=True, server_name=None, seconds=seconds)
        except ConnectionLost as error:
            self._refused += 1
            event = EngineEvent(engine=self._engine.name, what="refused", peer=peer, detail=str(error))
            self._engine.host.report(event)
            return
        finally:
            self._shaking -= 1
        if self._listener is None:  # stopped in the very turn in which the handshake was done
            wrapped.close()
            return
        self.begin(
            Accepted(TlsWire(wrapped), peer, loopback=loopback, certified=certified_name(wrapped)),
        )
