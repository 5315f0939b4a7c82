"""stomp.py: the usual client library of Python."""

from __future__ import annotations

import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import stomp

from benchmarks.floods import BODY
from benchmarks.processes import Arrivals, time_calls
from benchmarks.scenario import Unavailable

QUEUE = "/queue/stomp-py"
QUESTIONS, ANSWERS = "/queue/stomp-py-questions", "/queue/stomp-py-answers"
TIMEOUT = 20.0
FIRST = 20
"""Questions that are not timed."""


class _Subscribing(stomp.ConnectionListener):  # type: ignore[misc]
    """Knows when the subscription is there."""

    def __init__(self) -> None:
        self.subscribed = threading.Event()

    def on_receipt(self, frame: Any) -> None:
        self.subscribed.set()


class _Counting(_Subscribing):
    """Counts messages."""

    def __init__(self, arrivals: Arrivals) -> None:
        super().__init__()
        self._arrivals = arrivals

    def on_message(self, frame: Any) -> None:
        self._arrivals.one_more()


def subscribe(link: Connection, address: str, count: int) -> None:
    """Receive so many messages; send their rate from the first on."""
    arrivals = Arrivals(count)
    client = _connected(address)
    _subscribe(client, QUEUE, _Counting(arrivals), "auto")
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


class _Acknowledging(_Subscribing):
    """Acknowledges each message, and calls a function with its body."""

    def __init__(self, client: Any, received: Callable[[Any], Any]) -> None:
        super().__init__()
        self._client = client
        self._received = received

    def on_message(self, frame: Any) -> None:
        self._client.ack(frame.headers["ack"])
        self._received(frame.body)


def answer(link: Connection, address: str) -> None:
    """Acknowledge each question, and answer with the same."""
    client = _connected(address)
    _subscribe(client, QUESTIONS, _Acknowledging(client, lambda body: client.send(ANSWERS, body)))
    link.send("ready")
    link.recv()
    client.disconnect()


def ask(link: Connection, address: str, count: int) -> None:
    """Say how many nanoseconds each question and its answer took."""
    client, answered, body = _connected(address), threading.Semaphore(0), BODY.decode()
    _subscribe(client, ANSWERS, _Acknowledging(client, lambda _: answered.release()))

    def there_and_back() -> None:
        client.send(QUESTIONS, body)
        if not answered.acquire(timeout=TIMEOUT):
            raise Unavailable("stomp.py got no answer")

    link.send(time_calls(there_and_back, count, FIRST))
    client.disconnect()


def _subscribe(client: Any, queue: str, listener: _Subscribing, ack: str = "client-individual") -> None:
    client.set_listener("", listener)
    client.subscribe(queue, id="0", ack=ack, receipt="subscribed")
    if not listener.subscribed.wait(TIMEOUT):
        raise Unavailable("stomp.py could not subscribe")


def _connected(address: str) -> Any:
    host, _, port = address.rpartition("/")[2].partition(":")
    client = stomp.Connection12([(host, int(port))], vhost="/")
    client.connect("guest", "guest", wait=True)
    return client
