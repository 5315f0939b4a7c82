"""Round trips between two programs with the usual client libraries, through a broker.

The libraries leave Nagle's algorithm on: what follows an acknowledgement waits until the system of the broker has
acknowledged that (docs/decisions/0052-acknowledgements-at-once.md).
"""

from __future__ import annotations

from functools import partial

from benchmarks.loads import asked_with_library
from benchmarks.mqtt import brokers as mqtt_brokers
from benchmarks.mqtt import paho_client
from benchmarks.scenario import Row, Scenario, Side
from benchmarks.stomp import brokers as stomp_brokers
from benchmarks.stomp import stomp_py_client

_MANY, _FEW = 1000, 50
"""Questions for us, and for the others, who take 40 ms and more for one."""

_LIBRARIES = {
    "paho": (
        paho_client,
        (1,),
        "paho-mqtt, QoS 1",
        {"kernel": mqtt_brokers.our_broker, "mosquitto": mqtt_brokers.mosquitto},
    ),
    "stomp_py": (
        stomp_py_client,
        (),
        "stomp.py, ack:client-individual",
        {"kernel": stomp_brokers.our_broker, "RabbitMQ": stomp_brokers.rabbitmq},
    ),
}

SCENARIO = Scenario(
    name="library_roundtrips",
    sides=tuple(
        Side(
            f"{short} on {name}",
            partial(
                asked_with_library,
                start,
                client.answer,
                client.ask,
                options,
                _MANY if name == "kernel" else _FEW,
            ),
        )
        for short, (client, options, _, brokers) in _LIBRARIES.items()
        for name, start in brokers.items()
    ),
    rows=tuple(
        Row(
            name=f"latency_{short}",
            what=f"a question and its answer, {what}, 100 B, p50",
            figure="p50",
            unit="µs",
            bar="<= 1.0",
            ours=f"{short} on kernel",
            peers=tuple(f"{short} on {name}" for name in brokers if name != "kernel"),
        )
        for short, (_, _, what, brokers) in _LIBRARIES.items()
    ),
)
