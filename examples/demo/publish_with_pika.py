"""Publishes half of the feed, as in pika's tutorials: a blocking connection, a topic exchange, confirms."""

from __future__ import annotations

import os

import pika

from examples.demo.feed import encode, records, say

parameters = pika.ConnectionParameters("127.0.0.1", int(os.environ["AMQP_PORT"]))
connection = pika.BlockingConnection(parameters)
channel = connection.channel()
channel.exchange_declare(exchange="feed", exchange_type="topic", durable=True)
channel.confirm_delivery()

published = 0
for number, key, record in records(part=0):
    channel.basic_publish(exchange="feed", routing_key=key, body=encode(number, record))
    published += 1
    if published % 500 == 0:
        say(published=published)

connection.close()
say(published=published, done=True)
