"""Dealing: divides a batch between several pipes, so that each message goes to one of them.

A pipe whose reader is behind gets less: a message goes to the pipe with the lowest load (``Outlet.load``), in
turn among those with the same.  So what a slow reader has before it grows no longer than that of the others,
whatever the order of turns.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel.contracts.message import Batch, batch_of
from kernel.contracts.router import Outlet


def deal(batch: Batch, ready: Sequence[Outlet], turn: int) -> tuple[list[tuple[Outlet, Batch]], int]:
    """Give each message of a batch to one pipe, to those with the lowest load first.

    ``turn`` says which pipe begins, if several have the same load.  Returns the parts, and the next turn.
    """
    # The batch itself: nothing is copied, and its sizes need not be computed again.
    if len(ready) == 1:
        return [(ready[0], batch)], turn
    # Not the position among all pipes: they become full and are left out, so exact turns are kept only while
    # the same pipes are ready.
    first = turn % len(ready)
    # Rotated, so that the batch begins where the one before has stopped.
    ready = [*ready[first:], *ready[:first]]
    loads = [outlet.load() for outlet in ready]
    least = min(loads)
    count = len(batch.bodies)
    if count == 1:
        place = loads.index(least)
        return [(ready[place], batch)], first + place + 1
    if least == max(loads):
        return _evenly(batch, ready), first + count
    return _levelled(batch, ready, loads), first + count


def _evenly(batch: Batch, ready: Sequence[Outlet]) -> list[tuple[Outlet, Batch]]:
    """Give each pipe every n-th message: one slice for each pipe, not one step for each message."""
    return [
        (outlet, batch_of(part, batch.envelope, multipart=batch.multipart))
        for offset, outlet in enumerate(ready)
        if (part := batch.bodies[offset :: len(ready)])
    ]


def _levelled(batch: Batch, ready: Sequence[Outlet], loads: list[int]) -> list[tuple[Outlet, Batch]]:
    """Give the pipes as much as makes their loads equal, as far as the batch goes."""
    # Stable: pipes of one load stay in the order of turns.
    order = sorted(range(len(ready)), key=loads.__getitem__)
    count = len(batch.bodies)
    # How many pipes get something: as long as raising all of them to the load of the next is not too much.
    sharing, sum_of_loads = 1, loads[order[0]]
    while sharing < len(order) and loads[order[sharing]] * sharing - sum_of_loads < count:
        sum_of_loads += loads[order[sharing]]
        sharing += 1
    level, more = divmod(sum_of_loads + count, sharing)
    chosen = []
    at = 0
    for number, index in enumerate(order[:sharing]):
        # The remainder of the division: one more for the first ones.
        share = level + (number < more) - loads[index]
        if share > 0:
            chosen.append((ready[index], batch.slice(at, at + share)))
            at += share
    return chosen
