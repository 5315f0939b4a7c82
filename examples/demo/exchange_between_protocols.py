"""A client of each protocol publishes to one topic, and each gets what all have published.

The topic is ``demo/everyone`` in MQTT, the key ``demo.everyone`` in AMQP, and ``/topic/demo.everyone`` in STOMP.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import Any

import paho.mqtt.client as mqtt
import pika
import stomp

from examples.demo.feed import say

MESSAGES = 500
"""That each client publishes."""
NAMES = ("pika", "paho", "stomp.py")
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


received = {name: Received() for name in NAMES}

with pika.BlockingConnection(pika.ConnectionParameters(port=int(os.environ["AMQP_PORT"]))) as connection:
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "amq.topic", "demo.everyone")

    paho = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    paho.username_pw_set("guest", "guest")
    subscribed = threading.Event()
    paho.on_connect = lambda client, *_: client.subscribe("demo/everyone", qos=1)
    paho.on_subscribe = lambda *_: subscribed.set()
    paho.on_message = lambda client, userdata, message: received["paho"].add(message.payload)
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
