"""Messages of 100 B through an MQTT broker: rates, and the broker's processor time for each."""

from __future__ import annotations

from benchmarks.loads import Comparison, Load
from benchmarks.mqtt.brokers import mosquitto, our_broker, rabbitmq
from benchmarks.mqtt.flood import Job, flood

_LOADS = (
    Load("qos0", "QoS 0, 500 a write", Job(1_500_000, qos=0), 50_000, ">= 5.0", 1.0, third_count=20_000),
    Load("qos1", "QoS 1, 500 a write", Job(400_000, qos=1), 20_000, most_cost=3.0, third_count=10_000),
    Load("qos2", "QoS 2, 500 a write", Job(100_000, qos=2, window=2), 10_000, most_cost=6.0),
    Load(
        "fanout_100",
        "QoS 0 to 100 subscribers, 50 a write",
        Job(20_000, qos=0, subscribers=100, block=50, window=4),
        500,
        most_cost=0.3,
    ),
    Load("topic_each", "QoS 0, 1,000 topics in turn, 500 a write", Job(100_000, qos=0, topics=1000), 40_000),
    Load("topic_new", "QoS 0, 10,000 topics in turn, 500 a write", Job(40_000, qos=0, topics=10_000), 40_000),
    Load("single", "QoS 0, one message a write", Job(50_000, qos=0, at_once=False), 50_000),
    Load(
        "persistent",
        "QoS 1 for a durable session without a connection, acknowledged when on disk",
        Job(200_000, qos=1, subscribers=0, block=1000),
        20_000,
        aim=100_000,
    ),
)

_BROKERS = {"kernel": our_broker, "mosquitto": mosquitto, "RabbitMQ": rabbitmq}

SCENARIO = Comparison("mqtt", flood, _LOADS, _BROKERS).scenario()
