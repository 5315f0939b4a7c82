"""Brokers with a management API: ``examples/watched_broker.toml``, or RabbitMQ with its plugin."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.interop.management_requests import Asked, ask
from tests.interop.until import until
from tests.plugins.engines.amqp_client.rabbitmq import VERSION, RabbitMq
from tests.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "watched_broker.toml"
TIMEOUT = 60.0


class Managed(msgspec.Struct, frozen=True):
    """Where it listens, for guest/guest."""

    kind: str
    amqp: int
    web: int

    def is_rabbitmq(self, *version: int) -> bool:
        """Whether it is a RabbitMQ of this version or a later one."""
        return self.kind == "rabbitmq" and version <= VERSION


@contextmanager
def watched_broker(web: int | None = None, example: Path = EXAMPLE) -> Iterator[Managed]:
    """Run the example as its first lines say, with the API at a free port if no other is said."""
    ports = Managed("kernel", free_port(), web or free_port())
    environment = os.environ | {"AMQP_PORT": str(ports.amqp), "WEB_PORT": str(ports.web)}
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "kernel", "run", str(example), "--no-control", "--ready-fd", str(writing)],
        env=environment,
        pass_fds=(writing,),
        stdout=subprocess.DEVNULL,
    )
    os.close(writing)
    try:
        with os.fdopen(reading) as ready:
            assert ready.read() == "ready\n"
        yield ports
    finally:
        process.terminate()
        assert process.wait(TIMEOUT) == 0


@contextmanager
def managed_rabbitmq(folder: Path) -> Iterator[Managed]:
    """Run RabbitMQ with its plugin for management."""
    port = free_port()
    settings = ["management.tcp.ip = 127.0.0.1", f"management.tcp.port = {port}"]
    node = RabbitMq(folder, ["rabbitmq_management"], settings)
    try:
        node.start()
        # It gathers figures every five seconds, and has a node without any before.
        until(lambda: "applications" in ask(port, Asked("GET", "nodes")).content[0])
        yield Managed("rabbitmq", node.port, port)
    finally:
        node.close()
