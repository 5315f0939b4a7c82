"""A client as small as can be: our protocol on a blocking socket.  It measures brokers, not clients."""

from __future__ import annotations

import socket
import time
from typing import TypeVar

import msgspec

from kernel.contracts.message import Envelope, batch_of
from plugins.protocols.amqp091.connection import ClientConnection
from plugins.protocols.amqp091.credentials import plain_response
from plugins.protocols.amqp091.events import ChannelOpened, ConnectionOpened, Delivered, Event, MethodReceived
from plugins.protocols.amqp091.methods import basic
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.options import ClientOptions

CHANNEL = 1
READ_BYTES = 1 << 18
WRITE_BYTES = 1 << 18
_ROOM = bytearray(READ_BYTES)
_OPTIONS = ClientOptions(heartbeat=0, response=plain_response("guest", "guest"))

Answer = TypeVar("Answer", bound=Method)


class BareClient:
    """A connection with one open channel."""

    def __init__(self, address: str, virtual_host: str = "/") -> None:
        host, _, port = address.rpartition("/")[2].partition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A block of messages is written without waiting for the broker to read it.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, WRITE_BYTES)
        options = msgspec.structs.replace(_OPTIONS, virtual_host=virtual_host)
        self.connection = ClientConnection(options, time.monotonic())
        self._wait_for(ConnectionOpened)
        self.connection.open_channel(CHANNEL)
        self._wait_for(ChannelOpened)

    def call(self, method: Method, answer: type[Answer]) -> Answer:
        """Send a method and return what answers it."""
        self.connection.send_method(CHANNEL, method)
        while True:
            for event in self.turn():
                if isinstance(event, MethodReceived) and isinstance(event.method, answer):
                    return event.method

    def consume(self, queue: str, tag: str = "c") -> None:
        """Start a consumer that does not acknowledge."""
        self.call(basic.Consume(queue=queue, consumer_tag=tag, no_ack=True), basic.ConsumeOk)

    def encoded(self, bodies: list[bytes], key: str, exchange: str = "") -> bytes:
        """Return what publishes these bodies; nothing is sent."""
        self.connection.publish(CHANNEL, batch_of(bodies, Envelope(key=key, exchange=exchange)))
        return b"".join(self.connection.data_to_send())

    def turn(self) -> list[Event]:
        """Write what there is to write, read once."""
        self.socket.sendall(b"".join(self.connection.data_to_send()))
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise EOFError("the broker hung up")
        return self.connection.receive_data(data, time.monotonic())

    def measure_deliveries(self, published: bytes, count: int) -> int:
        """Write bytes that publish messages; return the number of bytes of the ``count`` deliveries."""
        self.socket.sendall(published)
        size = 0
        while count > 0:
            data = self.socket.recv(READ_BYTES)
            size += len(data)
            events = self.connection.receive_data(data, time.monotonic())
            count -= sum(len(event.batch.bodies) for event in events if isinstance(event, Delivered))
        return size

    def count(self) -> int:
        """Read once and drop the bytes; return their number.

        All reads use one buffer: a new one for each read is memory that is mapped and returned each time,
        however little of it is filled.
        """
        return self.socket.recv_into(_ROOM)

    def _wait_for(self, kind: type[Event]) -> None:
        while not any(isinstance(event, kind) for event in self.turn()):
            pass
