"""From a publisher through a broker to a consumer, each in a separate process.

Our client and those of others, on our broker and on RabbitMQ, 100 B a message.
"""

from __future__ import annotations

import os
from functools import partial

from benchmarks.amqp import aio_pika_client, amqplib_client, ours, pika_client
from benchmarks.amqp.brokers import durable_broker, our_broker
from benchmarks.amqp.pairs import Client, shared, through
from benchmarks.amqp.rabbitmq import rabbitmq
from benchmarks.amqp.work import Work
from benchmarks.scenario import Measured, Row, Scenario, Side

OURS = Client("our client", ours.publish, ours.consume)
OTHERS = (
    Client("pika", pika_client.publish, pika_client.consume),
    Client("aio-pika", aio_pika_client.publish, aio_pika_client.consume),
    Client("amqplib", amqplib_client.publish, amqplib_client.consume),
)

WORK = {
    "autoack": Work("transient", 0),
    "acks": Work("acks", 0, acks=True),
    "confirms": Work("confirms", 0, confirms=True),
    "durable": Work("durable", 0, acks=True, confirms=True, persistent=True),
}
_WHAT = {
    "autoack": "transient, no acknowledgements",
    "acks": "transient, acknowledgements, prefetch 1000",
    "confirms": "transient, publisher confirms",
    "durable": "persistent, durable queue, publisher confirms, acknowledgements",
}
_AIMS = {"autoack": 700_000, "acks": 400_000, "confirms": 400_000, "durable": 150_000}

# Messages, so that a round takes about a second: with us, with RabbitMQ; in the order of WORK.
_COUNTS = {
    "our client": ((1_500_000, 800_000, 1_500_000, 300_000), (50_000, 40_000, 40_000, 20_000)),
    "pika": ((20_000, 15_000, 4_000, 1_000), (15_000, 10_000, 4_000, 1_000)),
    "aio-pika": ((8_000, 7_000, 6_000, 5_000), (7_000, 5_000, 5_000, 3_000)),
    "amqplib": ((120_000, 80_000, 100_000, 60_000), (60_000, 30_000, 40_000, 20_000)),
}


_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _side_name(client: Client, broker: str, mode: str) -> str:
    return f"{client.name} on {broker}, {mode}"


def _aim(mode: str) -> str:
    return f"the aim: {_AIMS[mode]:,} msg/s"


def _sides() -> list[Side]:
    sides = []
    for at, (mode, work) in enumerate(WORK.items()):
        brokers = {"kernel": durable_broker if work.persistent else our_broker, "RabbitMQ": shared(rabbitmq)}
        for client in (OURS, *OTHERS):
            for (broker, start), counts in zip(brokers.items(), _COUNTS[client.name], strict=True):
                this = Work(**{**vars(work), "count": counts[at]})
                sides.append(Side(_side_name(client, broker, mode), partial(through, start, client, this)))
        aim = float(_AIMS[mode])
        sides.append(Side(_aim(mode), lambda scale, aim=aim: {"rate": aim}))  # type: ignore[misc]
    return sides


def _row(name: str, what: str, bar: str, our_side: str, *peers: str) -> Row:
    return Row(name=name, what=what, figure="rate", unit="msg/s", bar=bar, ours=our_side, peers=peers)


def _rows() -> list[Row]:
    rows = []
    for mode, what in _WHAT.items():
        our_side = _side_name(OURS, "kernel", mode)
        theirs = [_side_name(client, "RabbitMQ", mode) for client in (OURS, *OTHERS)]
        rows.append(_row(f"amqp_{mode}", f"our client and broker, {what}", ">= 1.0", our_side, _aim(mode)))
        rows.append(_row(f"amqp_{mode}_rabbitmq", "the same", ">= 5.0", our_side, *theirs))
        cost = f"the broker's processor time a message, {what}"
        rows.append(
            Row(
                name=f"amqp_{mode}_cost",
                what=cost,
                figure="broker",
                unit="µs",
                bar="<= 0.2",
                ours=our_side,
                peers=(theirs[0],),
            )
        )
    for client in OTHERS:
        for mode, what in _WHAT.items():
            pair = (_side_name(client, broker, mode) for broker in ("kernel", "RabbitMQ"))
            rows.append(
                _row(
                    f"amqp_{client.name.replace('-', '_')}_{mode}", f"{client.name}, {what}", ">= 1.0", *pair
                )
            )
    return rows


def _remarks(measured: Measured) -> list[str]:
    remarks = [_limit(measured, client, mode) for client in OTHERS for mode in WORK]
    return [remark for remark in remarks if remark]


def _limit(measured: Measured, client: Client, mode: str) -> str:
    """Say how busy the client itself was: twice RabbitMQ's rate is asked for where it leaves so much time."""
    side = _side_name(client, "kernel", mode)
    ours = measured.median(side, "rate")
    theirs = measured.median(_side_name(client, "RabbitMQ", mode), "rate")
    if not (ours and theirs):
        return ""
    publisher, consumer = (measured.median(side, role) or 0.0 for role in ("publisher", "consumer"))
    # Each of the two has a core at the most, and both together have all.
    most = ours / theirs * min(1 / max(publisher, consumer), _CORES / (publisher + consumer))
    return (
        f"{client.name}, {mode}: {ours / theirs:.2f} times RabbitMQ; with ours its publisher takes "
        f"{publisher:.0%} of a core and its consumer {consumer:.0%}: "
        f"{most:.1f} times if a broker took no time."
    )


SCENARIO = Scenario(name="amqp_throughput", sides=tuple(_sides()), rows=tuple(_rows()), remarks=_remarks)
