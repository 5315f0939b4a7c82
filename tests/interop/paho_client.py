"""paho-mqtt as its users have it, in a thread of its own; calls here wait for what they have caused."""

from __future__ import annotations

import queue
import socket
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.interop.mqtt_brokers import WEB_PATH, MqttBroker

TIMEOUT = 60.0


def properties(kind: int, **values: Any) -> Properties:
    """Return properties of a packet, by paho's names of their attributes."""
    made = Properties(kind)
    for name, value in values.items():
        setattr(made, name, value)
    return made


class Paho:
    """One client of paho."""

    def __init__(
        self,
        broker: MqttBroker,
        client_id: str,
        *,
        version: int = 4,
        transport: str = "tcp",
        clean: bool = True,
        expiry: int = 0,
        will: dict[str, Any] | None = None,
        tls: bool = False,
        user: str = "guest",
        password: str = "guest",
        set_up: Callable[[mqtt.Client], None] = lambda client: None,
        manual_ack: bool = False,
    ) -> None:
        """``expiry``: of the session, seconds, with version 5."""
        self.got: queue.Queue[mqtt.MQTTMessage] = queue.Queue()
        self.connected: queue.Queue[tuple[Any, Any, Any]] = queue.Queue()
        self.disconnected: queue.Queue[Any] = queue.Queue()
        self._subscribed: queue.Queue[tuple[int, Any]] = queue.Queue()
        self._unsubscribed: queue.Queue[int] = queue.Queue()
        options: dict[str, Any] = {} if version == 5 else {"clean_session": clean}
        self.client = client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=mqtt.MQTTv5 if version == 5 else mqtt.MQTTv311,
            transport=transport,  # type: ignore[arg-type]
            reconnect_on_failure=False,
            manual_ack=manual_ack,
            **options,
        )
        client.username_pw_set(user, password)
        client.on_message = lambda client, _, message: self.got.put(message)
        client.on_connect = lambda client, _, flags, code, given: self.connected.put((flags, code, given))
        client.on_disconnect = lambda client, _, flags, code, given: self.disconnected.put(code)
        client.on_subscribe = lambda client, _, mid, codes, given: self._subscribed.put((mid, codes))
        client.on_unsubscribe = lambda client, _, mid, codes, given: self._unsubscribed.put(mid)
        if will is not None:
            client.will_set(**will)
        if tls:
            client.tls_set(broker.authority)
        set_up(client)
        port = broker.port
        if transport == "websockets":
            client.ws_set_options(WEB_PATH)
            port = broker.web_port
        elif tls:
            port = broker.tls_port
        arguments: dict[str, Any] = {}
        if version == 5:
            wanted = properties(PacketTypes.CONNECT, SessionExpiryInterval=expiry) if expiry else None
            arguments = {"clean_start": clean, "properties": wanted}
        if transport == "unix":
            client.connect(broker.unix, **arguments)
        else:
            client.connect(broker.host, port, **arguments)
        client.loop_start()
        self.flags, self.code, self.properties = self.connected.get(timeout=TIMEOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect in good order."""
        self.client.disconnect()
        self.client.loop_stop()

    def drop(self) -> None:
        """Lose the connection."""
        wire = self.client.socket()
        assert wire is not None
        with suppress(OSError):
            wire.shutdown(socket.SHUT_RDWR)
        self.client.loop_stop()

    def come_back(self) -> None:
        """Connect again after the connection was lost, with what this client knows of its session."""
        self.disconnected.get(timeout=TIMEOUT)
        self.client.loop_stop()
        # ``loop_start`` makes new ones, and leaves these open.
        self.client._reset_sockets(sockpair_only=True)
        self.client.reconnect()
        self.client.loop_start()
        self.flags, self.code, self.properties = self.connected.get(timeout=TIMEOUT)

    def subscribe(self, topic_filter: str, qos: int = 0, **arguments: Any) -> Any:
        """Subscribe, wait for SUBACK, and return its reason code."""
        options = arguments.pop("options", None)
        if options is not None:
            _, mid = self.client.subscribe(
                topic_filter, options=SubscribeOptions(qos, **options), **arguments
            )
        else:
            _, mid = self.client.subscribe(topic_filter, qos, **arguments)
        answered, codes = self._subscribed.get(timeout=TIMEOUT)
        assert answered == mid
        return codes[0]

    def unsubscribe(self, topic_filter: str) -> None:
        """Unsubscribe, and wait for UNSUBACK."""
        _, mid = self.client.unsubscribe(topic_filter)
        assert self._unsubscribed.get(timeout=TIMEOUT) == mid

    def publish(
        self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False, **values: Any
    ) -> None:
        """Publish, and wait until the message has been sent, or acknowledged."""
        given = properties(PacketTypes.PUBLISH, **values) if values else None
        self.client.publish(topic, payload, qos, retain, given).wait_for_publish(TIMEOUT)

    def next(self) -> mqtt.MQTTMessage:
        """Return the next message."""
        return self.got.get(timeout=TIMEOUT)

    def bodies(self, count: int) -> list[bytes]:
        """Return the payloads of the next messages."""
        return [bytes(self.next().payload) for _ in range(count)]
