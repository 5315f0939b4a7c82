"""Messages of 100 B through an MQTT broker: rates, and the broker's processor time for each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.amqp.brokers import Broker
from benchmarks.mqtt.brokers import mosquitto, our_broker, rabbitmq
from benchmarks.mqtt.flood import Job, flood
from benchmarks.processes import Child
from benchmarks.scenario import Figures, Row, Scenario, Side


@dataclass(frozen=True)
class _Load:
    """A job, and what is asked of our broker."""

    name: str
    what: str
    job: Job
    """Its ``count`` is for us, so that a round takes about a second."""
    their_count: int
    rate_bar: str = ">= 1.0"
    """Of mosquitto's rate."""
    most_cost: float = 0.0
    """Microseconds of the broker's processor time for a delivery; 0: there is no aim, but mosquitto's."""
    aim: float = 0.0
    """Messages a second instead of mosquitto's rate."""
    rabbitmq_count: int = 0


_LOADS = (
    _Load("qos0", "QoS 0, 500 a write", Job(0, 1_500_000), 50_000, ">= 5.0", 1.0, rabbitmq_count=20_000),
    _Load("qos1", "QoS 1, 500 a write", Job(1, 400_000), 20_000, most_cost=3.0, rabbitmq_count=10_000),
    _Load("qos2", "QoS 2, 500 a write", Job(2, 100_000, window=2), 10_000, most_cost=6.0),
    _Load(
        "fanout_100",
        "QoS 0 to 100 subscribers, 50 a write",
        Job(0, 20_000, subscribers=100, block=50, window=4),
        500,
        most_cost=0.3,
    ),
    _Load("topic_each", "QoS 0, 1,000 topics in turn, 500 a write", Job(0, 100_000, topics=1000), 40_000),
    _Load("topic_new", "QoS 0, 10,000 topics in turn, 500 a write", Job(0, 40_000, topics=10_000), 40_000),
    _Load("single", "QoS 0, one message a write", Job(0, 50_000, at_once=False), 50_000),
    _Load(
        "persistent",
        "QoS 1 for a durable session without a connection, acknowledged when on disk",
        Job(1, 200_000, subscribers=0, block=1000),
        20_000,
        aim=100_000,
    ),
)

_Start = Callable[..., AbstractContextManager[Broker]]


def _measure(start: _Start, job: Job, durable: bool, scale: float) -> Figures:
    job = replace(job, count=max(int(job.count * scale), 2 * job.block))
    with start(durable=durable) as broker, Child(flood, broker.address, job) as client:
        client.hear()
        before = broker.processor_seconds()
        client.say("go")
        seconds = client.hear()
        deliveries = job.count // job.block * job.block * max(job.subscribers, 1)
        used = broker.processor_seconds() - before
        return {"rate": deliveries / seconds, "cost": used / deliveries * 1e6}


def _side_name(broker: str, load: _Load) -> str:
    return f"{broker}, {load.name}"


def _aim(load: _Load) -> str:
    return f"the aim: {load.most_cost:g} µs" if load.most_cost else f"the aim: {load.aim:,.0f} msg/s"


def _sides() -> list[Side]:
    sides = []
    for load in _LOADS:
        durable = not load.job.subscribers
        theirs = replace(load.job, count=load.their_count)
        sides.append(Side(_side_name("kernel", load), partial(_measure, our_broker, load.job, durable)))
        sides.append(Side(_side_name("mosquitto", load), partial(_measure, mosquitto, theirs, durable)))
        if load.rabbitmq_count:
            job = replace(load.job, count=load.rabbitmq_count)
            sides.append(Side(_side_name("RabbitMQ", load), partial(_measure, rabbitmq, job, durable)))
        if load.most_cost or load.aim:
            figures = {"cost": load.most_cost, "rate": load.aim}
            sides.append(Side(_aim(load), lambda scale, figures=figures: figures))  # type: ignore[misc]
    return sides


def _rows() -> list[Row]:
    rows = []
    for load in _LOADS:
        ours, theirs, third = (_side_name(name, load) for name in ("kernel", "mosquitto", "RabbitMQ"))
        also = (third,) if load.rabbitmq_count else ()
        rows.append(
            Row(
                name=f"mqtt_{load.name}",
                what=load.what,
                figure="rate",
                unit="msg/s",
                bar=load.rate_bar,
                ours=ours,
                peers=(_aim(load) if load.aim else theirs,),
                also=(theirs,) if load.aim else also,
            )
        )
        rows.append(
            Row(
                name=f"mqtt_{load.name}_cost",
                what=f"the broker's processor time a delivery, {load.what}",
                figure="cost",
                unit="µs",
                bar="<= 1.0",
                ours=ours,
                peers=(_aim(load) if load.most_cost else theirs,),
                also=(theirs, *also) if load.most_cost else (),
            )
        )
    return rows


SCENARIO = Scenario(name="mqtt_throughput", sides=tuple(_sides()), rows=tuple(_rows()))
