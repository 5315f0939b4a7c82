"""paho-mqtt on both ends, and a broker between them."""

from __future__ import annotations

from functools import partial

from benchmarks.loads import with_library
from benchmarks.mqtt import paho_client
from benchmarks.mqtt.brokers import mosquitto, our_broker
from benchmarks.scenario import Row, Scenario, Side

_COUNTS = {0: 15_000, 1: 4_000}
"""Messages by QoS."""


SCENARIO = Scenario(
    name="mqtt_paho",
    sides=tuple(
        Side(
            f"paho on {name}, QoS {qos}",
            partial(with_library, start, paho_client.subscribe, paho_client.publish, (qos,), count),
        )
        for qos, count in _COUNTS.items()
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
