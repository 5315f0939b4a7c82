"""Items: whatever was written, the batches made of it have the messages in their order."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.message import Batch, batch_of
from kernel.contracts.mixed_batch import EnvelopesByKey, Under, all_divided
from kernel.pipes.items import batches_of

Written = tuple[str, bytes]
_WRITTEN = st.lists(
    st.tuples(st.sampled_from(["bare", "bare", "bare", "batch", "under"]), st.binary(max_size=3)), max_size=60
)


def _item(sort: str, body: bytes) -> Any:
    if sort == "bare":
        return body
    return batch_of([body, body]) if sort == "batch" else Under("key", body)


@given(_WRITTEN)
def test_no_message_is_lost_or_overtaken(written: list[Written]) -> None:
    items = [_item(*each) for each in written]
    batches, were_items = batches_of(list(items))
    expected = [
        ("key" if sort == "under" else "", body)
        for sort, body in written
        for _ in range(2 if sort == "batch" else 1)
    ]
    divided = all_divided(batches, EnvelopesByKey())
    assert [(batch.envelope.key, body) for batch in divided for body in batch.bodies] == expected
    assert [id(batch) for batch in were_items] == [id(item) for item in items if isinstance(item, Batch)]


def test_bare_bodies_behind_a_batch_are_one_batch() -> None:
    waited = batch_of([b"first"])
    batches, were_items = batches_of([waited, *[b"x"] * 1000])
    assert [len(batch.bodies) for batch in batches] == [1, 1000]
    assert were_items == [waited]
    batches, were_items = batches_of([b"x", b"x", waited, waited, b"x"])
    assert [len(batch.bodies) for batch in batches] == [2, 1, 1, 1]
    assert were_items == [waited, waited]
