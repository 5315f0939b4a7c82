"""Spans: a part of a batch under another envelope."""

from __future__ import annotations

import pytest

from kernel.contracts.message import Envelope, batch_of
from plugins.engines.broker.span import Span


@pytest.mark.parametrize("sizes", [(3, 3, 3, 3), (3, 3, 1, 3)])
@pytest.mark.parametrize("start, stop", [(0, 4), (0, 3), (1, 2), (2, 4)])
def test_messages_under_another_envelope_are_the_same_messages(
    sizes: tuple[int, ...], start: int, stop: int
) -> None:
    batch = batch_of([bytes([number]) * size for number, size in enumerate(sizes)], Envelope(key="before"))
    batch.group = "group"
    envelope = Envelope(key="after")
    moved = Span(10, batch, start, stop).under(envelope)
    assert moved.envelope is envelope
    assert list(moved.bodies) == list(batch.bodies)[start:stop]
    assert moved.size == sum(sizes[start:stop])
    assert moved.width in (0, sizes[start])
    assert moved.group == "group"
    assert batch.envelope.key == "before"
