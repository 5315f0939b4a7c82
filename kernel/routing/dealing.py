"""Dealing: divides a batch between several pipes, so that each message goes to one of them."""

from __future__ import annotations

from collections.abc import Sequence

from kernel.contracts.message import Batch, batch_of
from kernel.contracts.router import Outlet


def deal(batch: Batch, ready: Sequence[Outlet], first: int) -> list[tuple[Outlet, Batch]]:
    """Give each message of a batch to one pipe, in turn, beginning with the pipe ``first``.

    With n pipes, a pipe gets every n-th message.  That is one slice for each pipe, not one step for each
    message.
    """
    # The batch itself: nothing is copied, and its sizes need not be computed again.
    if len(ready) == 1 or len(batch.bodies) == 1:
        return [(ready[first], batch)]
    # Rotated, so that the batch begins where the one before has stopped.
    ready = [*ready[first:], *ready[:first]]
    return [
        (outlet, batch_of(part, batch.envelope, multipart=batch.multipart))
        for offset, outlet in enumerate(ready)
        if (part := batch.bodies[offset :: len(ready)])
    ]
