"""What runs say of the size of their bodies: encoders go by it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kernel.contracts.message import Envelope, batch_of
from plugins.protocols.amqp091.events import Delivered, Event, Published
from tests.plugins.protocols.amqp091.conftest import opened

SIZES = some.lists(
    some.tuples(some.sampled_from([0, 1, 5, 5, 100]), some.integers(1, 40), some.sampled_from("ab")),
    min_size=1,
    max_size=8,
)
CUTS = some.lists(some.integers(0, 20_000), max_size=5)


def check(events: list[Event], count: int) -> list[int]:
    batches = [event.batch for event in events if isinstance(event, Published | Delivered)]
    assert sum(map(len, batches)) == count
    for batch in batches:
        sizes = set(map(len, batch.bodies))
        assert batch.width == (sizes.pop() if len(sizes) == 1 else 0)
        assert batch.size == sum(map(len, batch.bodies))
    return [batch.width for batch in batches]


@given(shapes=SIZES, cuts=CUTS, to_server=some.booleans())
def test_a_width_is_that_of_every_body_and_told_whenever_there_is_one(
    shapes: list[tuple[int, int, str]], cuts: list[int], to_server: bool
) -> None:
    pair = opened()
    sender, receiver = (pair.client, pair.server) if to_server else (pair.server, pair.client)
    tag = 1
    for size, count, key in shapes:
        batch = batch_of([b"x" * size] * count, Envelope(key=key))
        if to_server:
            pair.client.publish(1, batch)
        else:
            pair.server.send_deliveries(1, "c", tag, False, batch)
        tag += count
    data = b"".join(sender.data_to_send())
    borders = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    events = [event for a, b in pairwise(borders) for event in receiver.receive_data(data[a:b], 1.0)]
    check(events, tag - 1)


@pytest.mark.parametrize("chunk", [1, 100, 4096, 1 << 20])
def test_a_steady_flow_has_a_width_wherever_it_is_cut(chunk: int) -> None:
    pair = opened()
    pair.client.publish(1, batch_of([b"x" * 100] * 500, Envelope(key="k")))
    data = b"".join(pair.client.data_to_send())
    events: list[Event] = []
    for start in range(0, len(data), chunk):
        events += pair.server.receive_data(data[start : start + chunk], 1.0)
    assert set(check(events, 500)) == {100}
