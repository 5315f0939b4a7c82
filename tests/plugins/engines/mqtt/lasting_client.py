"""A client of MQTT 3.1.1 whose half of a session outlives connections, as the specification wants it (4.4).

It speaks through our own codec, and keeps what it has to keep: so what a broker loses or doubles is seen.
As a process, `python -m tests.plugins.engines.mqtt.lasting_client PORT CLIENT NOTES publish|subscribe`, it notes each step in
a file before it takes it, so that it may be killed at any moment: the next process goes on from these notes.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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
_AT_ONCE = 10
"""Messages that a process decides to publish at a time."""
FILTERS = (("once/#", 2), ("least/#", 1))
"""What a process subscribes to."""


def messages(first: int, stop: int) -> list[tuple[str, bytes, int]]:
    """Return what is published: two of three messages with QoS 2, the others with QoS 1."""
    return [
        ("once/a", b"%d" % number, 2) if number % 3 else ("least/a", b"%d" % number, 1)
        for number in range(first, stop)
    ]


def read_notes(file: Path) -> list[list[Any]]:
    """Return the notes that a process has made; the last may have been cut off."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().rpartition("\n")[0].splitlines()]


class _Notes:
    """The file of a process: one system call a note, which a kill -9 cannot take back."""

    def __init__(self, file: Path) -> None:
        self.before = read_notes(file)
        whole = file.read_bytes().rpartition(b"\n") if file.exists() else (b"", b"", b"")
        self._descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
        os.ftruncate(self._descriptor, len(whole[0]) + len(whole[1]))
        os.lseek(self._descriptor, 0, os.SEEK_END)

    def note(self, *what: Any) -> None:
        os.write(self._descriptor, json.dumps(what).encode() + b"\n")


class LastingClient:
    """Publishes and receives; ``go_on`` connects again whenever the connection is lost."""

    def __init__(
        self, port: int, client_id: str, filters: Sequence[tuple[str, int]] = (), notes: _Notes | None = None
    ) -> None:
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
        self._notes = notes
        for note in [] if notes is None else notes.before:
            self._remember(note)

    def _note(self, *what: Any) -> None:
        if self._notes is not None:
            self._notes.note(*what)

    def _remember(self, note: list[Any]) -> None:
        """Do again what a note says, without the connection."""
        what, *rest = note
        if what == "connected":
            self.connections += 1
        elif what == "sent":
            number, topic, payload, qos = rest
            self._next_id = number
            self._sent[number] = (topic, payload.encode(), qos)
        elif what == "got":
            if rest[3] == 2:
                self._received.add(rest[0])
        elif what == "subscribed":
            self.is_subscribed = True
        elif what == "discarded":
            self._received.difference_update(rest[0])
        else:
            for number in rest[0]:
                self._sent.pop(number, None)
                self._released.pop(number, None)
                if what == "released":
                    self._released[number] = None

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
    def wants_more(self) -> bool:
        """Whether it has begun to send all that it was to publish."""
        return not self._topics

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
        self._note("connected")
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
            self._note("sent", self._next_id, message[0], message[1].decode(), message[2])
            self._send(connected, self._next_id, message)

    def _send(
        self, connected: socket.socket, number: int, message: tuple[str, bytes, int], *, dup: bool = False
    ) -> None:
        connected.sendall(encode(_a_publish(number, message, dup=dup), 4))

    def _take(self, connected: socket.socket, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self._on_publish(connected, packet)
        elif not isinstance(packet, Acknowledgement):
            self._note("subscribed")
            self.is_subscribed = True
        elif packet.kind == PacketType.PUBREL:
            self._note("discarded", list(packet.ids))
            self._received.difference_update(packet.ids)
            connected.sendall(acknowledge(PacketType.PUBCOMP, packet.ids))
        elif packet.kind == PacketType.PUBREC:
            self._note("released", list(packet.ids))
            for number in packet.ids:
                self._sent.pop(number, None)
                self._released[number] = None
            connected.sendall(acknowledge(PacketType.PUBREL, packet.ids))
        else:
            self._note("done", list(packet.ids))
            for number in packet.ids:
                self._sent.pop(number, None)
                self._released.pop(number, None)

    def _on_publish(self, connected: socket.socket, packet: Publish) -> None:
        for at, payload in enumerate(packet.payloads):
            message = (packet.topic, bytes(payload), packet.qos)
            number = packet.ids[at] if packet.qos else 0
            if packet.qos < 2 or number not in self._received:
                self._note("got", number, packet.topic, message[1].decode(), packet.qos)
                self.got.append(message)
            if packet.qos == 1:
                connected.sendall(acknowledge(PacketType.PUBACK, [number]))
            elif packet.qos:
                self._received.add(number)
                connected.sendall(acknowledge(PacketType.PUBREC, [number]))


def _a_publish(number: int, message: tuple[str, bytes, int], *, dup: bool = False) -> Publish:
    topic, payload, qos = message
    head = PublishHead(topic=topic, properties=NO_PROPERTIES)
    return Publish(head, [payload], len(payload), 0, qos=qos, ids=[number], dup=dup)


def _run(port: int, client_id: str, file: Path, role: str) -> None:
    notes = _Notes(file)
    client = LastingClient(port, client_id, FILTERS if role == "subscribe" else (), notes)
    published = sum(note[0] == "sent" for note in notes.before)
    while role == "subscribe" or not (client.is_done and enough(file).exists()):
        if role == "publish" and client.wants_more and not enough(file).exists():
            client.publish(messages(published, published + _AT_ONCE))
            published += _AT_ONCE
        client.go_on(0.05)


def enough(file: Path) -> Path:
    """Return the file that says to a process with these notes that it has published enough."""
    return file.with_suffix(".enough")


if __name__ == "__main__":
    _run(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4])
