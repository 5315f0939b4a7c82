"""A client of MQTT 3.1.1 whose half of a session outlives connections, as the specification wants it (4.4).

It speaks through our own codec, and keeps what it has to keep: so what a broker loses or doubles is seen.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Sequence

from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.packets import (
    Acknowledgement,
    Connack,
    Connect,
    Packet,
    Publish,
    PublishHead,
    Subscribe,
    Subscription,
)
from plugins.protocols.mqtt.parser import Parser
from plugins.protocols.mqtt.properties import NO_PROPERTIES
from plugins.protocols.mqtt.publishing import acknowledge

TIMEOUT = 60.0
_WINDOW = 30
"""Messages that it publishes before the first is acknowledged."""


class LastingClient:
    """Publishes and receives; ``go_on`` connects again whenever the connection is lost."""

    def __init__(self, port: int, client_id: str, filters: Sequence[tuple[str, int]] = ()) -> None:
        self.port = port
        self.got: list[tuple[str, bytes, int]] = []
        """Topic, payload and QoS of what was received; of QoS 2 once for each identifier in use."""
        self._client_id = client_id
        self._filters = filters
        self._topics: list[tuple[str, bytes, int]] = []
        self._next_id = 0
        self._sent: dict[int, tuple[str, bytes, int]] = {}
        self._released: dict[int, None] = {}
        self._received: set[int] = set()
        self._parser: Parser | None = None
        self._socket: socket.socket | None = None
        self.connections = 0
        self.is_subscribed = not filters

    def close(self) -> None:
        """Lose the connection, keep the session."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def die(self) -> None:
        """End as a process does that is killed in the middle of a packet: nothing more is read, and the peer is reset."""
        if self._socket is None:
            return
        try:
            self._socket.sendall(encode(_a_publish(1, ("cut", b"x" * 100, 1)), 4)[:50])
        except OSError:
            pass  # the broker was killed first
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def publish(self, messages: Sequence[tuple[str, bytes, int]]) -> None:
        """Have messages published: topic, payload, QoS 1 or 2."""
        self._topics += messages

    @property
    def is_done(self) -> bool:
        """Whether all that it was to publish is acknowledged."""
        return not (self._topics or self._sent or self._released)

    def go_on(self, seconds: float) -> None:
        """Send and receive for a while; connect first if need be."""
        try:
            if self._socket is None:
                self._connect()
            connected = self._socket
            assert connected is not None, "it has just connected"
            self._publish_more(connected)
            connected.settimeout(seconds)
            try:
                data = connected.recv(65536)
            except TimeoutError:
                return
            if not data:
                raise ConnectionResetError
            for packet in self._read(data):
                self._take(connected, packet)
        except OSError:
            # The broker was killed, or does not listen yet.
            self.close()
            time.sleep(0.01)

    def _read(self, data: bytes) -> Iterator[Packet]:
        assert self._parser is not None, "it is connected"
        yield from self._parser.receive_data(data)

    def _connect(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)
        self._parser = Parser("client", version=4)
        hello = Connect(
            level=4, client_id=self._client_id, clean_start=False, user_name="guest", password=b"guest"
        )
        self._socket.sendall(encode(hello, 4))
        packets: list[Packet] = []
        while not packets:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionResetError
            packets += self._read(data)
        answer = packets.pop(0)
        assert isinstance(answer, Connack)
        assert answer.reason_code == 0
        # Whoever was connected has a session, whatever happened to the broker.
        assert answer.session_present or not self.connections, "the session is lost"
        self.connections += 1
        if self._filters:
            wanted = tuple(Subscription(topic, qos) for topic, qos in self._filters)
            self._socket.sendall(encode(Subscribe(65_535, wanted), 4))
        for number, message in self._sent.items():
            self._send(self._socket, number, message, dup=True)
        for number in self._released:
            self._socket.sendall(acknowledge(PacketType.PUBREL, [number]))
        for packet in packets:
            self._take(self._socket, packet)

    def _publish_more(self, connected: socket.socket) -> None:
        while self._topics and len(self._sent) + len(self._released) < _WINDOW:
            self._next_id = self._next_id % 1000 + 1
            if self._next_id in self._sent or self._next_id in self._released:
                return
            message = self._sent[self._next_id] = self._topics.pop(0)
            self._send(connected, self._next_id, message)

    def _send(
        self, connected: socket.socket, number: int, message: tuple[str, bytes, int], *, dup: bool = False
    ) -> None:
        connected.sendall(encode(_a_publish(number, message, dup=dup), 4))

    def _take(self, connected: socket.socket, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self._on_publish(connected, packet)
        elif not isinstance(packet, Acknowledgement):
            self.is_subscribed = True
        elif packet.kind == PacketType.PUBREL:
            self._received.difference_update(packet.ids)
            connected.sendall(acknowledge(PacketType.PUBCOMP, packet.ids))
        elif packet.kind == PacketType.PUBREC:
            for number in packet.ids:
                self._sent.pop(number, None)
                self._released[number] = None
            connected.sendall(acknowledge(PacketType.PUBREL, packet.ids))
        else:
            for number in packet.ids:
                self._sent.pop(number, None)
                self._released.pop(number, None)

    def _on_publish(self, connected: socket.socket, packet: Publish) -> None:
        for at, payload in enumerate(packet.payloads):
            message = (packet.topic, bytes(payload), packet.qos)
            if packet.qos < 2:
                self.got.append(message)
                if packet.qos:
                    connected.sendall(acknowledge(PacketType.PUBACK, [packet.ids[at]]))
            else:
                number = packet.ids[at]
                if number not in self._received:
                    self._received.add(number)
                    self.got.append(message)
                connected.sendall(acknowledge(PacketType.PUBREC, [number]))


def _a_publish(number: int, message: tuple[str, bytes, int], *, dup: bool = False) -> Publish:
    topic, payload, qos = message
    head = PublishHead(topic=topic, properties=NO_PROPERTIES)
    return Publish(head, [payload], len(payload), 0, qos=qos, ids=[number], dup=dup)
