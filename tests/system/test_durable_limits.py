"""A million stored messages, and a disk that is really full."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from kernel.contracts.message import batch_of
from tests.plugins.engines.amqp.conftest import Server
from tests.plugins.engines.broker.client import run
from tests.plugins.engines.broker.storage.test_directory import Opened

MILLION = 1_000_000

READER = """
import resource, sys
from pathlib import Path
from tests.plugins.engines.broker.storage.test_directory import Opened

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
broker = Opened(Path(sys.argv[1]))
queue = broker.vhost.queues["q"]
assert queue.backlog.count == 1_000_000, queue
opened = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
broker.client.consume(queue, auto_ack=True)
count = 0
while queue.backlog.count:
    broker.client.window.left = 500_000
    queue.touch()
    broker.broker.process(0.0)
    for _, _, span in broker.client.receiver.take_deliveries():
        for body in span.as_batch().bodies:
            assert int(body[:8]) == count
            count += 1
consumed = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
broker.close()
print(count, opened, consumed)
"""


@pytest.mark.slow
@pytest.mark.parametrize("in_a_run", [100, 10])
def test_a_million_messages_need_little_memory_to_start(tmp_path: Path, in_a_run: int) -> None:
    broker = Opened(tmp_path, queue_bytes=1 << 20)
    broker.vhost.declare_queue("q", None, 0.0, durable=True)
    envelope = run(b"", persistent=True).envelope
    for first in range(0, MILLION, in_a_run):
        bodies = [b"%08d" % number + b"x" * 92 for number in range(first, first + in_a_run)]
        broker.vhost.publish(batch_of(bodies, envelope), 0.0)
        if first % 10_000 == 0:
            broker.make_safe()
    broker.make_safe()
    broker.close()
    # A process of its own: how much memory it ever had is known of a process only.
    done = subprocess.run(
        [sys.executable, "-c", READER, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == 0, done.stderr
    count, opened, consumed = map(int, done.stdout.split())
    assert count == MILLION
    assert opened < 32 * 1024  # KiB, of 100 MB of bodies
    assert consumed < 64 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def serve(small_disk: Path) -> Iterator[Callable[..., Server]]:
    """Start servers that end before the file system does."""
    servers: list[Server] = []

    def start(**options: object) -> Server:
        servers.append(Server(**options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.mark.peer("pika")
def test_confirms_wait_while_the_disk_is_full(serve: Callable[..., Server], small_disk: Path) -> None:
    server = serve(data_dir=str(small_disk / "data"), disk_free_limit=0)
    channel = server.channel()
    channel.queue_declare("q", durable=True)
    channel.confirm_delivery()
    persistent = pika.BasicProperties(delivery_mode=2)
    for _ in range(10):
        channel.basic_publish("", "q", b"x" * 100_000, persistent)
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    waiting = server.connect()
    channel = waiting.channel()
    channel.confirm_delivery()
    told: list[bool] = []
    publishing = _publish_later(channel, persistent, told)
    _poll(lambda: server.engine.statistics()["store"]["write_failures"] > 0)
    assert not told
    assert server.engine.statistics()["store"]["last_error"].startswith("[Errno 28]")
    ballast.unlink()
    publishing.join(60)
    assert told == [True]
    assert server.host.call(lambda: server.engine.broker.vhost("/").queues["q"].backlog.count) == 11


def _publish_later(channel: Any, properties: Any, told: list[bool]) -> threading.Thread:
    def publish() -> None:
        channel.basic_publish("", "q", b"y" * 100_000, properties)
        told.append(True)

    thread = threading.Thread(target=publish)
    thread.start()
    return thread


def _poll(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)
