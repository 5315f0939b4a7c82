"""Publish to bridge.toml: what the other process confirms is confirmed here."""

import os

import pika

PORT = os.environ.get("AMQP_PORT", "5672")
BROKER = pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{PORT}/")

with pika.BlockingConnection(BROKER) as connection:
    channel = connection.channel()
    channel.confirm_delivery()  # each publish waits for its confirmation
    for city, weather in (("bratislava", "sunny"), ("praha", "rain")):
        channel.basic_publish("feed", f"weather.{city}", weather.encode())
        print("confirmed: weather of", city, flush=True)
