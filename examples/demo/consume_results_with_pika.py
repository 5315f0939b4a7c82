"""Receives Spark's counts.  It also publishes ticks: a window ends when a later message is there."""

from __future__ import annotations

import json
import os

import pika

from examples.demo.feed import say

expected = int(os.environ["EXPECTED"])
counts: dict[tuple[int, str], int] = {}

connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", int(os.environ["AMQP_PORT"])))
channel = connection.channel()
queue_name = channel.queue_declare(queue="", exclusive=True).method.queue
channel.queue_bind(exchange="results", queue=queue_name, routing_key="country.*")
say(ready=True)

for _method, _properties, body in channel.consume(queue_name, inactivity_timeout=0.5, auto_ack=True):
    if body is None:
        channel.basic_publish("ticks", "tick", b"")
        continue
    window = json.loads(body)
    counts[window["start"], window["value"]] = window["messages"]  # sent again, it is the same window
    say(received=sum(counts.values()))
    if sum(counts.values()) >= expected:
        break

connection.close()
say(
    done=True,
    delivered=sum(counts.values()),
    windows=len({start for start, _ in counts}),
    countries=len({country for _, country in counts}),
)
