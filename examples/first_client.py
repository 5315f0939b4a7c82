"""A client of broker.toml: publish a message to a queue, and take it out."""

import os

import pika

PORT = os.environ.get("AMQP_PORT", "5672")
BROKER = pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{PORT}/")

with pika.BlockingConnection(BROKER) as connection:
    channel = connection.channel()
    channel.queue_declare("orders")
    channel.basic_publish("", "orders", b"one pair of boots")
    method, properties, body = channel.basic_get("orders", auto_ack=True)
    print(body.decode())
