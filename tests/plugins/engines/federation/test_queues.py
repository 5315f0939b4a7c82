"""Queue federation between brokers of ours: messages move to where consumers are, when those have nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plugins.protocols.amqp091.events import Delivered, MethodReceived
from plugins.protocols.amqp091.methods import basic, queue
from tests.plugins.engines.federation.conftest import Site, until

Make = Callable[..., Site]


def _pair(site: Make, **options: Any) -> tuple[Site, Site]:
    """Two brokers with the queue "jobs"; the second may have what waits in the first's."""
    up, down = site("up"), site("down")
    for each in (up, down):
        each.wants(name="jobs")
    down.follow(up.address, queues=["jobs"], **options)
    down.events.wait("connected", "link")
    return up, down


def _put(site: Site, first: int, last: int, **properties: Any) -> None:
    for number in range(first, last):
        site.client.publish(b"%d" % number, "jobs", "", properties)
    site.client.ask(basic.Qos(), basic.QosOk)


def _consume(site: Site, prefetch: int) -> str:
    site.client.ask(basic.Qos(prefetch_count=prefetch), basic.QosOk)
    return site.client.ask(basic.Consume(queue="jobs"), basic.ConsumeOk).consumer_tag


def _delivered(site: Site, count: int) -> list[Delivered]:
    """Take so many deliveries, and acknowledge them as they come."""
    got: list[Delivered] = []
    while sum(len(event.batch) for event in got) < count:
        got.append(site.client.wait_for(Delivered))
        last = got[-1].first_delivery_tag + len(got[-1].batch) - 1
        site.client.send(basic.Ack(delivery_tag=last, multiple=True))
    return got


def test_nothing_moves_while_nobody_here_consumes(site: Make) -> None:
    up, down = _pair(site)
    _put(up, 0, 10)
    assert down.figures()["messages_in"] == 0
    _consume(down, 100)
    assert [bytes(body) for event in _delivered(down, 10) for body in event.batch.bodies] == [
        b"%d" % number for number in range(10)
    ]
    until(lambda: up.count("jobs") == 0)


def test_nothing_moves_while_consumers_here_have_something(site: Make) -> None:
    up, down = _pair(site)
    _put(down, 0, 5)
    _put(up, 5, 10)
    _consume(down, 1)
    for number in range(5):  # one at a time, and not one of the others in between
        (event,) = _delivered(down, 1)
        assert bytes(event.batch.bodies[0]) == b"%d" % number
    (event,) = _delivered(down, 1)
    assert bytes(event.batch.bodies[0]) == b"5"


def test_a_link_asks_for_no_more_than_its_prefetch_ahead_of_the_consumers(site: Make) -> None:
    up, down = _pair(site, prefetch=7)
    _put(up, 0, 100)
    _consume(down, 1)
    down.client.wait_for(Delivered)  # not acknowledged: nobody here can take more
    until(lambda: up.rows("consumers") == () and down.count("jobs") >= 6)
    assert down.count("jobs") <= 13  # a second time, if the first came in pieces


def test_the_trace_says_where_a_message_was_first_and_how_often(site: Make) -> None:
    up, down = _pair(site)
    up.follow(down.address, name="back", queues=["jobs"])
    up.events.wait("connected", "back")
    up.client.publish(b"x", "jobs", "", {"headers": {"own": 1}})
    tag = _consume(down, 1)
    (event,) = [down.client.wait_for(Delivered)]
    assert (event.batch.envelope.exchange, event.batch.envelope.key) == ("", "jobs")
    headers = event.batch.envelope.properties["headers"]
    assert (headers["own"], headers["x-original-exchange"], headers["x-original-routing-key"]) == (
        1,
        "",
        "jobs",
    )
    (step,) = headers["x-received-from"]
    assert (step["queue"], step["visit-count"], step["redelivered"]) == ("jobs", 1, False)
    down.client.ask(basic.Cancel(consumer_tag=tag), basic.CancelOk)
    down.client.send(basic.Nack(delivery_tag=event.first_delivery_tag, requeue=True))
    _consume(up, 1)  # now they are wanted there: back it goes
    event = up.client.wait_for(Delivered)
    steps = event.batch.envelope.properties["headers"]["x-received-from"]
    assert [step["uri"] for step in steps] == [f"amqp://{down.address}", f"amqp://{up.address}"]


def test_consumers_of_the_upstream_are_served_first(site: Make) -> None:
    up, down = _pair(site)
    _consume(up, 1000)
    _consume(down, 1000)
    until(lambda: len(up.rows("consumers")) == 2)
    for number in range(100):
        up.client.publish(b"%d" % number, "jobs")
    _delivered(up, 100)
    assert down.figures()["messages_in"] == 0


def test_nothing_is_lost_when_the_wire_is_cut(site: Make) -> None:
    up, down = _pair(site, prefetch=20)
    _put(up, 0, 2000)
    _consume(down, 100)
    got: set[int] = set()
    for cut in range(3):
        got.update(int(body) for event in _delivered(down, 300) for body in event.batch.bodies)
        down.cut()
        down.events.wait("connected", "link", cut + 2)
    while len(got) < 2000:
        got.update(int(body) for event in _delivered(down, 1) for body in event.batch.bodies)


def _names(site: Site) -> set[str]:
    return {row["name"] for row in site.rows("queues")}


def test_a_queue_that_is_deleted_upstream_is_declared_and_consumed_from_again(site: Make) -> None:
    up, down = _pair(site)
    _consume(down, 10)
    until(lambda: len(up.rows("consumers")) == 1)
    up.client.ask(queue.Delete(queue="jobs"), queue.DeleteOk)
    until(lambda: "jobs" in _names(up) and len(up.rows("consumers")) == 1)
    _put(up, 0, 3)
    assert [bytes(body) for event in _delivered(down, 3) for body in event.batch.bodies] == [b"0", b"1", b"2"]
    assert down.figures()["reconnects"] == 0


def test_a_queue_that_was_used_as_it_is_and_is_deleted_is_declared_as_it_is_here(site: Make) -> None:
    up, down = site("up"), site("down")
    down.wants(name="jobs")
    up.client.ask(queue.Declare(queue="jobs", durable=True), queue.DeclareOk)
    down.follow(up.address, queues=["jobs"])
    assert "406" in down.events.wait("refused", "link").detail
    _consume(down, 10)
    until(lambda: len(up.rows("consumers")) == 1)
    up.client.ask(queue.Delete(queue="jobs"), queue.DeleteOk)
    until(lambda: "jobs" in _names(up) and len(up.rows("consumers")) == 1)
    (row,) = up.rows("queues")
    assert row["durable"] is False


@pytest.mark.slow
def test_what_is_on_its_way_to_a_queue_that_is_deleted_stays_upstream(site: Make) -> None:
    up, down = _pair(site)
    for _ in range(2000):  # more than all sockets together take, however late the queue is deleted
        up.client.publish(bytes(20_000), "jobs")
    _consume(down, 0)
    entered = len(down.client.wait_for(Delivered).batch)
    down.client.send(queue.Delete(queue="jobs"))
    while isinstance(event := down.client.next_of(Delivered, MethodReceived), Delivered) or isinstance(
        event.method, basic.Cancel
    ):
        entered += len(event.batch) if isinstance(event, Delivered) else 0
    assert isinstance(event.method, queue.DeleteOk)
    entered += event.method.message_count
    assert 0 < entered < 2000
    until(lambda: up.rows("consumers") == ())
    until(lambda: all(row["messages_unacknowledged"] == 0 for row in up.rows("queues")))
    assert entered + up.count("jobs") >= 2000
    down.wants(name="jobs")
    _consume(down, 0)
    assert down.client.wait_for(Delivered).batch.envelope.key == "jobs"
