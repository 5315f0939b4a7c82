"""A client that sends any packet, sensible or not, and tells what came back."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Self

import msgspec

from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.packets import (
    Acknowledgement,
    AcknowledgementType,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    PublishHead,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from plugins.protocols.mqtt.parser import Parser
from plugins.protocols.mqtt.properties import NO_PROPERTIES, Properties
from plugins.protocols.mqtt.topics import split_share

TIMEOUT = 60.0
"""Seconds until a server that says nothing is taken for stuck."""

PUBACK, PUBREC, PUBREL, PUBCOMP = (
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
)


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One PUBLISH that has come."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    id: int
    """0 with QoS 0."""
    properties: Properties


class Ack(msgspec.Struct, frozen=True):
    """One PUBACK, PUBREC, PUBREL or PUBCOMP that has come."""

    kind: PacketType
    id: int
    code: int = 0


Came = Message | Ack | Packet


def publish(
    topic: str,
    payload: bytes = b"x",
    qos: int = 0,
    number: int = 1,
    *,
    retain: bool = False,
    dup: bool = False,
    **properties: Any,
) -> Publish:
    """Return a PUBLISH of one message."""
    head = PublishHead(topic=topic, properties=Properties(**properties) if properties else NO_PROPERTIES)
    return Publish(
        head, [payload], len(payload), len(payload), qos, (number,) if qos else (), retain=retain, dup=dup
    )


def subscription(name: str, qos: int = 0, **options: Any) -> Subscription:
    """Return a subscription; ``name`` is the filter with ``$share/NAME/``."""
    share, topic_filter = split_share(name)
    return Subscription(topic_filter, qos, share_name=share, **options)


def kept(version: int, client_id: str = "c", **more: Any) -> dict[str, Any]:
    """What a CONNECT has if its session outlives the connection."""
    session: dict[str, Any] = {"client_id": client_id, "clean_start": False, **more}
    return session | ({"session_expiry_interval": 60} if version == 5 else {})


class RawClient:
    """One connection."""

    def __init__(
        self, wire: socket.socket, version: int = 5, process: Callable[[], object] = lambda: None
    ) -> None:
        """``process`` has the server do what it has to do, if no thread of its own does it."""
        self.wire = wire
        self.version = version
        self.connack: Connack
        self._process = process
        self._parser = Parser("client", version=version)
        self._came: deque[Came] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection without a DISCONNECT, and let the server see that."""
        self.wire.close()
        self._process()

    # Sending

    def send(self, *packets: Packet) -> None:
        """Send packets in one write."""
        self.send_bytes(b"".join([encode(packet, self.version) for packet in packets]))

    def send_bytes(self, octets: bytes) -> None:
        self.wire.sendall(octets)
        self._process()

    def ack(self, kind: AcknowledgementType, *ids: int, code: int = 0) -> None:
        self.send(*[Acknowledgement(kind, (number,), code) for number in ids])

    def disconnect(self, code: int = 0, **properties: Any) -> None:
        """Send DISCONNECT, and wait until the server has closed the connection."""
        self.send(Disconnect(code, Properties(**properties) if properties else NO_PROPERTIES))
        while self._receive():
            pass
        self.close()

    # Receiving

    def next(self) -> Came:
        """Return what comes next."""
        while not self._came:
            assert self._receive(), "the server has closed the connection"
        return self._came.popleft()

    def expect(self, wanted: Any) -> Any:
        """Take what comes next; it has to be equal to ``wanted``, or of this class."""
        came = self.next()
        if isinstance(wanted, type):
            assert isinstance(came, wanted), f"wanted {wanted.__name__}, got {came}"
        else:
            assert came == wanted
        return came

    def expect_message(
        self,
        topic: str,
        payload: bytes = b"x",
        qos: int = 0,
        *,
        retain: bool = False,
        dup: bool = False,
        **properties: Any,
    ) -> int:
        """Take a message that is so; return its packet identifier."""
        came = self.expect(Message)
        assert isinstance(came, Message)
        wanted = Message(
            topic=topic,
            payload=payload,
            qos=qos,
            retain=retain,
            dup=dup,
            id=came.id,
            properties=Properties(**properties) if properties else NO_PROPERTIES,
        )
        assert came == wanted
        assert bool(came.id) == bool(qos)
        return came.id

    def expect_acks(self, kind: PacketType, *ids: int, code: int = 0) -> None:
        for number in ids:
            self.expect(Ack(kind, number, code))

    def expect_nothing(self) -> None:
        """Nothing has come, and nothing is under way: the server answers in order."""
        for _ in range(2):
            self.send(Pingreq())
            self.expect(Pingresp())

    sync = expect_nothing
    """The server has done what was sent before."""

    def expect_close(self) -> None:
        """The server closes the connection, and says nothing before."""
        assert not self._came, list(self._came)
        try:
            more = self._receive()
        except ConnectionResetError:
            more = False
        assert not more, list(self._came)
        self.close()

    def expect_end(self, code: int) -> Disconnect | None:
        """The server ends the connection; it says why if the version can."""
        said = None
        if self.version == 5:
            said = self.expect(Disconnect)
            assert isinstance(said, Disconnect)
            assert said.reason_code == code, said
        self.expect_close()
        return said

    def _receive(self) -> bool:
        """Read what has come; False if the connection is over."""
        self._process()
        data = self.wire.recv(1 << 16)
        if not data:
            return False
        for packet in self._parser.receive_data(data):
            if isinstance(packet, Publish):
                for index, payload in enumerate(packet.payloads):
                    self._came.append(_message(packet, bytes(payload), index))
            elif isinstance(packet, Acknowledgement):
                # The broker has nothing to say in them.
                assert packet.properties == NO_PROPERTIES
                self._came += [Ack(packet.kind, number, packet.reason_code) for number in packet.ids]
            else:
                self._came.append(packet)
        return True

    # Whole exchanges

    def connect(self, **connect: Any) -> Connack:
        """Send CONNECT and return the CONNACK."""
        aliases = connect.get("topic_alias_maximum", 0)
        self._parser = Parser("client", version=self.version, topic_alias_maximum=aliases)
        self.send(connect_packet(self.version, **connect))
        self.connack = self.expect(Connack)
        return self.connack

    def subscribe(
        self, *wanted: str | Subscription, qos: int = 0, number: int = 9, identifier: int = 0
    ) -> Any:
        """Subscribe and return the reason codes.  Messages must not come before the SUBACK."""
        subscriptions = tuple([subscription(one, qos) if isinstance(one, str) else one for one in wanted])
        properties = Properties(subscription_identifiers=(identifier,)) if identifier else NO_PROPERTIES
        self.send(Subscribe(number, subscriptions, properties))
        answer = self.expect(Suback)
        assert answer.properties == NO_PROPERTIES
        assert answer.id == number
        return answer.reason_codes

    def unsubscribe(self, *names: str, number: int = 8) -> Any:
        self.send(Unsubscribe(number, names))
        answer = self.expect(Unsuback)
        assert answer.properties == NO_PROPERTIES
        assert answer.id == number
        return answer.reason_codes

    def publish(self, topic: str, payload: bytes = b"x", qos: int = 0, number: int = 1, **more: Any) -> int:
        """Publish a message, have it acknowledged; return the reason code."""
        self.send(publish(topic, payload, qos, number, **more))
        if not qos:
            self.sync()
            return 0
        answer = self.expect(Ack)
        assert isinstance(answer, Ack)
        assert (answer.kind, answer.id) == (PUBACK if qos == 1 else PUBREC, number)
        if qos == 2 and answer.code < 0x80:
            self.ack(PUBREL, number)
            self.expect_acks(PUBCOMP, number)
        return answer.code


def connect_packet(version: int, **connect: Any) -> Connect:
    """Return a CONNECT of the user ``guest``, unless told otherwise."""
    fields = set(Connect.__struct_fields__)
    properties = {name: connect.pop(name) for name in list(connect) if name not in fields}
    packet = {"level": version, "user_name": "guest", "password": b"guest", **connect}
    return Connect(**packet, properties=Properties(**properties) if properties else NO_PROPERTIES)


def all_that_came(client: RawClient) -> list[Came]:
    """Return what has come from a broker in the test's own thread."""
    client.wire.settimeout(0)
    found: list[Came] = []
    try:
        while True:
            found.append(client.next())
    except BlockingIOError:
        client.wire.settimeout(TIMEOUT)
    return found


def everything(client: RawClient) -> list[Message]:
    """Return the messages that have come; nothing else must have."""
    found: list[Message] = []
    for came in all_that_came(client):
        assert isinstance(came, Message), came
        found.append(came)
    return found


def will(topic: str, payload: bytes = b"will", qos: int = 0, *, retain: bool = False, **more: Any) -> Will:
    return Will(topic, payload, qos, retain, Properties(**more) if more else NO_PROPERTIES)


def _message(packet: Publish, payload: bytes, index: int) -> Message:
    return Message(
        topic=packet.topic,
        payload=payload,
        qos=packet.qos,
        retain=packet.retain,
        dup=packet.dup,
        id=packet.ids[index] if packet.ids else 0,
        properties=packet.properties,
    )
