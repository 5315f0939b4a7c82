"""A place at which a socket of ØMQ listens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.contracts.engine import Port
from kernel.contracts.kinds import BoundSockets
from kernel.hosting.acceptor import Acceptor
from kernel.hosting.address import Address
from kernel.hosting.stream_host import StreamHost
from kernel.hosting.wire import Wire
from plugins.engines.zmq.options import handshakes_of, name_of

if TYPE_CHECKING:
    from plugins.engines.zmq.engine import ZmqEngine


class BindPlace:
    """Accepts peers.  Each has a port from its READY to its end."""

    def __init__(self, engine: ZmqEngine, address: Address, bound: BoundSockets | None) -> None:
        self._engine = engine
        handshakes = handshakes_of(engine.options, address, listens=True)
        self._acceptor = Acceptor(
            engine.host,
            engine.name,
            address,
            handshakes,
            admits=engine.admits,
            on_wire=self._begin,
            bound=bound,
        )
        self.name = name_of(address, self._acceptor.address)

    @property
    def accepted(self) -> int:
        """Connections that were accepted."""
        return self._acceptor.accepted

    @property
    def refused(self) -> int:
        """Connections that were one too many."""
        return self._acceptor.refused

    def close(self) -> None:
        """Listen no more."""
        self._acceptor.close()

    def _begin(self, wire: Wire, peer: str) -> None:
        engine = self._engine
        # A list, because the port does not exist yet: it is opened when the peer is known, and may never be.
        # ``on_end`` closes what there is.
        ports: list[Port] = []

        def open_port(conversation: StreamHost) -> Port:
            ports.append(engine.host.port(f"{engine.name}/{conversation.peer_name}", conversation))
            return ports[0]

        def on_end(reason: str) -> None:
            for port in ports:
                port.close()
            engine.report("disconnected", peer, reason)

        # ``on_open`` has nothing to do: only a dialler measures how long a connection lasted, for its
        # back-off.
        engine.converse(wire, peer, "server", open_port=open_port, on_open=lambda: None, on_end=on_end)
