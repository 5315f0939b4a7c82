"""A client that sends any method, sensible or not, and tells what came back."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from struct import pack
from typing import Any, Self, TypeVar

from plugins.protocols.amqp091.connection import ClientConnection
from plugins.protocols.amqp091.content import encode_properties
from plugins.protocols.amqp091.events import (
    ChannelClosed,
    ChannelOpened,
    ConnectionClosed,
    ConnectionOpened,
    Delivered,
    Event,
    Got,
    MethodReceived,
)
from plugins.protocols.amqp091.frames import BODY, HEADER, METHOD
from plugins.protocols.amqp091.methods import basic
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.options import ClientOptions

TIMEOUT = 60.0
"""Seconds until a server that says nothing is taken for stuck."""

SomeEvent = TypeVar("SomeEvent", bound=Event)
SomeMethod = TypeVar("SomeMethod", bound=Method)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


class RawClient:
    """One connection with channel 1 open."""

    def __init__(self, port: int = 0, wire: socket.socket | None = None, **options: Any) -> None:
        """``wire``: instead of a connection to a port of this machine."""
        self._socket = wire or socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
        if wire is None:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = ClientConnection(ClientOptions(**{"heartbeat": 0, **options}), 0.0)
        self._events: list[Event] = []
        try:
            self.wait_for(ConnectionOpened)
            self.open_channel(1)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def open_channel(self, number: int) -> None:
        """Open a channel, whatever was agreed on."""
        self._connection.channel_max = 0
        self._connection.open_channel(number)
        self.wait_for(ChannelOpened)

    def send_bytes(self, octets: bytes) -> None:
        self._flush()
        self._socket.sendall(octets)

    def send(self, method: Method, channel: int = 1) -> None:
        self.send_bytes(frame(METHOD, channel, method.encode()))

    def publish(
        self,
        body: bytes,
        key: str,
        exchange: str = "",
        properties: Mapping[str, Any] | None = None,
        *,
        mandatory: bool = False,
        immediate: bool = False,
    ) -> None:
        raw = encode_properties(properties or {})
        self.publish_raw(body, key, exchange, raw, mandatory=mandatory, immediate=immediate)

    def publish_raw(
        self,
        body: bytes,
        key: str,
        exchange: str,
        properties: bytes,
        *,
        mandatory: bool = False,
        immediate: bool = False,
    ) -> None:
        """Publish with these octets as property flags and list."""
        method = basic.Publish(exchange=exchange, routing_key=key, mandatory=mandatory, immediate=immediate)
        header = pack(">HHQ", 60, 0, len(body)) + properties
        frames = frame(METHOD, 1, method.encode()) + frame(HEADER, 1, header)
        self.send_bytes(frames + (frame(BODY, 1, body) if body else b""))

    def wait_for(self, kind: type[SomeEvent]) -> SomeEvent:
        """Return the next event of a kind; those before it are forgotten, a close is an error."""
        event = self.next_of(kind, ChannelClosed, ConnectionClosed)
        assert isinstance(event, kind), f"wanted {kind.__name__}, got {event}"
        return event

    def next_of(self, *kinds: type[Event]) -> Event:
        """Return the next event of one of the kinds."""
        while True:
            while self._events:
                event = self._events.pop(0)
                if isinstance(event, kinds):
                    return event
            self._flush()
            data = self._socket.recv(65536)
            self._events = list(
                self._connection.receive_data(data, 0.0) if data else self._connection.receive_eof(0.0)
            )
            self._flush()

    def ask(self, method: Method, answer: type[SomeMethod], channel: int = 1) -> SomeMethod:
        """Send a method and return its answer."""
        self.send(method, channel)
        return self.answer(answer)

    def answer(self, kind: type[SomeMethod]) -> SomeMethod:
        while True:
            method = self.wait_for(MethodReceived).method
            if isinstance(method, kind):
                return method

    def get(self, queue: str) -> Got:
        """Take one message of a queue that has some, or soon will; it is not acknowledged."""
        while True:
            self.send(basic.Get(queue=queue))
            event = self.next_of(Got, MethodReceived, ChannelClosed, ConnectionClosed)
            if isinstance(event, Got):
                return event
            assert isinstance(event, MethodReceived), event

    def take(self, queue: str, count: int) -> list[Delivered]:
        """Consume at least so many messages without acknowledging; what comes until the consumer is gone belongs to them."""
        tag = self.ask(basic.Consume(queue=queue, no_ack=True), basic.ConsumeOk).consumer_tag
        got: list[Delivered] = []
        while sum(len(event.batch) for event in got) < count:
            got.append(self.wait_for(Delivered))
        self.send(basic.Cancel(consumer_tag=tag))
        while isinstance(event := self.next_of(Delivered, MethodReceived, ChannelClosed), Delivered):
            got.append(event)
        assert isinstance(event, MethodReceived), event
        assert isinstance(event.method, basic.CancelOk), event
        return got

    def refusal(self) -> tuple[str, int, str]:
        """Return how the server closed something: what, reply code, reply text."""
        event = self.next_of(ChannelClosed, ConnectionClosed)
        if isinstance(event, ChannelClosed):
            return "channel", event.reply_code, event.reply_text
        assert isinstance(event, ConnectionClosed)
        return "connection", event.reply_code, event.reply_text

    def _flush(self) -> None:
        for buffer in self._connection.data_to_send():
            self._socket.sendall(buffer)
