"""MQTT.js on both ends, and a broker between them."""

from __future__ import annotations

from functools import partial

from benchmarks.loads import with_library
from benchmarks.mqtt import mqtt_js_client
from benchmarks.mqtt.brokers import mosquitto, our_broker
from benchmarks.scenario import Row, Scenario, Side

_COUNTS = {0: 60_000, 1: 30_000}
"""Messages by QoS."""


SCENARIO = Scenario(
    name="mqtt_js",
    sides=tuple(
        Side(
            f"MQTT.js on {name}, QoS {qos}",
            partial(with_library, start, mqtt_js_client.subscribe, mqtt_js_client.publish, (qos,), count),
        )
        for qos, count in _COUNTS.items()
        for name, start in (("kernel", our_broker), ("mosquitto", mosquitto))
    ),
    rows=tuple(
        Row(
            name=f"mqtt_js_qos{qos}",
            what=f"MQTT.js on both ends, QoS {qos}, 100 B, a message a call",
            figure="rate",
            unit="msg/s",
            bar=">= 1.0",
            ours=f"MQTT.js on kernel, QoS {qos}",
            peers=(f"MQTT.js on mosquitto, QoS {qos}",),
        )
        for qos in _COUNTS
    ),
)
