"""stomp.py: the usual client library of Python."""

from __future__ import annotations

import threading
from multiprocessing.connection import Connection
from typing import Any

import stomp

from benchmarks.floods import BODY
from benchmarks.processes import Arrivals
from benchmarks.scenario import Unavailable

QUEUE = "/queue/stomp-py"
TIMEOUT = 20.0


class _Listener(stomp.ConnectionListener):  # type: ignore[misc]
    """Counts messages, and knows when the subscription is there."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self.subscribed = threading.Event()

    def on_message(self, frame: Any) -> None:
        self._arrivals.one_more()

    def on_receipt(self, frame: Any) -> None:
        self.subscribed.set()


def subscribe(link: Connection, address: str, count: int) -> None:
    """Receive so many messages; send their rate from the first on."""
    arrivals = Arrivals(count)
    client = _connected(address)
    listener = _Listener(arrivals)
    client.set_listener("", listener)
    client.subscribe(QUEUE, id="0", ack="auto", receipt="subscribed")
    if not listener.subscribed.wait(TIMEOUT):
        raise Unavailable("stomp.py could not subscribe")
    link.send("ready")
    link.send(arrivals.rate(TIMEOUT))
    link.recv()
    client.disconnect()


def publish(link: Connection, address: str, count: int) -> None:
    """Publish, a message a call."""
    client = _connected(address)
    body = BODY.decode()
    link.recv()
    for _ in range(count):
        client.send(QUEUE, body)
    link.recv()
    client.disconnect()


def _connected(address: str) -> Any:
    host, _, port = address.rpartition("/")[2].partition(":")
    client = stomp.Connection12([(host, int(port))], vhost="/")
    client.connect("guest", "guest", wait=True)
    return client
