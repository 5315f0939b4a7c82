"""Everyday life with @stomp/stompjs over WebSocket; each check is a function of node/stomp.js."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from kernel import EnginePlan
from kernel.testing.fixtures import KernelFactory, kernel_factory

__all__ = ["kernel_factory"]

pytestmark = [pytest.mark.peer("node-stompjs"), pytest.mark.slow]

PROGRAM = Path(__file__).parent / "node" / "stomp.js"
CHECKS = re.findall(r"^  async (\w+)\(", PROGRAM.read_text(), re.MULTILINE)


WITH_AMQP = "together_with_amqp"


@pytest.fixture
def ports(kernel_factory: KernelFactory) -> Iterator[tuple[int, int]]:
    """Where a broker listens for STOMP over WebSocket, and for AMQP."""
    pytest.importorskip("wsproto")
    listeners = [
        {"protocol": "stomp", "address": "ws://127.0.0.1:0/ws"},
        {"protocol": "amqp", "address": "tcp://127.0.0.1:0"},
    ]
    kernel = kernel_factory(EnginePlan(name="broker", kind="broker", options={"listeners": listeners}))
    web, amqp = (int(port) for port in re.findall(r":(\d+)", kernel.address_of("broker")))
    yield web, amqp
    kernel.close(linger=0)


def _command(check: str, port: int, name: str) -> list[str]:
    return ["node", str(PROGRAM), check, f"ws://127.0.0.1:{port}/ws", name]


@pytest.mark.parametrize("check", [check for check in CHECKS if check != WITH_AMQP])
def test_a_day_with_stompjs(ports: tuple[int, int], check: str, name: str) -> None:
    done = subprocess.run(_command(check, ports[0], name), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.peer("pika")
def test_stompjs_and_pika_on_each_others_queues(ports: tuple[int, int], name: str) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", ports[1])) as connection:
        channel = connection.channel()
        for queue in (f"{name}-to-stomp", f"{name}-to-amqp"):
            channel.queue_declare(queue, durable=True)
        properties = pika.BasicProperties(correlation_id="8", headers={"number": 5})
        channel.basic_publish("", f"{name}-to-stomp", "from amqp ü".encode(), properties)
        done = subprocess.run(
            _command(WITH_AMQP, ports[0], name), capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        _, properties, body = channel.basic_get(f"{name}-to-amqp", auto_ack=True)
    assert body.decode() == "from stomp ü"
    assert (properties.delivery_mode, properties.correlation_id) == (2, "7")
    assert properties.headers["own"] == "value"
