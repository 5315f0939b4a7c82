"""paho-mqtt: the usual client library of Python."""

from __future__ import annotations

import threading
from multiprocessing.connection import Connection

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.floods import BODY
from benchmarks.processes import Arrivals, time_calls
from benchmarks.scenario import Unavailable

TOPIC = "paho"
QUESTIONS, ANSWERS = "paho/questions", "paho/answers"
TIMEOUT = 20.0
FIRST = 20
"""Questions that are not timed."""


def subscribe(link: Connection, address: str, qos: int, count: int) -> None:
    """Receive so many messages; send their rate from the first on."""
    arrivals = Arrivals(count)
    client = paho.Client(CallbackAPIVersion.VERSION2, "subscriber")
    client.on_message = lambda *_: arrivals.one_more()
    _subscribe(client, address, TOPIC, qos)
    link.send("ready")
    link.send(arrivals.rate(TIMEOUT))
    link.recv()
    client.disconnect()
    client.loop_stop()


def publish(link: Connection, address: str, qos: int, count: int) -> None:
    """Publish, a message a call."""
    client = paho.Client(CallbackAPIVersion.VERSION2, "publisher")
    _connect(client, address)
    link.recv()
    for _ in range(count):
        client.publish(TOPIC, BODY, qos)
    link.recv()
    client.disconnect()
    client.loop_stop()


def answer(link: Connection, address: str, qos: int) -> None:
    """Answer each question with the same."""
    client = paho.Client(CallbackAPIVersion.VERSION2, "answering")
    client.on_message = lambda _, __, message: client.publish(ANSWERS, message.payload, qos)
    _subscribe(client, address, QUESTIONS, qos)
    link.send("ready")
    link.recv()
    client.disconnect()
    client.loop_stop()


def ask(link: Connection, address: str, qos: int, count: int) -> None:
    """Say how many nanoseconds each question and its answer took."""
    answered = threading.Semaphore(0)
    client = paho.Client(CallbackAPIVersion.VERSION2, "asking")
    client.on_message = lambda *_: answered.release()
    _subscribe(client, address, ANSWERS, qos)

    def there_and_back() -> None:
        client.publish(QUESTIONS, BODY, qos)
        if not answered.acquire(timeout=TIMEOUT):
            raise Unavailable("paho got no answer")

    link.send(time_calls(there_and_back, count, FIRST))
    client.disconnect()
    client.loop_stop()


def _subscribe(client: paho.Client, address: str, topic: str, qos: int) -> None:
    subscribed = threading.Event()
    client.on_subscribe = lambda *_: subscribed.set()
    _connect(client, address)
    client.subscribe(topic, qos)
    if not subscribed.wait(TIMEOUT):
        raise Unavailable("paho could not subscribe")


def _connect(client: paho.Client, address: str) -> None:
    host, _, port = address.rpartition("/")[2].partition(":")
    connected = threading.Event()
    client.on_connect = lambda *_: connected.set()
    client.connect(host, int(port))
    client.loop_start()
    if not connected.wait(TIMEOUT):
        raise Unavailable(f"paho has no connection to {address}")
