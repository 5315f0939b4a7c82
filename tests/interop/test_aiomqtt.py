"""Everyday life with aiomqtt, as its documentation shows it."""

from __future__ import annotations

import asyncio
from typing import Any

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes

from tests.interop.mqtt_brokers import WEB_PATH, MqttBroker
from tests.interop.paho_client import properties

pytestmark = pytest.mark.peer("aiomqtt")

VERSIONS = pytest.mark.parametrize("version", [aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5])


def client(broker: MqttBroker, identifier: str, **options: Any) -> aiomqtt.Client:
    port = broker.web_port if options.get("transport") == "websockets" else broker.port
    return aiomqtt.Client(
        broker.host, port, username="guest", password="guest", identifier=identifier, timeout=60, **options
    )


async def take(subscriber: aiomqtt.Client, count: int) -> list[aiomqtt.Message]:
    messages = []
    async with asyncio.timeout(60):
        async for message in subscriber.messages:
            messages.append(message)
            if len(messages) == count:
                break
    return messages


@VERSIONS
@pytest.mark.parametrize("transport", ["tcp", "websockets"])
def test_publish_and_iterate(
    mqtt_broker: MqttBroker, name: str, version: aiomqtt.ProtocolVersion, transport: str
) -> None:
    async def main() -> None:
        options: dict[str, Any] = {"protocol": version, "transport": transport}
        if transport == "websockets":
            options["websocket_path"] = WEB_PATH
        async with (
            client(mqtt_broker, f"{name}-s", **options) as subscriber,
            client(mqtt_broker, f"{name}-p", **options) as publisher,
        ):
            await subscriber.subscribe(f"{name}/+/temperature", qos=2)
            for qos in (0, 1, 2):
                await asyncio.gather(
                    *(publisher.publish(f"{name}/{n}/temperature", b"%d" % n, qos) for n in range(20))
                )
            messages = await take(subscriber, 60)
        found = [(str(each.topic), each.payload, each.qos) for each in messages]
        wanted = [(f"{name}/{n}/temperature", b"%d" % n, qos) for qos in (0, 1, 2) for n in range(20)]
        assert sorted(found) == sorted(wanted)

    asyncio.run(main())


def test_a_session_is_taken_up_again(mqtt_broker: MqttBroker, name: str) -> None:
    async def main() -> None:
        async with client(mqtt_broker, f"{name}-s", clean_session=False) as subscriber:
            await subscriber.subscribe(f"{name}/#", qos=1)
        async with client(mqtt_broker, f"{name}-p") as publisher:
            await publisher.publish(f"{name}/a", b"while away", qos=1)
        async with client(mqtt_broker, f"{name}-s", clean_session=False) as subscriber:
            assert [each.payload for each in await take(subscriber, 1)] == [b"while away"]
        async with client(mqtt_broker, f"{name}-s", clean_session=True):
            pass

    asyncio.run(main())


def test_a_will(mqtt_broker: MqttBroker, name: str) -> None:
    async def main() -> None:
        will = aiomqtt.Will(f"{name}/will", b"gone", qos=1)
        async with client(mqtt_broker, f"{name}-s") as subscriber:
            await subscriber.subscribe(f"{name}/#", qos=1)
            dying = client(mqtt_broker, f"{name}-d", will=will, protocol=aiomqtt.ProtocolVersion.V5)
            await dying.__aenter__()
            # Reason code 4: disconnect with will message.
            dying._client.disconnect(
                reasoncode=aiomqtt.client.ReasonCode(PacketTypes.DISCONNECT, identifier=4)
            )
            assert [each.payload for each in await take(subscriber, 1)] == [b"gone"]

    asyncio.run(main())


def test_properties(mqtt_broker: MqttBroker, name: str) -> None:
    async def main() -> None:
        async with client(mqtt_broker, name, protocol=aiomqtt.ProtocolVersion.V5) as both:
            await both.subscribe(name)
            given = properties(PacketTypes.PUBLISH, UserProperty=[("a", "1")], ContentType="text/plain")
            await both.publish(name, "text", properties=given)
            (message,) = await take(both, 1)
            assert message.properties is not None
            assert message.properties.UserProperty == [("a", "1")]
            assert message.properties.ContentType == "text/plain"

    asyncio.run(main())


def test_wrong_password(mqtt_broker: MqttBroker, name: str) -> None:
    async def main() -> None:
        wrong = aiomqtt.Client(
            mqtt_broker.host, mqtt_broker.port, username="guest", password="wrong", identifier=name
        )
        with pytest.raises(aiomqtt.MqttError):
            async with wrong:
                pass

    asyncio.run(main())
