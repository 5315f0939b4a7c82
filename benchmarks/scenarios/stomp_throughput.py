"""Messages of 100 B through a STOMP broker: rates, and the broker's processor time for each."""

from __future__ import annotations

from benchmarks.loads import Comparison, Load
from benchmarks.stomp.brokers import our_broker, rabbitmq
from benchmarks.stomp.flood import Job, flood

_LOADS = (
    Load("auto", "ack:auto, 500 SEND frames a write", Job(400_000), 20_000, ">= 5.0", 4.0),
    Load(
        "ack",
        "client-individual with an ACK frame each, prefetch-count 1,000, 500 SEND frames a write",
        Job(100_000, ack="client-individual", prefetch=1000),
        10_000,
        ">= 5.0",
    ),
    Load(
        "receipts",
        "persistent to a durable queue that nobody reads, a receipt for each, 500 SEND frames a write",
        Job(100_000, subscribers=0, receipts=True),
        10_000,
        ">= 5.0",
    ),
)

SCENARIO = Comparison("stomp", flood, _LOADS, {"kernel": our_broker, "RabbitMQ": rabbitmq}).scenario()
