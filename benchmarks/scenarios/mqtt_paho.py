"""paho-mqtt on both ends, and a broker between them.

A publisher of paho's has two threads, that of the application and that of the network, which share the
interpreter's lock.  On two processors they take the lock from each other with each message, and cost half as
much again as on one.  Linux decides which of the two it is, and keeps to it for a second and longer.  So it
is measured with the publisher on a processor of its own as well (docs/measured.md, "What limits the figures").
"""

from __future__ import annotations

from benchmarks.mqtt import paho_client
from benchmarks.mqtt.libraries import both_ends

SCENARIO = both_ends("mqtt_paho", "paho", "paho-mqtt", paho_client, {0: 60_000, 1: 40_000}, pinned=True)
