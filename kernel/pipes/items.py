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


def batches_of(items: list[Any]) -> tuple[list[Batch], list[Batch]]:
    """Make batches of the bare bodies, in order, and mixed ones of those that are under an envelope.

    Return all batches, and those of them that are items.
    """
    kinds = list(map(type, items))
    # ``map`` and ``count`` run in C: 12 ns an item. A set of the types would take 19.
    bare, under, count = kinds.count(bytes), kinds.count(Under), len(items)
    if not bare and not under:
        return items, items
    if bare == count:
        return [batch_of(items)], []
    if under == count:
        return [_mixed(items)], []
    batches: list[Batch] = []
    if bare + kinds.count(Batch) == count:
        return _with_few_batches(items, kinds, count - bare)
    written: list[Batch] = []
    for kind, group in groupby(items, key=_kind):
        several = list(group)
        if kind is Batch:
            written += several
        batches += [batch_of(several)] if kind is bytes else [_mixed(several)] if kind is Under else several
    return batches, written


def _with_few_batches(items: list[Any], kinds: list[type], count: int) -> tuple[list[Batch], list[Batch]]:
    """As ``batches_of``, where ``count`` items are batches and all others bare bodies.

    A writer that had to wait for room writes one batch, and bare bodies behind it.
    """
    batches: list[Batch] = []
    written: list[Batch] = []
    begin = 0
    for _ in range(count):
        # A look at each item would take as long as all the rest.
        at = kinds.index(Batch, begin)
        if begin < at:
            batches.append(batch_of(items[begin:at]))
        batches.append(items[at])
        written.append(items[at])
        begin = at + 1
    if begin < len(items):
        batches.append(batch_of(items[begin:]))
    return batches, written


def _kind(item: Any) -> type:
    kind = type(item)
    return kind if kind is bytes or kind is Under else Batch


def _mixed(items: list[Any]) -> Batch:
    return mixed_batch(list(map(_body_of, items)), list(map(_entry_of, items)))
