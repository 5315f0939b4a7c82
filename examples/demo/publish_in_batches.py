"""Publishes the feed again and again as a kernel does: in batches.  The broker is the same, and so is AMQP.

Each message goes to a queue, is confirmed, and is consumed and acknowledged by the same program.
"""

from __future__ import annotations

import os
import threading

from examples.demo.feed import PARTS, Pace, encode, records, say
from kernel import EnginePlan, Envelope, Kernel, Plan, RoutePlan
from kernel.contracts.message import batch_of

MESSAGES = 200_000
QUEUE = "pace"
AT_A_TIME = 1000

broker = {"addresses": [f"amqp+tcp://127.0.0.1:{os.environ['AMQP_PORT']}"]}
queue = {"queues": [{"name": QUEUE, "durable": False, "auto_delete": True}]}
plan = Plan(
    engines=(
        EnginePlan(name="publisher", kind="amqp-client", options={**broker, **queue}),
        EnginePlan(
            name="consumer", kind="amqp-client", options={**broker, **queue, "consume": [{"queue": QUEUE}]}
        ),
        EnginePlan(name="out", kind="native"),
        EnginePlan(name="in", kind="native"),
    ),
    routes=(
        RoutePlan(source="out", targets=("publisher",), confirm=True),
        RoutePlan(source="consumer", targets=("in",), confirm=True),
    ),
)
feed = [encode(number, record, 0) for part in range(PARTS) for number, _, record in records(part)]
bodies = [feed[number % len(feed)] for number in range(MESSAGES)]


def consume() -> None:
    """Take what comes, until all are there."""
    with kernel.open("in") as channel:
        consumed = 0
        while consumed < MESSAGES:
            consumed += len(channel.receive_many())
        channel.confirm()


with Kernel(plan) as kernel, kernel.open("out") as channel:
    kernel.wait_running()
    consumer = threading.Thread(target=consume)
    consumer.start()
    pace = Pace()
    for first in range(0, MESSAGES, AT_A_TIME):
        channel.send_batches([batch_of(bodies[first : first + AT_A_TIME], Envelope(key=QUEUE))])
    channel.wait_confirmed()
    consumer.join()
    figures = pace.report(MESSAGES)
say(done=True, **figures)
