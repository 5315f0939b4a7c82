"""paho-mqtt on both ends, and a broker between them."""

from __future__ import annotations

from benchmarks.mqtt import paho_client
from benchmarks.mqtt.libraries import both_ends

SCENARIO = both_ends("mqtt_paho", "paho", "paho-mqtt", paho_client, {0: 60_000, 1: 40_000})
