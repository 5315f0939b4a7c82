"""Walks of ``kernel tour`` that begin at an AMQP publisher.

``amqp``: a publish that a route passes on to an application in another kernel.  ``durable``: a persistent
publish into a durable queue, until the publisher has its confirm.
"""

from __future__ import annotations

import socket
import tempfile
from typing import TYPE_CHECKING, Any

from kernel.contracts.message import Envelope, batch_of
from kernel.contracts.walk import Hop, Tour, Walk
from plugins.protocols.amqp091.connection import ClientConnection
from plugins.protocols.amqp091.events import Acknowledged, ChannelOpened, ConnectionOpened, MethodReceived
from plugins.protocols.amqp091.methods import confirm, queue
from plugins.protocols.amqp091.options import ClientOptions

if TYPE_CHECKING:
    from kernel import Kernel, Plan

LONGEST_WAIT = 10.0
"""Seconds."""


def to_application() -> Walk:
    """Return the walk ``amqp``."""
    return Walk(hops=TO_APPLICATION, follow=_follow_to_application)


def durable() -> Walk:
    """Return the walk ``durable``."""
    return Walk(hops=DURABLE, follow=_follow_durable)


class Publisher:
    """A client over a plain socket, in the thread that calls it: what it does itself is not on the way."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=LONGEST_WAIT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = ClientConnection(ClientOptions(heartbeat=0), 0.0)
        self.wait_for(ConnectionOpened)
        self.connection.open_channel(1)
        self.wait_for(ChannelOpened)

    def publish(self, envelope: Envelope) -> None:
        """Publish one message, in one write."""
        self.connection.publish(1, batch_of([b"hello"], envelope))
        self._write()

    def wait_for(self, kind: type) -> None:
        """Read until an event of this kind has come."""
        while True:
            self._write()
            events = self.connection.receive_data(self._socket.recv(65536), 0.0)
            if any(isinstance(event, kind) for event in events):
                return

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _write(self) -> None:
        self._socket.sendall(b"".join(self.connection.data_to_send()))


def _follow_to_application(tour: Tour) -> None:
    from kernel import EnginePlan, Kernel, RoutePlan

    there_link = EnginePlan(
        name="link", kind="stream", options={"mode": "listen", "address": "backend+tcp://127.0.0.1:0"}
    )
    with Kernel(_plan("there", there_link, RoutePlan(source="link", targets=("application",)))) as there:
        there.wait_running()
        link = EnginePlan(
            name="link", kind="stream", options={"address": f"backend+tcp://{there.address_of('link')}"}
        )
        route = RoutePlan(source="broker", targets=("link",), match=("weather.#",))
        with (
            tour.application(there, "application") as application,
            Kernel(_plan("here", link, route, broker={})) as here,
        ):
            publisher = Publisher(_port(here))
            envelope = Envelope(exchange="amq.topic", key="weather.1")
            for _ in range(2):
                publisher.publish(envelope)
                application.wait()
            tour.begin()
            publisher.publish(envelope)
            application.wait()
            tour.end()
            publisher.close()


def _follow_durable(tour: Tour) -> None:
    from kernel import Kernel

    with (
        tempfile.TemporaryDirectory(prefix="kernel-tour-") as folder,
        Kernel(_plan("here", broker={"data_dir": f"{folder}/data"})) as here,
    ):
        publisher = Publisher(_port(here))
        publisher.connection.send_method(1, queue.Declare(queue="tour", durable=True))
        publisher.wait_for(MethodReceived)
        publisher.connection.send_method(1, confirm.Select())
        publisher.wait_for(MethodReceived)
        envelope = Envelope(key="tour", persistent=True, properties={"delivery_mode": 2})
        # The first publishes fill caches: checked envelopes, routes, encodings.  The walk shows all later
        # ones.
        for _ in range(2):
            publisher.publish(envelope)
            publisher.wait_for(Acknowledged)
        tour.begin()
        publisher.publish(envelope)
        publisher.wait_for(Acknowledged)
        tour.end()
        publisher.close()


def _plan(thread: str, *parts: Any, broker: dict[str, Any] | None = None) -> Plan:
    """Plan a kernel of one thread, of engines and routes."""
    from kernel import EnginePlan, Plan, RoutePlan, ThreadPlan

    engines = [part for part in parts if isinstance(part, EnginePlan)]
    if broker is not None:
        engines.append(
            EnginePlan(name="broker", kind="amqp", options={"address": "tcp://127.0.0.1:0", **broker})
        )
    elif engines:
        engines.append(EnginePlan(name="application", kind="native"))
    routes = tuple(part for part in parts if isinstance(part, RoutePlan))
    return Plan(threads=(ThreadPlan(name=thread),), engines=tuple(engines), routes=routes)


def _port(kernel: Kernel) -> int:
    kernel.wait_running()
    return int(kernel.address_of("broker").rpartition(":")[2])


_READ = (
    Hop(
        "kernel/hosting/connection.py",
        "Connection._on_readable",
        "the broker's poll thread reads from the socket",
    ),
    Hop(
        "plugins/protocols/amqp091/published_batches.py",
        "PublishedBatches.read_alone",
        "the frames become a batch of one message",
    ),
    Hop("plugins/engines/amqp/session.py", "Session.published", "the session finds the channel"),
    Hop("plugins/engines/broker/host/publisher.py", "Publisher.admit", "may this user publish there?"),
    Hop(
        "plugins/engines/broker/virtual_host.py",
        "VirtualHost.publish",
        "the bindings say which queues get it",
    ),
)

TO_APPLICATION = (
    *_READ,
    Hop("plugins/engines/broker/host/feed.py", "Feed.offer", "it is for the routes of the topology, too"),
    Hop(
        "plugins/engines/broker/host/engine.py",
        "BrokerEngine.finish_turn",
        "all that this read brought goes on together",
    ),
    Hop("kernel/dispatcher/route.py", "Route.offer", "the route's filter wants it"),
    Hop("kernel/pipes/pipe.py", "Pipe.signal", "it lies in the pipe to the other engine"),
    Hop("kernel/hosting/stream_host.py", "StreamHost.on_output", "which takes it in its turn"),
    Hop(
        "plugins/protocols/backend/connection.py", "BackendConnection.send_batches", "the batch becomes bytes"
    ),
    Hop("kernel/hosting/wire.py", "PlainWire.send_first", "the bytes go to the other kernel"),
    Hop("kernel/hosting/connection.py", "Connection._on_readable", "whose poll thread reads them"),
    Hop("kernel/dispatcher/port.py", "Port.send", "the routes there say whose pipe gets it"),
    Hop("kernel/pipes/doorbell.py", "Doorbell.ring", "the application's thread is woken"),
    Hop("plugins/apis/native/channel.py", "Channel.receive", "and has the message", at_return=True),
)

DURABLE = (
    *_READ,
    Hop("plugins/engines/broker/queue.py", "Queue.publish", "the queue keeps it"),
    Hop("plugins/engines/broker/storage/log.py", "Log.keep", "and it waits for the log"),
    Hop(
        "plugins/engines/broker/host/engine.py",
        "BrokerEngine.finish_turn",
        "all that this read brought goes on together",
    ),
    Hop("plugins/engines/broker/storage/message_records.py", "encode_messages", "one record for the batch"),
    Hop("plugins/engines/broker/storage/writer.py", "WriterThread.submit", "the thread that writes is woken"),
    Hop("kernel/hosting/appending.py", "AppendedFile.write", "the record is written"),
    Hop("kernel/hosting/disk.py", "sync_data", "and on the disk"),
    # No hop for the doorbell: with a fast disk the broker's thread is still looking, and is not rung for.
    Hop(
        "plugins/engines/amqp/channel.py",
        "Channel.send_confirms",
        "the broker's thread learns of it: the publisher may be told",
    ),
    Hop("kernel/hosting/wire.py", "PlainWire.send_first", "basic.ack goes to the publisher"),
)
