"""stomp.py on both ends, and a broker between them."""

from __future__ import annotations

from functools import partial

from benchmarks.loads import with_library
from benchmarks.scenario import Row, Scenario, Side
from benchmarks.stomp import stomp_py_client
from benchmarks.stomp.brokers import our_broker, rabbitmq

_COUNT = 15_000

SCENARIO = Scenario(
    name="stomp_py",
    sides=tuple(
        Side(
            f"stomp.py on {name}",
            partial(with_library, start, stomp_py_client.subscribe, stomp_py_client.publish, (), _COUNT),
        )
        for name, start in (("kernel", our_broker), ("RabbitMQ", rabbitmq))
    ),
    rows=(
        Row(
            name="stomp_py",
            what="stomp.py on both ends, ack:auto, 100 B, a message a call",
            figure="rate",
            unit="msg/s",
            bar=">= 1.0",
            ours="stomp.py on kernel",
            peers=("stomp.py on RabbitMQ",),
        ),
    ),
)
