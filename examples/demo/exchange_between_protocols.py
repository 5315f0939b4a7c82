"""A client of each protocol publishes to one topic, and each gets what all have published.

The topic is ``demo/everyone`` in MQTT, the key ``demo.everyone`` in AMQP, and ``/topic/demo.everyone`` in STOMP.
If there is Chromium, ``page.html`` takes part: a page that speaks STOMP over WebSocket.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pika
import stomp

from examples.demo.feed import say

MESSAGES = 500
"""That each client publishes."""
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NAMES = ("pika", "paho", "stomp.py", *(("browser",) if BROWSER else ()))
EXPECTED = MESSAGES * len(NAMES)
TIMEOUT = 60.0


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


@contextmanager
def page() -> Iterator[None]:
    """Have a browser without a window show the page, if there is one."""
    if BROWSER is None:
        yield
        return
    address = (
        f"{(Path(__file__).parent / 'page.html').as_uri()}#{os.environ['WS_PORT']},{MESSAGES},{EXPECTED}"
    )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        # With the port it stays until somebody ends it.
        command += [f"--user-data-dir={folder}", "--remote-debugging-port=0", address]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            browser.terminate()
            browser.wait()


def take(message: mqtt.MQTTMessage) -> None:
    """Count a message for paho; or note what the page says of itself."""
    if message.topic == "demo/everyone":
        received["paho"].add(message.payload)
    elif message.payload == b"ready":
        page_ready.set()
    else:
        received["browser"].by.update(json.loads(message.payload))
        received["browser"].all.set()


received = {name: Received() for name in NAMES}
page_ready = threading.Event()

with pika.BlockingConnection(pika.ConnectionParameters(port=int(os.environ["AMQP_PORT"]))) as connection:
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "amq.topic", "demo.everyone")

    paho = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    paho.username_pw_set("guest", "guest")
    subscribed = threading.Event()
    paho.on_connect = lambda client, *_: client.subscribe([("demo/everyone", 1), ("demo/page", 1)])
    paho.on_subscribe = lambda *_: subscribed.set()
    paho.on_message = lambda client, userdata, message: take(message)
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

    with page():
        if BROWSER and not page_ready.wait(TIMEOUT):
            raise SystemExit("the page could not subscribe")
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
    paho.disconnect()
    stomper.disconnect()
say(done=True, received={name: dict(received[name].by) for name in NAMES}, expected=MESSAGES)
