"""MQTT passes the checks that every front end has to pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernel.testing.fixtures import KernelFactory
from plugins.engines.broker.front_end_checks import FRONT_END_CHECKS, FrontEndSubject
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.packets import Connect, Packet, Publish, PublishHead, Subscribe, Subscription
from plugins.protocols.mqtt.properties import NO_PROPERTIES
from plugins.protocols.mqtt.publishing import acknowledge

QUEUE = "mqtt.share.members.hello"
"""The queue of ``$share/members/hello``.  Messages wait there while nobody has subscribed, since it is declared."""


def connect(client_id: str, version: int) -> Connect:
    return Connect(level=version, client_id=client_id, user_name="guest", password=b"guest")


@pytest.mark.usefixtures("short_login_delay", "eager_alarms")
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("check", FRONT_END_CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(
    check: Callable[[FrontEndSubject], None], version: int, kernel_factory: KernelFactory
) -> None:
    hello = Publish(PublishHead(topic="hello", properties=NO_PROPERTIES), [b"hello"], 5, 5, qos=1, ids=[1])
    members = Subscribe(1, (Subscription("hello", qos=1, share_name="members"),))

    def said(*packets: Packet) -> bytes:
        return b"".join(encode(packet, version) for packet in packets)

    check(
        FrontEndSubject(
            # Mutated bytes may ask for a session that stays.
            listener={"protocol": "mqtt", "max_session_seconds": 0},
            publish=said(connect("publisher", version), hello),
            publish_again=said(hello),
            published=acknowledge(PacketType.PUBACK, [1]),
            take=said(connect("taker", version), members),
            queue=QUEUE,
            options={
                "queues": [{"name": QUEUE}],
                "bindings": [{"exchange": "amq.topic", "queue": QUEUE, "key": "hello"}],
            },
            kernels=kernel_factory,
            subprotocol="mqtt",
        )
    )
