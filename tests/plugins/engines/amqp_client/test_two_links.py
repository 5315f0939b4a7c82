"""A connection for each direction: a publisher that the server has blocked does not stop the consumer."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kernel.topology.system import Kernel
from plugins.protocols.amqp091.methods import connection
from tests.plugins.engines.amqp_client.conftest import TIMEOUT, Client, receive
from tests.plugins.engines.amqp_client.in_memory import InMemory

CONSUME = [{"queue": "q"}]


def test_who_only_consumes_has_one_connection_and_a_second_once_something_is_to_be_published(
    connect: Callable[..., Client], broker: Kernel
) -> None:
    client = connect(exchange="", key="q", consume=CONSUME)
    assert [row["link"] for row in client.statistics()["links"]] == ["consuming"]
    client.kernel.open("out").send(b"x")
    assert bytes(client.kernel.open("in").receive(TIMEOUT)) == b"x"
    assert [row["link"] for row in client.statistics()["links"]] == ["consuming", "publishing"]
    assert len(broker.inspect("connections", TIMEOUT).rows) == client.statistics()["connections"] == 2
    assert client.events.all("connected")[-1].detail == "publishing"


def test_who_only_publishes_has_one(connect: Callable[..., Client], broker: Kernel) -> None:
    client = connect(exchange="", key="q")
    out = client.kernel.open("out")
    out.send(b"x")
    out.wait_confirmed(TIMEOUT)
    assert [row["link"] for row in client.statistics()["links"]] == ["publishing"]
    assert len(broker.inspect("connections", TIMEOUT).rows) == 1


def test_what_is_exclusive_to_the_consumer_is_declared_once_and_published_to(
    connect: Callable[..., Client],
) -> None:
    client = connect(
        exchanges=[{"name": "feed", "type": "fanout"}],
        queues=[{"name": "mine", "exclusive": True}, {"name": "shared"}],
        bindings=[{"exchange": "feed", "queue": "mine"}, {"exchange": "feed", "queue": "shared"}],
        consume=[{"queue": "mine"}],
        exchange="feed",
    )
    client.kernel.open("out").send_many([b"1", b"2"])
    assert receive(client.kernel.open("in"), [b"1", b"2"]) == [b"1", b"2"]
    assert not client.events.all("refused")


def test_a_blocked_publisher_says_so() -> None:
    world = InMemory()
    world.say(0, connection.Blocked(reason="low on memory"))
    statistics = world.client.statistics()
    assert statistics["blocked"] is True
    (row,) = statistics["links"]
    assert (row["state"], "low on memory" in row["last_error"]) == ("blocked", True)
    world.say(0, connection.Unblocked())
    assert world.client.statistics()["blocked"] is False


@pytest.mark.slow
def test_an_application_that_takes_its_time_does_not_starve_heartbeats(
    connect: Callable[..., Client], broker: Kernel
) -> None:
    client = connect(exchange="", key="q", consume=CONSUME, heartbeat=3)
    out, into = client.kernel.open("out"), client.kernel.open("in")
    for body in (b"1", b"2"):
        out.send(body)
        assert bytes(into.receive(TIMEOUT)) == body
        time.sleep(7)  # the callback: longer than the two intervals after which a silent peer is given up
    assert not client.events.all("disconnected")
    assert client.statistics()["reconnects"] == 0
