"""Messages that differ in their keys are read together, and are what they are one by one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from kernel.contracts.message import Envelope, batch_of
from kernel.contracts.mixed_batch import KeyedBatch
from plugins.protocols.amqp091 import published_batches
from plugins.protocols.amqp091.events import ConnectionClosed, Delivered, Event, Published, PublishedUnderKeys
from tests.plugins.protocols.amqp091.conftest import Pair, opened
from tests.seeds import examples

MESSAGES = some.lists(
    some.tuples(
        some.sampled_from(["a", "b", "cc", "dd", "", "key of some length"]),
        some.sampled_from([0, 1, 5, 5, 5, 100, 5000]),
        some.sampled_from(["", "", "", "", "other"]),
        some.sampled_from([{}, {}, {}, {}, {"correlation_id": "x"}]),
        some.sampled_from([False, False, False, False, True]),
        some.integers(1, 6),
    ),
    max_size=30,
)
CUTS = some.lists(some.integers(0, 60_000), max_size=5)
Flat = list[tuple[bool, str, str, dict[str, Any], bytes]]


def published(events: list[Event]) -> Flat:
    """Return the messages one by one."""
    return [
        (event.mandatory, batch.envelope.exchange, batch.envelope.key, dict(batch.envelope.properties), body)
        for event in events
        if isinstance(event, Published | PublishedUnderKeys)
        for batch in (event.batch.divided() if isinstance(event, PublishedUnderKeys) else [event.batch])
        for body in batch.bodies
    ]


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    borders = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    return [data[start:stop] for start, stop in pairwise(borders)]


def feed(pair: Pair, count: int = 200, size: int = 100) -> bytes:
    for number in range(count):
        pair.client.publish(1, batch_of([b"x" * size], Envelope(key=f"key.{number:06}", exchange="e")))
    return b"".join(pair.client.data_to_send())


@settings(max_examples=examples(200), deadline=None)
@given(MESSAGES, CUTS)
def test_they_are_what_they_are_one_by_one(messages: list[Any], cuts: list[int]) -> None:
    pair = opened()
    pair.server.accept_keyed()
    sent: Flat = []
    for at, (key, size, exchange, properties, mandatory, times) in enumerate(messages):
        bodies = [bytes((at, number)) * size for number in range(times)]
        envelope = Envelope(key=key, exchange=exchange, properties=properties)
        pair.client.publish(1, batch_of(bodies, envelope), mandatory=mandatory)
        sent += [(mandatory, exchange, key, properties, body) for body in bodies]
    data = b"".join(map(bytes, pair.client.data_to_send()))
    with pytest.MonkeyPatch.context() as patch:
        # It looks for keys at each message.
        patch.setattr(published_batches, "_LEFT_ALONE", 0)
        events = [event for chunk in chunks(data, cuts) for event in pair.server.receive_data(chunk, 1.0)]
    assert published(events) == sent
    for event in events:
        if isinstance(event, PublishedUnderKeys):
            batch = event.batch
            widths = set(map(len, batch.bodies))
            assert batch.width == (widths.pop() if len(widths) == 1 else 0)
            assert batch.size == sum(map(len, batch.bodies))


@settings(max_examples=examples(200), deadline=None)
@given(some.integers(0, 40_000), some.integers(0, 255), CUTS)
def test_a_wrong_octet_is_found_where_it_is_found_one_by_one(at: int, octet: int, cuts: list[int]) -> None:
    """The same messages before it, and the same end of the connection, if it is one."""
    answers = []
    for accepts in (False, True):
        pair = opened()
        if accepts:
            pair.server.accept_keyed()
        data = bytearray(feed(pair))
        data[at % len(data)] = octet
        events = [e for chunk in chunks(bytes(data), cuts) for e in pair.server.receive_data(chunk, 1.0)]
        ends = [event for event in events if isinstance(event, ConnectionClosed)]
        answers.append((published(events), ends, pair.server.data_to_send()))
    assert answers[0] == answers[1]


def test_a_feed_is_one_batch_of_each_chunk() -> None:
    pair = opened()
    pair.server.accept_keyed()
    first, *others = pair.server.receive_data(feed(pair), 1.0)
    assert isinstance(first, Published)
    (second, rest) = others
    # The first message of all teaches the template, the second one asks for it.
    assert isinstance(rest, PublishedUnderKeys)
    assert len(rest.batch.bodies) >= 197
    assert isinstance(second, Published)


def test_runs_of_one_key_stay_batches() -> None:
    pair = opened()
    pair.server.accept_keyed()
    for number in range(40):
        pair.client.publish(1, batch_of([b"body"] * 30, Envelope(key=str(number))))
    events = pair.server.receive_data(b"".join(pair.client.data_to_send()), 1.0)
    assert sum(isinstance(event, PublishedUnderKeys) for event in events) <= 1
    assert len(events) <= 42


def test_who_has_not_said_so_gets_batches() -> None:
    pair = opened()
    events = pair.server.receive_data(feed(pair), 1.0)
    assert {type(event) for event in events} == {Published}


@given(
    some.lists(
        some.tuples(some.sampled_from([b"", b"a", b"bb", b"\xc3"]), some.sampled_from([0, 1, 70, 5000]))
    ),
    some.booleans(),
)
def test_deliveries_are_encoded_as_if_they_were_divided(
    shapes: list[tuple[bytes, int]], redelivered: bool
) -> None:
    if not shapes:
        return
    keys = [key for key, _ in shapes]
    bodies = [b"x" * size for _, size in shapes]
    pair = opened()
    by_key = {key: Envelope(key=key, exchange="e", persistent=True) for key in map(_text, keys)}
    batch = KeyedBatch(
        bodies,
        sum(map(len, bodies)),
        Envelope(exchange="e", persistent=True),
        keys=keys,
        envelope_of=by_key.__getitem__,
    )
    assert not pair.server.send_many_deliveries(1, [("tag", 7, redelivered, batch)])
    together = b"".join(map(bytes, pair.server.data_to_send()))
    tag = 7
    for part in batch.divided():
        pair.server.send_deliveries(1, "tag", tag, redelivered, part)
        tag += len(part.bodies)
    assert together == b"".join(map(bytes, pair.server.data_to_send()))
    events = pair.client.receive_data(together, 1.0)
    got = [body for event in events if isinstance(event, Delivered) for body in event.batch.bodies]
    assert got == bodies


def _text(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")


@pytest.mark.parametrize("chunk", [1, 97, 4096])
def test_an_end_of_the_channel_is_seen_between_them(chunk: int) -> None:
    pair = opened()
    pair.server.accept_keyed()
    data = feed(pair, 50)
    pair.client.close_channel(1, 200, "enough")
    data += b"".join(map(bytes, pair.client.data_to_send())) + data
    events = [
        event
        for start in range(0, len(data), chunk)
        for event in pair.server.receive_data(data[start : start + chunk], 1.0)
    ]
    assert len(published(events)) == 50
