"""The checks of nagios-plugins-rabbitmq, as they are, against our management API and RabbitMQ's."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pika
import pytest

from tests.interop.managed_brokers import EXAMPLE, Managed, watched_broker
from tests.interop.until import until

pytestmark = [pytest.mark.peer("nagios-plugins-rabbitmq"), pytest.mark.peer("prometheus-client")]

OK, CRITICAL, UNKNOWN = 0, 2, 3
"""What a check returns."""
TIMEOUT = 60.0


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managed]:
    """A broker whose node is called as RabbitMQ's usually is: checks look for ``rabbit@`` and the host."""
    named = EXAMPLE.read_text().replace("[engines.broker", "[engines.rabbit").replace('"broker"', '"rabbit"')
    example = tmp_path_factory.mktemp("nagios") / "rabbit.toml"
    example.write_text(named)
    with watched_broker(example=example) as managed:
        yield managed


def _check(managed: Managed, what: str, *arguments: str, password: str = "guest") -> tuple[int, str]:
    where = ["-H", "localhost", "--port", str(managed.web), "-u", "guest", "-p", password]
    command = [f"check_rabbitmq_{what}", *where, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("what", ["aliveness", "connections", "objects"])
def test_a_check_logs_in(managed: Managed, what: str) -> None:
    """They send a password only where the login is called as RabbitMQ calls it."""
    status, said = _check(managed, what)
    assert (status, " OK - " in said) == (OK, True), said
    assert "efused" in _check(managed, what, password="wrong")[1]


def _connect(managed: Managed) -> pika.BlockingConnection:
    login = pika.PlainCredentials("guest", "guest")
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", managed.amqp, credentials=login))


def test_a_queue_that_is_too_long(managed: Managed) -> None:
    name = "test-nagios-queue"
    with _connect(managed) as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        for _ in range(3):
            channel.basic_publish("", name, b"")
        thresholds = ("-w", "1,1,1,1", "-c", "2,2,1,1")
        # RabbitMQ gathers figures every five seconds.
        until(lambda: "messages CRITICAL (3)" in _check(managed, "queue", "--queue", name, *thresholds)[1])
        channel.queue_delete(name)
    assert _check(managed, "queue", "--queue", "test-nagios-missing")[0] == CRITICAL


def test_an_unknown_virtual_host(managed: Managed) -> None:
    status, said = _check(managed, "aliveness", "--vhost", "nope")
    assert (status, said) == (UNKNOWN, "RABBITMQ_ALIVENESS UNKNOWN - Not found: nope\n")


@pytest.mark.parametrize("what", ["overview", "partition", "server", "watermark"])
def test_the_node_is_well(rabbit: Managed, what: str) -> None:
    """With a connection: the check of the server takes no sockets for no answer, from RabbitMQ as well."""
    with _connect(rabbit):
        status, said = _check(rabbit, what)
    assert (status, " OK - " in said) == (OK, True), said
