"""A link whose upstream is in the test's hand."""

from __future__ import annotations

from collections import deque

from kernel.testing.memory_wire import VirtualHost
from plugins.engines.amqp_client.connection_host import ConnectionHost
from plugins.engines.broker.watches import BrokerState, ExchangeState
from plugins.engines.federation.engine import Federation
from plugins.engines.federation.options import FederationOptions
from plugins.protocols.amqp091.connection import ClientConnection, ServerConnection
from plugins.protocols.amqp091.events import LoginRequested, OpenRequested
from plugins.protocols.amqp091.options import ClientOptions, ServerOptions
from tests.plugins.engines.amqp_client.in_memory import Port


def test_a_change_here_while_the_connection_is_being_closed_is_for_the_next_one() -> None:
    host = VirtualHost()
    link = Federation("link", FederationOptions(broker="broker", exchanges=("feed",)))
    link.host = link.link.host = host  # type: ignore[assignment]  # as much of one as is used
    link.port = Port("link", link)
    link._on_broker("", BrokerState(cluster_name="here", vhost="/"))
    ours, wire = host.wire(capacity=1 << 20)
    upstream = ServerConnection(ServerOptions(heartbeat=0), 0.0)

    def serve() -> None:
        for event in upstream.receive_data(wire.receive(1 << 20) or b"", host.now()):
            if isinstance(event, LoginRequested):
                upstream.accept_login()
            elif isinstance(event, OpenRequested):
                upstream.accept_open()
        assert wire.send(deque(upstream.data_to_send()))

    host.watch(wire.fileno(), readable=serve)
    link.link.hold(ConnectionHost(link.link, ours, ClientConnection(ClientOptions(heartbeat=0), host.now())))
    host.run()
    assert link.link.usable
    host.watch(wire.fileno())  # it answers nothing any more
    assert wire.send(deque([b"\x09no frame"]))
    host.run()
    assert link.link.connection is not None, "it waits for the answer to its close"
    feed = ExchangeState(
        kind="topic", durable=True, auto_delete=False, internal=False, arguments={}, bindings=frozenset()
    )
    link._on_exchange("feed", feed)
    host.run(until=60.0)
    assert link.link.connection is None
