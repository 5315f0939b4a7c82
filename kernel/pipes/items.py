"""Items: what waits in a pipe, and how batches are made of it.

A pipe has three sorts of items, in the order of the messages:

* batches, mixed or not;
* bare bodies, each of which is a message under the empty envelope;
* :class:`Under`: a body and its key or envelope.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import Any

from kernel.contracts.message import Batch, batch_of
from kernel.contracts.mixed_batch import Under, mixed_batch

_entry_of = attrgetter("entry")
_body_of = attrgetter("body")


def messages_in(item: Any) -> int:
    """Return how many messages an item has."""
    return len(item.bodies) if isinstance(item, Batch) else 1


def batches_of(items: list[Any]) -> list[Batch]:
    """Make batches of the bare bodies, in order, and mixed ones of those that are under an envelope."""
    kinds = list(map(type, items))
    # ``map`` and ``count`` run in C: 12 ns an item. A set of the types would take 19.
    bare, under, count = kinds.count(bytes), kinds.count(Under), len(items)
    if not bare and not under:
        return items
    if bare == count:
        return [batch_of(items)]
    if under == count:
        return [_mixed(items)]
    batches: list[Batch] = []
    for kind, group in groupby(items, key=_kind):
        several = list(group)
        batches += [batch_of(several)] if kind is bytes else [_mixed(several)] if kind is Under else several
    return batches


def _kind(item: Any) -> type:
    kind = type(item)
    return kind if kind is bytes or kind is Under else Batch


def _mixed(items: list[Any]) -> Batch:
    return mixed_batch(list(map(_body_of, items)), list(map(_entry_of, items)))
