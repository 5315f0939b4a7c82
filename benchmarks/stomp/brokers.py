"""STOMP brokers: ours, started for each measurement, and a RabbitMQ with its plugin for a run."""

from __future__ import annotations

from functools import partial

from benchmarks import front_ends

our_broker = partial(front_ends.our_broker, "stomp")
rabbitmq = partial(front_ends.rabbitmq_with, "stomp")
