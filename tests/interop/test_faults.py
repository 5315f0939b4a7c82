"""Clients that die, fall silent, never read or come in thousands, and clocks that jump: what was promised is kept."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from kernel.hosting.listener import RESERVE
from plugins.protocols.amqp091.events import Delivered
from plugins.protocols.amqp091.methods import basic, queue
from tests.interop.brokers import Broker, KernelProcess
from tests.interop.dying_client import PHASES
from tests.interop.until import until
from tests.plugins.engines.amqp.raw_client import RawClient

pytestmark = pytest.mark.peer("pika")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def own_process(tmp_path: Path) -> Iterator[KernelProcess]:
    """A broker that no other test uses."""
    with KernelProcess(tmp_path) as process:
        yield process


def connect_to(broker: Broker, **parameters: object) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters(broker.host, broker.port, **parameters))


def take_all(channel: BlockingChannel, name: str) -> list[tuple[bytes, bool]]:
    """Return what is in a queue, and whether it was redelivered."""
    taken = []
    while (got := channel.basic_get(name, auto_ack=True))[0] is not None:
        taken.append((got[2], got[0].redelivered))
    return taken


@pytest.mark.parametrize("phase", PHASES)
def test_a_client_is_killed(broker: Broker, channel: BlockingChannel, name: str, phase: str) -> None:
    channel.queue_declare(name)
    channel.confirm_delivery()
    for number in range(3):
        channel.basic_publish("", name, b"%d" % number)
    command = [sys.executable, "-m", "tests.interop.dying_client", phase, str(broker.port), name]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"there\n"
        client.kill()
    redelivered = phase.startswith("holding")
    expected = [(b"0", redelivered), (b"1", redelivered), (b"2", False)]
    if phase == "unconfirmed":
        expected.append((b"kept", False))

    def count() -> int:
        counted: int = channel.queue_declare(name, passive=True).method.message_count
        return counted

    until(lambda: count() == len(expected))
    assert take_all(channel, name) == expected


@pytest.mark.slow
def test_a_silent_client_is_given_up_and_what_it_held_goes_to_others(
    broker: Broker, channel: BlockingChannel, name: str
) -> None:
    """Its connection is half open: nothing says that it has gone, but that nothing is heard of it."""
    channel.queue_declare(name)
    channel.basic_publish("", name, b"x")
    with RawClient(broker.port, heartbeat=1) as silent:
        silent.ask(basic.Consume(queue=name), basic.ConsumeOk)
        silent.wait_for(Delivered)
        got = until(lambda: take_all(channel, name))
        assert got == [(b"x", True)]


@pytest.mark.slow
def test_without_descriptors_others_go_on_and_it_recovers(own_process: KernelProcess) -> None:
    limit = own_process.descriptors() + 20
    resource.prlimit(own_process.pid, resource.RLIMIT_NOFILE, (limit, limit))
    witness = connect_to(own_process.broker).channel()
    crowd = [socket.create_connection((own_process.broker.host, own_process.broker.port)) for _ in range(60)]
    kept = min(RESERVE, limit // 4)  # the process keeps these for its logs and looks
    until(lambda: own_process.descriptors() >= limit - kept - 1)
    for _ in range(20):
        witness.queue_declare("", exclusive=True)
    for each in crowd:
        each.close()
    late = until(lambda: _let_in(own_process.broker))
    late.channel().queue_declare("", exclusive=True)
    late.close()
    witness.connection.close()


def _let_in(broker: Broker) -> pika.BlockingConnection | None:
    """Connect; None if we are turned away, because those who have left still hold their descriptors."""
    try:
        return connect_to(broker, socket_timeout=60, stack_timeout=60)
    except pika.exceptions.AMQPConnectionError:
        return None


@pytest.mark.slow
def test_clocks_that_jump_change_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Times to live and heartbeats go by the clock that cannot be set."""
    jumped = tmp_path / "jumped"
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import os, time\n"
        "real = time.time\n"
        f"by = {str(jumped)!r}\n"
        "time.time = lambda: real() + (float(open(by).read()) if os.path.exists(by) else 0)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(site))
    with KernelProcess(tmp_path) as process:
        connection = connect_to(process.broker, heartbeat=2)
        channel = connection.channel()
        channel.queue_declare("late")
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "late"}
        channel.queue_declare("long", arguments=arguments)
        channel.queue_declare("short", arguments=arguments)
        channel.basic_publish("", "long", b"long", pika.BasicProperties(expiration="3600000"))
        for seconds in (86_400.0, -86_400.0):
            (tmp_path / "jumping").write_text(str(seconds))
            (tmp_path / "jumping").replace(jumped)  # at once: it is read all the time
            channel.basic_publish("", "short", b"short", pika.BasicProperties(expiration="50"))
            until(lambda: take_all(channel, "late") == [(b"short", False)])
            connection.sleep(5)  # more than two heartbeats
        assert take_all(channel, "long") == [(b"long", False)]
        connection.close()


@pytest.mark.slow
def test_a_consumer_that_never_reads_harms_nobody(own_process: KernelProcess) -> None:
    """The firehose is bounded by the queue's own limit; what nobody reads is held for nobody."""
    body = b"x" * 10_000
    limit = {"x-max-length-bytes": 20_000_000}
    with RawClient(own_process.broker.port) as deaf:
        deaf.ask(queue.Declare(queue="hose", arguments=limit), queue.DeclareOk)
        deaf.ask(basic.Consume(queue="hose", no_ack=True), basic.ConsumeOk)
        publisher, other = connect_to(own_process.broker), connect_to(own_process.broker)
        before = own_process.resident()
        hose, quick = publisher.channel(), other.channel()
        quick.queue_declare("quick")
        for _ in range(40):
            for _ in range(500):
                hose.basic_publish("", "hose", body)
            quick.basic_publish("", "quick", b"x")
            assert until(lambda: take_all(quick, "quick")) == [(b"x", False)]
        assert own_process.resident() - before < 100_000_000, "200 MB were published"
        for connection in (publisher, other):
            connection.close()


@pytest.mark.slow
def test_thousands_of_connections_come_and_go(own_process: KernelProcess) -> None:
    port = own_process.broker.port

    def storm(count: int) -> None:
        for at in range(count):
            if at % 2:
                with RawClient(port) as client:
                    client.ask(queue.Declare(queue="", exclusive=True), queue.DeclareOk)
            else:
                with socket.create_connection(("127.0.0.1", port), 60) as wire:
                    wire.sendall(b"AMQP\x00\x00\x09\x01")

    descriptors = own_process.descriptors()

    def storms(count: int) -> int:
        threads = [threading.Thread(target=storm, args=(count // 2,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: own_process.descriptors() == descriptors)
        return own_process.resident()

    early = storms(2000)
    assert storms(4000) - early < 1_700_000, "less than the smallest object of a connection for each"
