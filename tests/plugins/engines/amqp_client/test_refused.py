"""What can never succeed: it is told from what may, said clearly, counted, seen in the state, and tried less and less often."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.contracts.message import Envelope, batch_of
from tests.plugins.engines.amqp_client.in_memory import InMemory

STEADY = {"first": 1.0, "most": 8.0, "jitter": 0.0}


def _world(**options: Any) -> InMemory:
    return InMemory(reconnect=STEADY, mandatory=False, **options)


def _refuse(world: InMemory, code: int) -> None:
    """The server closes the publisher's channel, and the client opens it again."""
    world.close(2, code)
    world.host.run(until=world.host.now() + 20)


def _feed(world: InMemory, exchange: str, *bodies: bytes) -> None:
    world.port.waiting.append(batch_of(list(bodies), Envelope(exchange=exchange)))
    world.client.on_output()
    world.host.run()


def test_a_message_that_is_too_large_for_the_server_is_found_and_dropped_and_the_others_go_on() -> None:
    world = _world()
    world.feed(b"0", b"giant", b"2")
    _refuse(world, 406)
    assert world.published == [b"0", b"giant", b"2", b"0"]
    world.acknowledge(1)
    _refuse(world, 406)  # in flight alone: it is this one
    assert world.published[4:] == [b"giant", b"2"]
    world.acknowledge(1)
    assert world.port.confirmed_in == 3
    assert world.link.counters.messages_refused == 1
    assert "5 bytes" in next(event.detail for event in world.host.events if event.what == "dropped")
    assert world.client.statistics()["links"][0]["state"] == "connected"


def test_a_message_for_a_missing_exchange_is_waited_for_less_and_less_often() -> None:
    world = _world()
    world.feed(b"0")
    waits = []
    for _ in range(6):
        world.close(2, 404)
        waits.append(world.host.events[-1].next_try)
        world.host.run(until=world.host.now() + 20)
    assert waits == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    (row,) = world.client.statistics()["links"]
    assert row["state"] == "refused"
    assert "404 NOT_FOUND" in row["last_error"]
    assert world.client.statistics()["refusals"] == 6
    world.acknowledge(1)  # somebody has made it
    (row,) = world.client.statistics()["links"]
    assert (row["state"], row["last_error"]) == ("connected", "")
    assert world.port.confirmed_in == 1


def test_the_wait_for_the_next_try_is_shown() -> None:
    world = _world()
    world.feed(b"0")
    world.close(2, 403)
    world.host.run(until=0.25)
    assert world.client.statistics()["links"][0]["next_try"] == 1.0
    world.host.run(until=1.25)
    assert world.client.statistics()["links"][0]["next_try"] is None


@pytest.mark.parametrize("code", [403, 404])
def test_messages_for_an_exchange_that_is_refused_can_be_dropped(code: int) -> None:
    world = _world(when_refused="drop", key=None)
    _feed(world, "missing", b"0")
    _refuse(world, code)
    _refuse(world, code)
    assert world.published == [b"0", b"0"]
    assert world.port.confirmed_in == 1
    now = world.host.now()
    world.close(2, 541)  # a fault of the server: the channel comes back, what is known of exchanges stays
    world.host.run(until=now + 5)
    assert world.host.now() == now + 5


def test_others_behind_a_dropped_message_need_no_second_refusal() -> None:
    world = _world(when_refused="drop", key=None)
    _feed(world, "missing", b"0")
    _refuse(world, 404)
    world.close(2, 404)
    world.host.run(until=world.host.now() + 1)
    _feed(world, "missing", b"1", b"2")
    _feed(world, "there", b"3")
    assert world.published == [b"0", b"0", b"3"]
    assert world.link.counters.messages_refused == 3
    world.host.run(until=world.host.now() + 8)  # the longest wait: perhaps it is there now
    _feed(world, "missing", b"4")
    assert world.published[-1] == b"4"


def test_a_fault_of_the_server_drops_nothing() -> None:
    world = _world(when_refused="drop")
    world.feed(b"0")
    for _ in range(3):
        _refuse(world, 541)
    assert world.published == [b"0"] * 4
    assert world.link.counters.messages_refused == 0
