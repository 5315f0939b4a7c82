"""Methods that are not answered are acknowledged by the system at once, as with MQTT (test_acknowledged_at_once.py).

Not those of clients that switch Nagle's algorithm off: for them it would be in vain.
"""

from __future__ import annotations

import socket
from typing import Any

import pytest

from kernel.hosting.connection import Connection
from plugins.engines.broker.host.stream_client import GATHERED
from plugins.protocols.amqp091.methods import basic, queue
from tests.plugins.engines.amqp.conftest import Server
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.systems import linux_only
from tests.tcp import looks_until_acknowledged

FEW = 20


def _ask(client: RawClient) -> None:
    client.ask(queue.Declare(queue="q"), queue.DeclareOk)


@linux_only
@pytest.mark.parametrize("size", [1, 1000])
def test_what_is_not_answered(server: Server, size: int) -> None:
    wire = socket.create_connection(("127.0.0.1", server.port))
    with RawClient(wire=wire, product="amqplib") as client, RawClient(server.port) as other:
        for _ in range(20):
            _ask(client)
        client.publish(bytes(size), "nowhere")
        assert looks_until_acknowledged(wire, lambda: _ask(other)) < FEW


@pytest.mark.parametrize(
    "product, wanted",
    [("amqplib", True), ("", True), (["no text"], True), ("RabbitMQ", False), ("aiormq", False)],
)
def test_who_may_have_to_wait(
    server: Server, monkeypatch: pytest.MonkeyPatch, product: Any, wanted: bool
) -> None:
    calls = 0

    def acknowledge(self: Connection) -> None:
        nonlocal calls
        calls += 1

    with RawClient(server.port, product=product) as client, RawClient(server.port) as other:
        _ask(client)
        monkeypatch.setattr(Connection, "acknowledge", acknowledge)
        client.publish(b"x", "q")
        # Another client sees that it was read.
        while other.ask(queue.Declare(queue="q"), queue.DeclareOk).message_count == 0:
            pass
    assert calls == wanted


def test_who_has_many_channels(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not looked at one by one, in each turn: it counts as one who has much to acknowledge."""
    with RawClient(server.port, product="amqplib") as client, RawClient(server.port) as other:
        for number in range(2, GATHERED + 2):
            client.open_channel(number)
        _ask(other)
        other.publish(b"x", "q")
        got = client.get("q")
        monkeypatch.setattr(Connection, "acknowledge", lambda self: pytest.fail("acknowledged at once"))
        client.send(basic.Reject(delivery_tag=got.delivery_tag, requeue=True))
        while other.ask(queue.Declare(queue="q"), queue.DeclareOk).message_count == 0:
            pass
        _ask(client)
