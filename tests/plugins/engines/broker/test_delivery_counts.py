"""Delivery counts of messages that came in one batch and go separate ways."""

from __future__ import annotations

from kernel.contracts.message import Envelope, batch_of
from plugins.engines.broker.delivery_counts import HEADER, DeliveryCounts
from plugins.engines.broker.span import Span

BODIES = [b"0", b"1", b"2", b"3", b"4"]


def span(start: int = 0, stop: int = 5, **headers: object) -> Span:
    envelope = Envelope(key="k", properties={"headers": headers} if headers else {})
    return Span(10, batch_of(BODIES, envelope), start, stop)


def bodies(spans: list[Span]) -> list[bytes]:
    return [bytes(body) for each in spans for body in each.as_batch().bodies]


def marks(spans: list[Span]) -> list[object]:
    return [each.envelope.properties.get("headers", {}).get(HEADER) for each in spans]


def test_each_message_has_its_own_count() -> None:
    counts = DeliveryCounts(None)
    assert not counts
    assert bodies(counts.returned(span(1, 3))[0]) == BODIES[1:3]
    counts.returned(span(2, 5))
    delivered = counts.marked(span())
    assert bodies(delivered) == BODIES
    assert [len(each) for each in delivered] == [1, 1, 1, 2]
    assert marks(delivered) == [None, 1, 2, 1]
    assert marks(counts.marked(span(0, 1), always=True)) == [0]


def test_those_above_the_limit_are_parted_from_the_others() -> None:
    counts = DeliveryCounts(1)
    assert counts.returned(span(2, 4))[1] == []
    kept, dead = counts.returned(span())
    assert (bodies(kept), bodies(dead)) == ([b"0", b"1", b"4"], [b"2", b"3"])
    counts.forget(10, 15)
    assert not counts


def test_messages_of_one_count_share_their_envelope() -> None:
    """So that they are sent as one batch, and the headers are encoded once."""
    counts = DeliveryCounts(None)
    first = span()
    counts.returned(Span(10, first.batch, 1, 2))
    counts.returned(Span(10, first.batch, 3, 4))
    delivered = counts.marked(first)
    assert delivered[1].envelope is delivered[3].envelope


def test_a_dead_letter_has_no_count() -> None:
    counts = DeliveryCounts(None)
    counts.returned(span(x=1))
    (delivered,) = counts.marked(span(x=1))
    assert delivered.envelope.properties["headers"] == {"x": 1, HEADER: 1}
    assert counts.unmarked(delivered).envelope.properties["headers"] == {"x": 1}
