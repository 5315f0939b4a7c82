"""The listening side of the stream engine.

Each connection has a port of its own, and so its own pipes: a slow one does not stop the others.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import trio

from kernel.contracts.engine import EngineEvent, Host, Port
from kernel.contracts.errors import KernelError
from kernel.contracts.kinds import EngineSetup
from kernel.contracts.protocol import Login
from kernel.hosting.acceptor import Acceptor
from kernel.hosting.address import parse_address
from kernel.hosting.stream_host import Decide, StreamHost
from kernel.hosting.stream_statistics import StreamStatistics
from kernel.hosting.wire import Wire
from plugins.engines.stream.own_counters import OwnCounters
from plugins.engines.stream.reply_stamp import ReplyStamp
from plugins.engines.stream.sockets import set_buffers


class StreamListener:
    """Accepts, and hosts a conversation for each connection."""

    def __init__(self, setup: EngineSetup) -> None:
        self._name = setup.name
        self._options = setup.options
        self._address = parse_address(setup.options.address)
        self._bound = setup.bound
        self._system = setup.system
        self._logins_refused = 0
        self._make_protocol = setup.make_protocol
        self._counters = StreamStatistics()
        self._own_counters = OwnCounters()
        self._connections: dict[StreamHost, Port | None] = {}
        self._acceptor: Acceptor | None = None
        self._shared: dict[str, Any] = {}
        self._handshakes = setup.options.handshakes(self._address, server_side=True)
        # Made and dropped: wrong options of the protocol fail now, and not when a peer connects.
        self._make_protocol(self._address.protocol, setup.options.protocol, "server")

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Listen until cancelled."""
        self._host = host
        acceptor = self._acceptor = Acceptor(
            host,
            self._name,
            self._address,
            self._handshakes,
            # ``under_way``: connections in the handshake of TLS or WebSocket, which count towards the limit.
            admits=lambda under_way: len(self._connections) + under_way < self._options.max_connections,
            on_wire=self._begin,
            prepare=partial(set_buffers, options=self._options),
            bound=self._bound,
        )
        try:
            task_status.started(acceptor.address)
            await trio.sleep_forever()
        finally:
            acceptor.close()
            # A copy: ``close`` calls ``_on_end``, which removes the connection.
            for connection in list(self._connections):
                connection.close("the listener is shut down")

    def pending(self) -> bool:
        """Whether a connection has something to write."""
        return any(connection.pending() for connection in list(self._connections))

    def statistics(self) -> dict[str, Any]:
        """Sums over all connections so far."""
        return {
            **self._own_counters.sums(list(self._connections)),
            **self._counters.as_dict(),
            "connections": len(self._connections),
            "accepted": 0 if self._acceptor is None else self._acceptor.accepted,
            "refused": self._logins_refused + (0 if self._acceptor is None else self._acceptor.refused),
        }

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return a row for each connection."""
        return [connection.inspect() for connection in self._connections] if what == "connections" else []

    def _begin(self, wire: Wire, peer: str) -> None:
        connection = StreamHost(
            self._host,
            wire,
            self._make_protocol(self._address.protocol, self._options.protocol, "server"),
            peer=peer,
            counters=self._counters,
            open_port=self._open_port,
            on_open=lambda: self._host.report(EngineEvent(engine=self._name, what="connected", peer=peer)),
            on_end=self._on_end,
            on_refused=lambda why: self._host.report(
                EngineEvent(engine=self._name, what="refused", peer=peer, detail=why)
            ),
            forward_subscriptions=self._options.forward_subscriptions,
            on_login=self._on_login if self._options.authenticator else None,
            start_tls=self._handshakes.start_tls,
            shared=self._shared,
        )
        # Before ``start``, which may end the connection at once.  The port follows when the protocol is
        # ready.
        self._connections[connection] = None
        connection.start()

    def _open_port(self, connection: StreamHost) -> Port:
        name = f"{self._name}/{connection.peer_name}"
        port = self._host.port(name, connection, connection.peer_options)
        if self._options.stamp_reply_to:
            # The stamp is the name of the port, and a route with ``router = "reply"`` finds the port by it.
            port = ReplyStamp(port)
        self._connections[connection] = port
        return port

    def _on_login(self, login: Login, decide: Decide) -> None:
        """Ask the engine that decides on logins; until it has answered the protocol waits."""
        system = self._system
        if system is None:
            decide("this listener has no kernel that could decide on logins")
            return

        def done(_: Any, failure: KernelError | None) -> None:
            if failure is not None:
                self._logins_refused += 1
                text = f"login of {login.user!r}: {failure}"
                self._host.report(
                    EngineEvent(engine=self._name, what="refused", peer=login.peer, detail=text)
                )
            # The peer is not told why.  The operator is, in the report.
            decide(None if failure is None else "login refused")

        system.operate(
            self._options.authenticator, "authenticate", msgspec.structs.asdict(login), self._host, done
        )

    def _on_end(self, connection: StreamHost, reason: str) -> None:
        port = self._connections.pop(connection, None)
        # Its protocol goes with it, and so would what that has counted.
        self._own_counters.add(connection)
        if port is not None:
            port.close()
        self._host.report(
            EngineEvent(engine=self._name, what="disconnected", peer=connection.peer, detail=reason)
        )
