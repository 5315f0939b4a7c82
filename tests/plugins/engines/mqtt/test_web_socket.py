"""MQTT over WebSocket: MQTT 5.0, 6."""

from __future__ import annotations

import socket

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Request, TextMessage
from wsproto.frame_protocol import CloseReason

from kernel.testing.fixtures import KernelFactory
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.packets import Pingreq, Pingresp
from tests.plugins.engines.mqtt.conftest import start
from tests.plugins.engines.mqtt.raw_client import TIMEOUT, connect_packet


class WebClient:
    """A WebSocket whose messages are in the test's hand."""

    def __init__(self, port: int, *subprotocols: str) -> None:
        self.wire = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
        self._conversation = WSConnection(ConnectionType.CLIENT)
        self._events: list[Event] = []
        self.send(Request(host="broker", target="/mqtt", subprotocols=["other", *subprotocols]))

    def send(self, event: Event) -> None:
        self.wire.sendall(self._conversation.send(event))

    def next(self) -> Event:
        while not self._events:
            data = self.wire.recv(65536)
            assert data, "the broker has closed the connection"
            self._conversation.receive_data(data)
            self._events += self._conversation.events()
        return self._events.pop(0)


@pytest.mark.parametrize("early", [False, True])
def test_packets_are_in_binary_messages(kernel_factory: KernelFactory, version: int, early: bool) -> None:
    """[MQTT-6.0.0-1], -2, -4: any other message ends the connection; packets may be cut anywhere."""
    client = WebClient(start(kernel_factory, {"address": "ws://127.0.0.1:0/mqtt"}).port, "mqtt")
    with client.wire:
        accepted = client.next()
        assert isinstance(accepted, AcceptConnection)
        assert accepted.subprotocol == "mqtt"
        if not early:
            octets = encode(connect_packet(version), version) + encode(Pingreq(), version)
            for octet in octets:
                client.send(BytesMessage(bytes((octet,))))
            pong, answer = encode(Pingresp(), version), b""
            while not answer.endswith(pong):
                came = client.next()
                assert isinstance(came, BytesMessage)
                answer += came.data
        client.send(TextMessage("\x10"))
        closed = client.next()
        assert isinstance(closed, CloseConnection)
        assert closed.code == CloseReason.UNSUPPORTED_DATA
        assert client.wire.recv(1) == b""


@pytest.mark.parametrize(
    "offered,chosen",
    [(("mqttv3.1",), "mqttv3.1"), (("mqttv3.1", "mqtt"), "mqtt"), (("mqtt", "mqttv3.1"), "mqtt")],
)
def test_the_name_of_mqtt_3_1_is_known(
    kernel_factory: KernelFactory, offered: tuple[str, ...], chosen: str
) -> None:
    """Paho's client for browsers says it; mosquitto takes it."""
    client = WebClient(start(kernel_factory, {"address": "ws://127.0.0.1:0/mqtt"}).port, *offered)
    with client.wire:
        accepted = client.next()
        assert isinstance(accepted, AcceptConnection)
        assert accepted.subprotocol == chosen
