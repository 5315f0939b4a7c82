"""A link whose upstream is in the test's hand."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from kernel.contracts.message import Envelope, batch_of
from kernel.testing.memory_wire import SimulatedHost
from plugins.engines.amqp_client.connection_host import ConnectionHost
from plugins.engines.broker.topology_observers import BrokerState, ExchangeState, QueueState
from plugins.engines.federation.engine import Federation
from plugins.engines.federation.options import FederationOptions
from plugins.protocols.amqp091.connection import ClientConnection, ServerConnection
from plugins.protocols.amqp091.events import Acknowledged, LoginRequested, MethodReceived, OpenRequested
from plugins.protocols.amqp091.methods import basic, queue
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.options import ClientOptions, ServerOptions
from tests.plugins.engines.amqp_client.in_memory import ANSWERS, Port

JOBS = QueueState(durable=True, auto_delete=False, arguments={}, wants_more=True)


class Upstream:
    """One end of a wire, with a link at the other: a broker that agrees to everything, while it listens."""

    def __init__(self, **options: Any) -> None:
        self.host = SimulatedHost()
        self.link = Federation("link", FederationOptions(broker="broker", **options))
        self.link.host = self.link.link.host = self.host  # type: ignore[assignment]  # as much of one as is used
        self.link.port = self.port = Port("link", self.link)
        self.port.confirms = True
        self.link._on_broker("", BrokerState(cluster_name="here", vhost="/"))
        ours, self.wire = self.host.wire(capacity=1 << 20)
        self.methods: list[Method] = []
        self.acknowledged: list[int] = []
        self.server = ServerConnection(ServerOptions(heartbeat=0), 0.0)
        self.listen()
        conversation = ClientConnection(ClientOptions(heartbeat=0), self.host.now())
        self.link.link.use_connection(ConnectionHost(self.link.link, ours, conversation))
        self.host.run()
        assert self.link.link.usable

    def listen(self) -> None:
        self.host.watch(self.wire.fileno(), readable=self._serve)

    def deaf(self) -> None:
        """It answers nothing any more."""
        self.host.watch(self.wire.fileno())

    def say(self, channel: int, method: Method) -> None:
        self.server.send_method(channel, method)
        self.flush()

    def flush(self) -> None:
        self._write()
        self.host.run()

    def asked(self, kind: type[Method]) -> int:
        """How often it was."""
        return sum(isinstance(method, kind) for method in self.methods)

    def _serve(self) -> None:
        for event in self.server.receive_data(self.wire.receive(1 << 20) or b"", self.host.now()):
            if isinstance(event, LoginRequested):
                self.server.accept_login()
            elif isinstance(event, OpenRequested):
                self.server.accept_open()
            elif isinstance(event, MethodReceived):
                self.methods.append(event.method)
                answer = ANSWERS.get(type(event.method))
                if answer is not None:
                    self.server.send_method(event.channel, answer)
            elif isinstance(event, Acknowledged):
                self.acknowledged.append(event.last_delivery_tag)
        self._write()

    def _write(self) -> None:
        assert self.wire.send(deque(self.server.data_to_send()))


def test_a_change_here_while_the_connection_is_being_closed_is_for_the_next_one() -> None:
    upstream = Upstream(exchanges=("feed",))
    upstream.deaf()
    link = upstream.link
    assert upstream.wire.send(deque([b"\x09no frame"]))
    upstream.host.run()
    assert link.link.connection is not None, "it waits for the answer to its close"
    feed = ExchangeState(
        kind="topic", durable=True, auto_delete=False, internal=False, arguments={}, bindings=frozenset()
    )
    link._on_exchange("feed", feed)
    upstream.host.run(until=60.0)
    assert link.link.connection is None


def test_a_queue_that_is_deleted_there_and_then_here_is_consumed_from_when_it_is_back() -> None:
    upstream = Upstream(queues=("jobs",))
    link = upstream.link
    link._on_queue("jobs", JOBS)
    upstream.host.run()
    assert upstream.asked(basic.Consume) == 1
    upstream.say(2, basic.Cancel(consumer_tag="link", nowait=True))
    upstream.deaf()
    link._on_queue("jobs", None)
    upstream.host.run(until=60.0)  # the wait after the cancel is over, and the channel not closed yet
    assert link.link.connection is not None
    upstream.listen()
    link._on_queue("jobs", JOBS)
    upstream.host.run(until=120.0)
    assert upstream.asked(basic.Consume) == 2


def test_a_queue_that_is_deleted_there_while_something_else_is_declared_is_declared_again() -> None:
    upstream = Upstream(queues=("jobs", "more"))
    link = upstream.link
    link._on_queue("jobs", JOBS)
    upstream.host.run()
    upstream.deaf()
    link._on_queue("more", JOBS)
    upstream.say(2, basic.Cancel(consumer_tag="link", nowait=True))
    upstream.host.run(until=60.0)  # the wait after the cancel is over, and the other not declared yet
    upstream.listen()
    upstream.host.run()
    names = [method.queue for method in upstream.methods if isinstance(method, queue.Declare | basic.Consume)]
    assert names == ["jobs", "jobs", "more", "more", "jobs", "jobs"]  # each declared, then consumed from


def test_a_link_is_not_called_refused_once_nothing_is_wanted_of_what_it_was_refused() -> None:
    upstream = Upstream(queues=("jobs",))
    link = upstream.link
    link._on_queue("jobs", JOBS)
    upstream.host.run()
    upstream.server.close_channel(2, 404, "no queue 'jobs'")
    upstream.flush()
    assert link.link.state == "refused"
    link._on_queue("jobs", msgspec.structs.replace(JOBS, wants_more=False))
    upstream.host.run(until=60.0)
    assert (link.link.state, link.link.row()["last_error"]) == ("connected", "")


def test_what_is_on_its_way_to_a_queue_stays_upstream_when_its_broker_goes() -> None:
    upstream = Upstream(queues=("jobs",))
    link = upstream.link
    link._on_queue("jobs", JOBS)
    upstream.host.run()
    upstream.server.send_deliveries(2, "link", 1, False, batch_of([b"0", b"1"], Envelope(key="jobs")))
    upstream.flush()
    link.on_confirmed(1)
    link._on_broker("", None)
    link._on_queue("jobs", None)
    link.on_confirmed(2)  # by the broker that comes, which may have no such queue
    upstream.host.run()
    assert (upstream.port.count(), upstream.acknowledged) == (2, [1])


def test_what_the_upstream_has_forgotten_is_handed_over_though_the_broker_goes() -> None:
    upstream = Upstream(queues=("jobs",), no_ack=True)
    link = upstream.link
    link._on_queue("jobs", JOBS)
    upstream.host.run()
    link._on_broker("", None)
    link._on_queue("jobs", None)
    upstream.server.send_deliveries(2, "link", 1, False, batch_of([b"0", b"1"], Envelope(key="jobs")))
    upstream.flush()
    assert upstream.port.count() == 2
