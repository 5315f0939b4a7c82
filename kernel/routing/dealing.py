"""Dealing: one batch to several pipes, each message to one of them."""

from __future__ import annotations

from collections.abc import Sequence

from kernel.contracts.message import Batch, batch_of
from kernel.contracts.router import Outlet


def deal(batch: Batch, ready: Sequence[Outlet], first: int) -> list[tuple[Outlet, Batch]]:
    """Deal a batch out in strides, beginning with the pipe ``first``: one slice a pipe, not one step a message."""
    if len(ready) == 1 or len(batch.bodies) == 1:
        return [(ready[first], batch)]
    ready = [*ready[first:], *ready[:first]]
    return [
        (outlet, batch_of(part, batch.envelope, multipart=batch.multipart))
        for place, outlet in enumerate(ready)
        if (part := batch.bodies[place :: len(ready)])
    ]
