"""The client and RabbitMQ's STOMP plugin: there and back, refusals, kills under load."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from kernel.contracts.errors import TimedOut
from kernel.contracts.message import Envelope, Message
from kernel.testing.fixtures import KernelFactory
from tests.interop.until import until
from tests.plugins.engines.amqp_client.rabbitmq import RabbitMq
from tests.plugins.engines.stomp_client.conftest import TIMEOUT, Client, bodies, receive
from tests.seeds import many

pytestmark = [pytest.mark.slow, pytest.mark.peer("rabbitmq"), pytest.mark.timeout(300)]


def _client(make: KernelFactory, node: RabbitMq, **options: Any) -> Client:
    return Client(make, f"127.0.0.1:{node.stomp_port}", **options)


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_there_and_back_in_every_version(
    kernel_factory: KernelFactory, rabbitmq: RabbitMq, version: str, ack: str
) -> None:
    queues = [f"/queue/back-{version}-{ack}-{number}" for number in range(2)]
    client = _client(
        kernel_factory,
        rabbitmq,
        versions=(version,),
        subscriptions=tuple({"destination": queue, "ack": ack, "prefetch": 100} for queue in queues),
    )
    out, into = client.open("out"), client.open("in")
    wanted = bodies(0, 1000)
    for at, body in enumerate(wanted):
        key = queues[at % 2].removeprefix("/queue/")
        out.send_message(Message(body, Envelope(key=key)), timeout=TIMEOUT)
    got = receive(into, wanted)
    out.wait_confirmed(TIMEOUT)
    # Nothing came twice, and no acknowledgement was one that RabbitMQ did not expect.
    assert sorted(got) == sorted(wanted)
    assert client.statistics()["reconnects"] == 0
    client.kernel.close()
    assert client.kernel.join(TIMEOUT)


def test_properties_cross(kernel_factory: KernelFactory, rabbitmq: RabbitMq) -> None:
    client = _client(kernel_factory, rabbitmq, subscriptions=({"destination": "/topic/cross.#"},))
    properties = {
        "content_type": "text/plain",
        "correlation_id": "7",
        "message_id": "m",
        "headers": {"a:b": "c\nd"},
    }
    envelope = Envelope(exchange="amq.topic", key="cross.k", priority=7, properties=properties)
    client.open("out").send_message(Message(b"x\0y", envelope), timeout=TIMEOUT)
    message = client.open("in").receive_message(TIMEOUT)
    assert bytes(message.body) == b"x\0y"
    assert (message.envelope.exchange, message.key) == ("amq.topic", "cross.k")
    assert message.envelope.priority == 7
    assert message.envelope.persistent
    assert {name: message.envelope.properties[name] for name in properties} == properties


def test_a_message_that_is_refused_stops_no_others(kernel_factory: KernelFactory, rabbitmq: RabbitMq) -> None:
    client = _client(kernel_factory, rabbitmq, subscriptions=({"destination": "/queue/refused"},))
    out, dead = client.open("out"), client.open("dead")
    envelopes = [Envelope(key="refused"), Envelope(exchange="nowhere", key="k"), Envelope(key="refused")]
    for body, envelope in zip((b"1", b"bad", b"2"), envelopes, strict=True):
        out.send_message(Message(body, envelope), timeout=TIMEOUT)

    def passed_on() -> bytes:
        # The thread of a source passes on what was refused, while it is inside a call.
        for call in (lambda: out.wait_confirmed(0.01), lambda: dead.receive(0.01)):
            try:
                found = call()
            except TimedOut:
                continue
            if found is not None:
                return bytes(found)
        return b""

    assert until(passed_on) == b"bad"
    receive(client.open("in"), [b"1", b"2"])
    assert client.statistics()["messages_refused"] == 1


def test_a_wrong_passcode_and_a_refused_subscription_are_named(
    kernel_factory: KernelFactory, rabbitmq: RabbitMq
) -> None:
    wrong = _client(kernel_factory, rabbitmq, passcode="wrong", wait=False)
    assert "check login 'guest'" in wrong.events.wait("refused").detail
    subscriptions = ({"destination": "/amq/queue/missing"}, {"destination": "/queue/there"})
    client = _client(kernel_factory, rabbitmq, destination="/queue/there", subscriptions=subscriptions)
    assert "subscribing to '/amq/queue/missing'" in client.events.wait("refused").detail
    client.open("out").send(b"x", timeout=TIMEOUT)
    receive(client.open("in"), [b"x"])


@pytest.mark.timeout(500)
@pytest.mark.xdist_group("rabbitmq-killed")
def test_a_rabbitmq_that_is_killed_under_load_loses_nothing(
    kernel_factory: KernelFactory, tmp_path: Path
) -> None:
    """In both directions: what was confirmed comes out again, and what was not is sent again."""
    node = RabbitMq(tmp_path, ("rabbitmq_stomp",))
    try:
        node.start()
        queues = [f"/queue/load{number}" for number in range(2)]
        subscriptions = tuple({"destination": each, "prefetch": 200} for each in queues)
        client = _client(kernel_factory, node, subscriptions=subscriptions)
        into = client.open("in")
        client.events.wait("connected")
        # The queues are there.  Of two whose node is killed a second after they were declared, RabbitMQ 4.0 lost one.
        node.control("eval", "mnesia:sync_log().")
        # RabbitMQ stores bodies of more than 4 KiB elsewhere than small ones.
        wanted = [
            body + (b" " * 5000 if number % 5 == 0 else b"") for number, body in enumerate(bodies(0, 20_000))
        ]

        def send() -> None:
            # A channel belongs to the thread that opens it.
            out = client.open("out")
            for at, body in enumerate(wanted):
                out.send_message(Message(body, Envelope(key=f"load{at % 2}")), timeout=200.0)
            out.wait_confirmed(200.0)

        sender = threading.Thread(target=send)
        sender.start()
        got = receive(into, wanted[:500])
        for cut in many(0, 1):
            node.stop()
            client.events.wait("disconnected", times=cut + 1)
            node.start()
            client.events.wait("connected", times=cut + 2)
        got += receive(into, set(wanted) - set(got))
        sender.join(200.0)
        assert not sender.is_alive()
        assert set(got) == set(wanted)
    finally:
        node.close()
