"""paho-mqtt: the usual client library of Python."""

from __future__ import annotations

import threading
from multiprocessing.connection import Connection

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.floods import BODY
from benchmarks.processes import Arrivals
from benchmarks.scenario import Unavailable

TOPIC = "paho"
TIMEOUT = 20.0


def subscribe(link: Connection, address: str, qos: int, count: int) -> None:
    """Receive so many messages; send their rate from the first on."""
    subscribed, arrivals = threading.Event(), Arrivals(count)
    client = paho.Client(CallbackAPIVersion.VERSION2, "subscriber")
    client.on_message = lambda *_: arrivals.one_more()
    client.on_subscribe = lambda *_: subscribed.set()
    _connect(client, address)
    client.subscribe(TOPIC, qos)
    if not subscribed.wait(TIMEOUT):
        raise Unavailable("paho could not subscribe")
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


def _connect(client: paho.Client, address: str) -> None:
    host, _, port = address.rpartition("/")[2].partition(":")
    connected = threading.Event()
    client.on_connect = lambda *_: connected.set()
    client.connect(host, int(port))
    client.loop_start()
    if not connected.wait(TIMEOUT):
        raise Unavailable(f"paho has no connection to {address}")
