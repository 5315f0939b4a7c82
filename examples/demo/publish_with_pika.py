"""Publishes a tenth of the feed, as in pika's tutorials: it waits for each confirm before the next message."""

from __future__ import annotations

import os

import pika

from examples.demo.feed import Pace, encode, records, say

parameters = pika.ConnectionParameters("127.0.0.1", int(os.environ["AMQP_PORT"]))
connection = pika.BlockingConnection(parameters)
channel = connection.channel()
channel.exchange_declare(exchange="feed", exchange_type="topic", durable=True)
channel.confirm_delivery()

published = 0
pace = Pace()
for number, key, record in records(part=0):
    channel.basic_publish(exchange="feed", routing_key=key, body=encode(number, record, published))
    published += 1
    if published % 100 == 0:
        say(published=published)

say(done=True, **pace.report(published))
connection.close()
