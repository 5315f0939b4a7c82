"""A client as small as can be: made bytes on a blocking socket.  It measures brokers, not clients."""

from __future__ import annotations

import socket

from benchmarks.streams import READ_BYTES, Stream
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.packets import Connect, Disconnect, Pingreq, Subscribe, Subscription
from plugins.protocols.mqtt.publishing import PublishPrefix, publish_batch

VERSION = 4
DISCONNECT = encode(Disconnect(), VERSION)
_PINGREQ = encode(Pingreq(), VERSION)
_CONNACK_SIZE, _SUBACK_SIZE, _PINGRESP_SIZE = 4, 5, 2


def connect(client_id: str, *, clean: bool = True) -> bytes:
    """Return a CONNECT."""
    return encode(Connect(level=VERSION, client_id=client_id, clean_start=clean, keep_alive=600), VERSION)


class BareClient(Stream):
    """A connection."""

    def __init__(self, address: str, client_id: str, *, clean: bool = True) -> None:
        super().__init__(address)
        self.socket.sendall(connect(client_id, clean=clean))
        answer = self.read_exactly(_CONNACK_SIZE)
        if answer[3]:
            raise ConnectionError(f"the broker refuses the connection with code {answer[3]}")

    def subscribe(self, topic_filter: str, qos: int) -> None:
        """Subscribe, and wait for the answer."""
        self.socket.sendall(subscribe(topic_filter, qos))
        self.read_exactly(_SUBACK_SIZE)

    def ping(self) -> None:
        """Make a round trip."""
        self.socket.sendall(_PINGREQ)
        self.read_exactly(_PINGRESP_SIZE)

    def close(self) -> None:
        """Disconnect, and wait until the broker has done so as well."""
        self.socket.sendall(DISCONNECT)
        self.socket.shutdown(socket.SHUT_WR)
        while self.socket.recv(READ_BYTES):
            pass
        self.socket.close()


def subscribe(topic_filter: str, qos: int) -> bytes:
    """Return a SUBSCRIBE."""
    return encode(Subscribe(1, (Subscription(topic_filter, qos),)), VERSION)


def publish(topic: str, body: bytes, qos: int, ids: range, *, retain: bool = False) -> bytes:
    """Return a PUBLISH with each of these packet identifiers; with QoS 0 as many without one."""
    prefix = PublishPrefix(VERSION, topic, qos=qos, retain=retain)
    return b"".join(publish_batch(prefix, [body] * len(ids), ids if qos else (), len(body)))
