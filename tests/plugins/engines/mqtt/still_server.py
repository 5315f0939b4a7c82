"""The broker in the test's own thread: nothing happens but while a client or the test asks for it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from kernel.contracts.message import Envelope, batch_of_one
from kernel.hosting.wire import PlainWire
from plugins.engines.broker.host.options import BrokerOptions
from plugins.engines.broker.public import (
    Accepted,
    BrokerEngine,
    Codecs,
    FrontEnd,
    StreamFrontEnd,
    VirtualHost,
)
from plugins.engines.mqtt.front_end import MqttFrontEnd, make_front_end
from plugins.engines.mqtt.options import MqttListenerOptions
from plugins.engines.mqtt.session import Session
from plugins.protocols.amqp091.stored import StoredProperties
from tests.plugins.engines.amqp.still_host import StillHost
from tests.plugins.engines.mqtt.raw_client import RawClient


class StillServer:
    """A broker with an MQTT listener."""

    def __init__(self, listener: dict[str, Any], options: dict[str, Any], day: float | None = None) -> None:
        """``day``: the time of day at the start; None: the real one."""
        mqtt = MqttListenerOptions(**{"address": "127.0.0.1:0", **listener})
        read = msgspec.convert(options, BrokerOptions)

        def mqtt_front_end(engine: BrokerEngine) -> FrontEnd:
            return make_front_end(engine, mqtt)

        self.host = StillHost()
        self.engine = BrokerEngine(
            "broker", read, (mqtt_front_end,), codecs=lambda: Codecs([StoredProperties()])
        )
        self.set_time_of_day(time.time() if day is None else day)
        self.engine.time_of_day = lambda: self._day_ahead + self.host.now()  # type: ignore[method-assign]
        self.engine.start(self.host)
        self._clients: list[RawClient] = []
        self._held: threading.Event | None = None

    def client(self, version: int = 5, **more: Any) -> RawClient:
        """Return a connection without a CONNECT; ``more``: fields of ``Accepted``."""
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        # What the server does not send while it is asked, it never sends.
        ours.settimeout(0.05)
        fields = {"loopback": True, "certified": None, **more}
        accepted = Accepted(PlainWire(theirs), f"client {len(self._clients)}", **fields)
        front_end = self.engine.front_ends[0]
        assert isinstance(front_end, StreamFrontEnd)
        front_end.begin(accepted)
        client = RawClient(ours, version, self.process)
        self._clients.append(client)
        return client

    def connect(self, version: int = 5, **connect: Any) -> RawClient:
        """Return a client that was accepted."""
        client = self.client(version)
        assert client.connect(**connect).reason_code == 0
        return client

    def session(self, client_id: str) -> Session | None:
        """Return the session of a client."""
        front_end = self.engine.front_ends[0]
        assert isinstance(front_end, MqttFrontEnd)
        return front_end.sessions.find("/", client_id)

    def process(self) -> None:
        """Do what there is to do, until nothing happens any more; the disk is waited for, unless it is held."""
        self.host.process()
        kept = self.engine.kept
        while kept is not None and self._held is None:
            kept._writer.wait()
            if not self.host.turn():
                return
            self.host.process()

    def hold_disk(self) -> None:
        """The disk does nothing until ``free_disk``."""
        kept, self._held = self.engine.kept, threading.Event()
        assert kept is not None
        held = self._held

        def wait() -> Callable[[], None]:
            held.wait(60)
            return lambda: None

        kept._writer.submit(wait)

    def free_disk(self) -> None:
        if self._held is not None:
            self._held.set()
            self._held = None
        self.process()

    @property
    def vhost(self) -> VirtualHost:
        return self.engine.broker.vhost("/")

    def publish(self, key: str, body: bytes = b"x", *, persistent: bool = False) -> None:
        """Publish as a client of another protocol does."""
        envelope = Envelope(key=key, exchange="amq.topic", persistent=persistent)
        self.vhost.publish(batch_of_one(body, envelope), self.host.now())
        self.engine.finish_turn(self.host.now())

    def row(self, queue: str) -> dict[str, Any]:
        """Return the row of a queue as an operator sees it."""
        (row,) = [row for row in self.engine.inspect("queues") if row["name"] == queue]
        return row

    def set_time_of_day(self, day: float) -> None:
        """Set the system's clock, which from now on goes on with that of the broker."""
        self._day_ahead = day - self.host.now()

    def pass_time(self, seconds: float) -> None:
        self.host.pass_time(seconds)

    def close(self) -> None:
        self.free_disk()
        for client in self._clients:
            client.close()
        self.engine.stop()
        self.host.process()
        self.host.release()
