"""paho-mqtt on both ends, and a broker between them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from benchmarks.amqp.brokers import Broker
from benchmarks.mqtt import paho_client
from benchmarks.mqtt.brokers import mosquitto, our_broker
from benchmarks.processes import Child
from benchmarks.scenario import Figures, Row, Scenario, Side

_COUNTS = {0: 15_000, 1: 4_000}
"""Messages by QoS."""


def _measure(start: Callable[[], AbstractContextManager[Broker]], qos: int, scale: float) -> Figures:
    count = int(_COUNTS[qos] * scale)
    with (
        start() as broker,
        Child(paho_client.subscribe, broker.address, qos, count) as subscriber,
        Child(paho_client.publish, broker.address, qos, count) as publisher,
    ):
        subscriber.hear(publisher)
        publisher.say("go")
        return {"rate": subscriber.hear(publisher)}


SCENARIO = Scenario(
    name="mqtt_paho",
    sides=tuple(
        Side(f"paho on {name}, QoS {qos}", partial(_measure, start, qos))
        for qos in _COUNTS
        for name, start in (("kernel", our_broker), ("mosquitto", mosquitto))
    ),
    rows=tuple(
        Row(
            name=f"mqtt_paho_qos{qos}",
            what=f"paho-mqtt on both ends, QoS {qos}, 100 B, a message a call",
            figure="rate",
            unit="msg/s",
            bar=">= 1.0",
            ours=f"paho on kernel, QoS {qos}",
            peers=(f"paho on mosquitto, QoS {qos}",),
        )
        for qos in _COUNTS
    ),
)
