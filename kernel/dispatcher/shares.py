"""Shares: ports that are one destination together, such as the streams of one association.

What comes for them is divided by where it comes from: a route from one source port leads to one of them, so that a
share that is full stops those sources alone that lead to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernel.contracts.engine import Share
from kernel.dispatcher.port import Port


def share_of(port: Port) -> Share | None:
    """Return which share of a destination this port is; None when it is a destination by itself."""
    share: Share | None = port.options.get("share")
    return share


def takes(share: Share, number: int) -> bool:
    """Whether the ``number``-th of the sources that there are is for this share, when shares join one after the other.

    The last one takes those, too, that came or changed places in the meantime.
    """
    return number % share.of == share.index or share.index == share.of - 1


def one_of_each(ports: Sequence[Port], load: Callable[[Port], int]) -> list[Port]:
    """Return the ports that a new source is for: of those that share, the one that has least to carry."""
    alone = [port for port in ports if share_of(port) is None]
    best: dict[str, Port] = {}
    for port in ports:
        share = share_of(port)
        if share is not None and (share.whole not in best or load(port) < load(best[share.whole])):
            best[share.whole] = port
    return [*alone, *best.values()]
