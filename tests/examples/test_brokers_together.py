"""The examples in which brokers pass messages on to each other."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.examples.test_examples import TIMEOUT, _kernel_run, spawned
from tests.interop.mqtt_brokers import Mosquitto
from tests.interop.until import until
from tests.plugins.engines.mqtt.lasting_client import LastingClient
from tests.plugins.engines.stomp.raw_client import RawStomp
from tests.ports import free_port

__all__ = ["spawned"]

pytestmark = pytest.mark.peer("pika")


@pytest.fixture(autouse=True)
def _ports(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "SOURCE_PORT",
        "DESTINATION_PORT",
        "NORTH_PORT",
        "EAST_PORT",
        "WEST_PORT",
        "AMQP_PORT",
        "MQTT_PORT",
        "STOMP_PORT",
    ):
        monkeypatch.setenv(name, str(free_port()))


def _connect(port: str):  # type: ignore[no-untyped-def]  # pika has no types
    import pika

    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", int(os.environ[port])))


def _get(channel, queue: str) -> bytes:  # type: ignore[no-untyped-def]
    """Poll for a message: it comes from another process."""
    deadline = monotonic() + TIMEOUT
    while (got := channel.basic_get(queue, auto_ack=True))[0] is None:
        assert monotonic() < deadline, f"nothing in {queue}"
        sleep(0.01)
    return bytes(got[2])


def test_the_shovel_moves_what_waits(
    spawned: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SOURCE_PORT", "DESTINATION_PORT"):
        monkeypatch.setenv("AMQP_PORT", os.environ[name])
        _kernel_run(spawned, "broker.toml")
    with _connect("SOURCE_PORT") as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        channel.basic_publish("", "orders", b"tea")
        channel.basic_publish("", "orders", b"milk")
    _kernel_run(spawned, "shovel.toml")
    with _connect("DESTINATION_PORT") as connection:
        channel = connection.channel()
        channel.queue_declare("all orders", durable=True)
        assert [_get(channel, "all orders") for _ in range(2)] == [b"tea", b"milk"]


@pytest.mark.parametrize("example", ["federation.toml", "federation_in_processes.toml"])
def test_federated_brokers_share_their_feed(spawned: list[subprocess.Popen[str]], example: str) -> None:
    _kernel_run(spawned, example)
    places = ("NORTH_PORT", "EAST_PORT", "WEST_PORT")
    connections = [_connect(place) for place in places]
    channels = [connection.channel() for connection in connections]
    for channel in channels:
        channel.queue_declare("q")
        channel.queue_bind("q", "feed", "weather.#")
    got: list[list[bytes]] = [[], [], []]
    every = {b"%d" % number for number in range(3)}
    deadline = monotonic() + TIMEOUT
    while any(not every <= set(bodies) for bodies in got):  # until each wish has gone round the ring
        assert monotonic() < deadline, got
        _publish_everywhere(channels, b"%d")
        _read(channels, got)
    _publish_everywhere(channels, b"last %d")
    every = {b"last %d" % number for number in range(3)}
    while any(not every <= set(bodies) for bodies in got):
        assert monotonic() < deadline, got
        _read(channels, got)
    assert [sum(body in every for body in bodies) for bodies in got] == [3, 3, 3]
    for connection in connections:
        connection.close()


def _publish_everywhere(channels, text: bytes) -> None:  # type: ignore[no-untyped-def]
    for number, channel in enumerate(channels):
        channel.basic_publish("feed", "weather.here", text % number)


def _read(channels, got: list[list[bytes]]) -> None:  # type: ignore[no-untyped-def]
    for channel, bodies in zip(channels, got, strict=True):
        while (message := channel.basic_get("q", auto_ack=True))[0] is not None:
            bodies.append(bytes(message[2]))
    sleep(0.01)


@pytest.mark.peer("mosquitto")
def test_the_bridge_to_mosquitto_carries_both_ways(
    spawned: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    there = Mosquitto(tmp_path)
    for name, value in (("PORT", str(there.mqtt.port)), ("USER", "guest"), ("PASSWORD", "guest")):
        monkeypatch.setenv(f"MQTT_BRIDGE_{name}", value)
    client = LastingClient(there.mqtt.port, "plant", [("commands/#", 1)])
    try:
        while not client.is_subscribed:
            client.go_on(1.0)
        _kernel_run(spawned, "mqtt_bridge.toml")
        with _connect("AMQP_PORT") as connection:
            channel = connection.channel()
            channel.queue_declare("readings")
            channel.queue_bind("readings", "amq.topic", "readings.#")
            channel.basic_publish("amq.topic", "commands.oven", b"heat")

            def arrived() -> bool:
                client.go_on(0.1)
                return bool(client.got)

            # The bridge publishes when its subscription is there, so from now on readings come.
            until(arrived)
            assert client.got == [("commands/oven", b"heat", 0)]
            client.publish([("readings/oven", b"200", 1)])
            client.go_on(0.1)
            assert _get(channel, "readings") == b"200"
    finally:
        client.close()
        there.stop()


def test_the_bridge_to_a_stomp_broker_carries_both_ways(
    spawned: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The other broker is the same example, whose own bridge finds nobody.
    there = free_port()
    for amqp, stomp, bridge in ((free_port(), there, free_port()), (free_port(), free_port(), there)):
        for name, port in (("AMQP_PORT", amqp), ("STOMP_PORT", stomp), ("STOMP_BRIDGE_PORT", bridge)):
            monkeypatch.setenv(name, str(port))
        if stomp == there:
            _kernel_run(spawned, "stomp_bridge.toml")
            client = RawStomp(there)
            client.connect()
            assert client.ask("SUBSCRIBE", id="1", destination="/topic/commands.#").command == "RECEIPT"
    _kernel_run(spawned, "stomp_bridge.toml")
    with client, _connect("AMQP_PORT") as connection:
        channel = connection.channel()
        channel.queue_declare("readings")
        channel.queue_bind("readings", "amq.topic", "readings.#")
        channel.basic_publish("amq.topic", "commands.oven", b"heat")
        # The bridge publishes when its subscription is there, so from now on readings come.
        message = client.next()
        assert (message["destination"], message.body) == ("/topic/commands.oven", b"heat")
        client.send("SEND", b"200", destination="/topic/readings.oven")
        assert _get(channel, "readings") == b"200"
