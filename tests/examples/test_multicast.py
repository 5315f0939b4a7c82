"""``examples/amqp_to_multicast.toml``: pika publishes, libzmq's SUB receives over epgm; on a network of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.lan import INTERFACE, Lan

EXAMPLE = "examples/amqp_to_multicast.toml"
GROUP, PORT = "239.192.7.9", "5999"

PUBLISH = """
import sys, pika
with pika.BlockingConnection(pika.URLParameters("amqp://guest:guest@127.0.0.1:5672/")) as connection:
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("amq.topic", "weather.wien", b"of another exchange")
    for number in range(100):
        channel.basic_publish("feed", f"weather.{number % 3}", b"report %d" % number)
"""


@pytest.mark.slow
@pytest.mark.peer("pika")
@pytest.mark.peer("namespaces")
@pytest.mark.peer("libzmq with PGM")
@pytest.mark.parametrize("interface", [INTERFACE, Lan.address(0)], ids=["by name", "by address"])
def test_what_pika_publishes_is_what_libzmq_s_subscribers_receive(interface: str) -> None:
    with Lan(3) as network:
        kernel = network.start(
            0,
            [sys.executable, "-W", "error", "-m", "kernel", "run", EXAMPLE],
            PGM_INTERFACE=interface,
            PGM_GROUP=GROUP,
            PGM_PORT=PORT,
        )
        assert kernel.stderr is None
        assert kernel.stdout is not None
        said: list[str] = []
        while " ready " not in (line := kernel.stdout.readline()):
            said.append(line)
            assert line, "".join(said)
        subscribers = [_subscriber(network, member) for member in (1, 2)]
        publisher = network.start(0, [sys.executable, "-c", PUBLISH])
        assert publisher.wait(200) == 0
        for subscriber in subscribers:
            assert subscriber.stdout is not None
            got = [subscriber.stdout.readline().rstrip("\n") for _ in range(100)]
            assert got == [f"report {number}" for number in range(100)]


def _subscriber(network: Lan, member: int) -> subprocess.Popen[str]:
    where = f"epgm://{Lan.address(member)};{GROUP}:{PORT}"
    program = network.python(member, "tests.plugins.engines.pgm.libzmq_peer", "subscribe", where, 100)
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    return program
