"""MQTT.js on both ends, and a broker between them."""

from __future__ import annotations

from benchmarks.mqtt import mqtt_js_client
from benchmarks.mqtt.libraries import both_ends

SCENARIO = both_ends("mqtt_js", "MQTT.js", "MQTT.js", mqtt_js_client, {0: 60_000, 1: 30_000})
