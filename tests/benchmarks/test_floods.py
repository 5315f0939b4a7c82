"""Floods of MQTT and STOMP: the broker has seen every message once, and nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks import floods
from benchmarks.mqtt import flood as mqtt
from benchmarks.processes import Child, Role
from benchmarks.scenario import Unavailable
from benchmarks.stomp import flood as stomp
from benchmarks.stomp.bare import BareClient
from kernel import EnginePlan, Kernel
from kernel.topology.plan import Plan, ThreadPlan
from tests.systems import linux_only

pytestmark = linux_only

JOBS = {
    "mqtt, QoS 0": ("mqtt", mqtt.flood, mqtt.Job(200, block=50, window=2)),
    "mqtt, QoS 1": ("mqtt", mqtt.flood, mqtt.Job(200, block=50, qos=1)),
    "mqtt, QoS 2": ("mqtt", mqtt.flood, mqtt.Job(200, block=50, qos=2)),
    "stomp, auto": ("stomp", stomp.flood, stomp.Job(200, block=50, window=2)),
    "stomp, acknowledged": (
        "stomp",
        stomp.flood,
        stomp.Job(200, block=50, ack="client-individual", prefetch=30),
    ),
    "stomp, receipts": ("stomp", stomp.flood, stomp.Job(200, block=50, receipts=True)),
}


@contextmanager
def _broker(protocol: str) -> Iterator[Kernel]:
    listener = {"protocol": protocol, "address": "127.0.0.1:0", "anonymous": "guest"}
    engine = EnginePlan(name="broker", kind="broker", options={"listeners": [listener]})
    with Kernel(Plan(threads=(ThreadPlan(name="io"),), engines=(engine,))) as kernel:
        kernel.wait_running()
        yield kernel


def _sum(kernel: Kernel, what: str, name: str) -> int:
    """What all connections or queues have had together."""
    return sum(row[name] for row in kernel.inspect(what).rows)


@pytest.mark.slow
@pytest.mark.parametrize("protocol, flood, job", list(JOBS.values()), ids=list(JOBS))
def test_every_message_is_published_and_delivered_once(protocol: str, flood: Role, job: floods.Job) -> None:
    with _broker(protocol) as kernel, Child(flood, kernel.address_of("broker"), job) as client:
        client.hear()
        assert _sum(kernel, "connections", "messages_out") == job.block
        client.say("go")
        client.hear()
        every = job.block + job.count
        assert _sum(kernel, "connections", "messages_in") == every
        assert _sum(kernel, "connections", "messages_out") == every


@pytest.mark.slow
def test_a_queue_that_nobody_reads_is_empty_afterwards() -> None:
    job = stomp.Job(200, subscribers=0, block=50, receipts=True)
    with _broker("stomp") as kernel:
        with Child(stomp.flood, kernel.address_of("broker"), job) as client:
            client.hear()
            client.say("go")
            client.hear()
            assert _sum(kernel, "queues", "messages_ready") == 250
            client.say("go on")
            with pytest.raises(Unavailable, match="ended with status 0"):
                client.hear()
        assert _sum(kernel, "queues", "messages_out") == 250
        assert _sum(kernel, "queues", "messages") == 0


def test_a_refusal_is_no_message() -> None:
    with _broker("stomp") as kernel:
        client = BareClient(kernel.address_of("broker"))
        with pytest.raises(ConnectionError, match="SUBSCRIBE is answered with .ERROR"):
            client.subscribe("/nowhere/x")
        client.socket.close()
