"""AMQP passes the checks that every front end has to pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernel.contracts.message import Envelope, batch_of
from kernel.testing.fixtures import KernelFactory
from plugins.engines.broker.front_end_checks import FRONT_END_CHECKS, FrontEndSubject
from plugins.protocols.amqp091.connection import ClientConnection
from plugins.protocols.amqp091.credentials import plain_response
from plugins.protocols.amqp091.frames import PROTOCOL_HEADER, method_frame
from plugins.protocols.amqp091.methods import basic, channel, confirm, connection, queue
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.options import ClientOptions

LOGIN = connection.StartOk(client_properties={}, mechanism="PLAIN", response=plain_response("guest", "guest"))
LIMITS = connection.TuneOk(channel_max=10, frame_max=131072, heartbeat=0)


def said(*methods: Method) -> bytes:
    """A client that does not wait for answers, with its first channel open."""
    opening = [(0, LOGIN), (0, LIMITS), (0, connection.Open()), (1, channel.Open())]
    asked = [(1, queue.Declare(queue="hello")), *[(1, method) for method in methods]]
    return PROTOCOL_HEADER + b"".join(method_frame(number, each.encode()) for number, each in opening + asked)


def hello() -> bytes:
    """basic.publish with header and body."""
    client = ClientConnection(ClientOptions(heartbeat=0), 0.0)
    client.data_to_send()
    client.receive_data(
        b"".join(
            method_frame(number, method.encode())
            for number, method in [
                (
                    0,
                    connection.Start(
                        version_major=0,
                        version_minor=9,
                        server_properties={},
                        mechanisms=b"PLAIN",
                        locales=b"en_US",
                    ),
                ),
                (0, connection.Tune(channel_max=10, frame_max=131072, heartbeat=0)),
                (0, connection.OpenOk()),
            ]
        ),
        0.0,
    )
    client.open_channel(1)
    client.receive_data(method_frame(1, channel.OpenOk().encode()), 0.0)
    client.data_to_send()
    client.publish(1, batch_of([b"hello"], Envelope(key="hello")))
    return b"".join(map(bytes, client.data_to_send()))


@pytest.mark.usefixtures("short_login_delay", "eager_alarms")
@pytest.mark.parametrize("check", FRONT_END_CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(
    check: Callable[[FrontEndSubject], None], kernel_factory: KernelFactory
) -> None:
    check(
        FrontEndSubject(
            listener={"protocol": "amqp"},
            publish=said(confirm.Select()) + hello(),
            publish_again=hello(),
            published=method_frame(1, basic.Ack(delivery_tag=1).encode()),
            take=said(basic.Consume(queue="hello", consumer_tag="c")),
            kernels=kernel_factory,
            subprotocol="amqp",
        )
    )
