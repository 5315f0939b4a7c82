"""A client of each protocol publishes to one topic, and each gets what all have published.

The topic is ``demo/everyone`` in MQTT, the key ``demo.everyone`` in AMQP, and ``/topic/demo.everyone`` in STOMP.
If the variable ``BROWSER`` names a browser, ``browser.html`` takes part in it, over WebSocket.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import paho.mqtt.client as mqtt
import pika
import stomp

from examples.demo.feed import say

MESSAGES = 500
"""That each client publishes."""
BROWSER = os.environ.get("BROWSER", "")
NAMES = ("pika", "paho", "stomp.py")
EXPECTED = MESSAGES * (len(NAMES) + bool(BROWSER))
TIMEOUT = 60.0
PAGE = Path(__file__).with_name("browser.html")


class Received:
    """What one client has received, by the client that has published it."""

    def __init__(self) -> None:
        self.by = Counter[str]()
        self.all = threading.Event()

    def add(self, body: bytes) -> None:
        """Count a message; its body has the publisher's name and a number."""
        self.by[body.partition(b" ")[0].decode()] += 1
        if self.by.total() >= EXPECTED:
            self.all.set()


class StompListener(stomp.ConnectionListener):  # type: ignore[misc]
    """Takes the messages of stomp.py, and sees that the subscription is there."""

    def __init__(self, received: Received) -> None:
        self.received = received
        self.subscribed = threading.Event()

    def on_message(self, frame: Any) -> None:
        """A message has come."""
        self.received.add(frame.body.encode())

    def on_receipt(self, frame: Any) -> None:
        """The broker has done what was asked for."""
        self.subscribed.set()


class Page:
    """The page in the browser, which tells over MQTT what it has received."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.all = threading.Event()
        self.received: dict[str, int] = {}

    def on_message(self, message: mqtt.MQTTMessage) -> None:
        """The page has told something."""
        if message.topic == "demo/browser/ready":
            self.ready.set()
        else:
            self.received = json.loads(message.payload)
            self.all.set()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the page in a browser without a window."""
        query = urlencode(
            {
                "url": f"ws://127.0.0.1:{os.environ['MQTT_WEB_PORT']}/mqtt",
                "messages": MESSAGES,
                "expected": EXPECTED,
            }
        )
        # Chromium refuses to protect itself from pages as root.  This page is ours.
        as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
        # With the port it stays until somebody ends it.
        options = ["--headless", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0", *as_root]
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            command = [BROWSER, *options, f"--user-data-dir={profile}", f"{PAGE.as_uri()}?{query}"]
            silent = subprocess.DEVNULL
            with subprocess.Popen(command, stdout=silent, stderr=silent) as browser:
                try:
                    yield
                finally:
                    browser.terminate()


page = Page()


def on_mqtt_message(client: mqtt.Client, userdata: object, message: mqtt.MQTTMessage) -> None:
    """Paho has received something."""
    if message.topic == "demo/everyone":
        received["paho"].add(message.payload)
    else:
        page.on_message(message)


received = {name: Received() for name in NAMES}

with pika.BlockingConnection(pika.ConnectionParameters(port=int(os.environ["AMQP_PORT"]))) as connection:
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "amq.topic", "demo.everyone")

    paho = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    paho.username_pw_set("guest", "guest")
    subscribed = threading.Event()
    paho.on_connect = lambda client, *_: client.subscribe([("demo/everyone", 1), ("demo/browser/#", 1)])
    paho.on_subscribe = lambda *_: subscribed.set()
    paho.on_message = on_mqtt_message
    paho.connect("127.0.0.1", int(os.environ["MQTT_PORT"]))
    paho.loop_start()

    listener = StompListener(received["stomp.py"])
    stomper = stomp.Connection12([("127.0.0.1", int(os.environ["STOMP_PORT"]))], vhost="/")
    stomper.set_listener("", listener)
    stomper.connect("guest", "guest", wait=True)
    stomper.subscribe("/topic/demo.everyone", id="1", receipt="subscribed")
    for there in (subscribed, listener.subscribed):
        if not there.wait(TIMEOUT):
            raise SystemExit("a client could not subscribe")

    with page.shown() if BROWSER else nullcontext():
        if BROWSER and not page.ready.wait(TIMEOUT):
            raise SystemExit(f"{BROWSER} has not subscribed; open {PAGE} in a window to see why")
        for number in range(MESSAGES):
            channel.basic_publish("amq.topic", "demo.everyone", f"pika {number}".encode())
            paho.publish("demo/everyone", f"paho {number}", qos=1)
            stomper.send("/topic/demo.everyone", f"stomp.py {number}")
        for _, _, body in channel.consume(queue, auto_ack=True, inactivity_timeout=TIMEOUT):
            if body is not None:
                received["pika"].add(body)
            if body is None or received["pika"].all.is_set():
                break
        for name in NAMES:
            received[name].all.wait(TIMEOUT)
        if BROWSER:
            page.all.wait(TIMEOUT)
    paho.disconnect()
    stomper.disconnect()
counts = {name: dict(received[name].by) for name in NAMES}
if BROWSER:
    counts["browser"] = page.received
say(done=True, received=counts, expected=MESSAGES)
