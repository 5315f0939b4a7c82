"""Acceptor: a listener, and the handshakes that make a wire of each connection."""

from __future__ import annotations

import socket
from collections.abc import Callable

from kernel.contracts.engine import EngineEvent, Host
from kernel.contracts.errors import ConnectionLost
from kernel.contracts.kinds import BoundSockets
from kernel.hosting.address import Address
from kernel.hosting.handshakes import Handshakes
from kernel.hosting.listener import Listener
from kernel.hosting.wire import PlainWire, Wire


class Acceptor:
    """Listens from its construction on, in the host's thread.

    ``admits(under_way)`` says whether one more connection may be accepted, while ``under_way`` handshakes are
    not over.  ``on_wire`` gets each wire and the name of its peer.  ``prepare`` sets more options of a new
    socket than all connections have.
    """

    def __init__(
        self,
        host: Host,
        engine: str,
        address: Address,
        handshakes: Handshakes,
        *,
        admits: Callable[[int], bool],
        on_wire: Callable[[Wire, str], None],
        prepare: Callable[[socket.socket], None] | None = None,
        bound: BoundSockets | None = None,
    ) -> None:
        self.accepted: int = 0
        """Connections that were admitted."""
        self.refused: int = 0
        """Connections that were not admitted, or failed to shake hands."""
        self._host = host
        self._engine = engine
        self._handshakes = handshakes
        handshakes.report = self._on_files
        self._admits = admits
        self._on_wire = on_wire
        self._prepare = prepare
        self._under_way = 0
        self._closed = False
        self._listener = Listener(host, engine, address, self._on_accept, bound=bound)

    @property
    def address(self) -> str:
        """The address, with the port that the system chose."""
        return self._listener.address

    def close(self) -> None:
        """Accept no more connections, and drop those whose handshake is not over."""
        self._closed = True
        self._listener.close()

    def _on_files(self, what: str, text: str) -> None:
        self._host.report(EngineEvent(engine=self._engine, what=what, detail=text))

    def _on_accept(self, connected: socket.socket, peer: str) -> None:
        # Handshakes count too: otherwise a peer could open any number of connections and never finish one.
        if not self._admits(self._under_way):
            self.refused += 1
            connected.close()
            return
        self.accepted += 1
        if self._prepare is not None:
            self._prepare(connected)
        if self._handshakes.needed:
            # At once and not in the task: more connections are accepted before the task begins, and each asks
            # ``admits``.
            self._under_way += 1
            self._host.nursery.start_soon(self._shake_hands, connected, peer)
        else:
            self._on_wire(PlainWire(connected), peer)

    async def _shake_hands(self, connected: socket.socket, peer: str) -> None:
        try:
            wire = await self._handshakes.shake(connected)
        except ConnectionLost as error:
            self.refused += 1
            self._host.report(EngineEvent(engine=self._engine, what="refused", peer=peer, detail=str(error)))
            return
        finally:
            # Also when the task is cancelled, because the engine ends.
            self._under_way -= 1
        # The acceptor may have been closed in the very turn in which the handshake was done.
        if self._closed:
            wire.close()
        else:
            self._on_wire(wire, peer)
