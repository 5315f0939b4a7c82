"""Shares: ports that are one destination together, such as the streams of one association.

What comes for them is divided by where it comes from: a route from one source port leads to one of them, so that a
share that is full stops those sources alone that lead to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernel.contracts.engine import PortGroup
from kernel.dispatcher.port import Port


def group_of(port: Port) -> PortGroup | None:
    """Return which share of a destination this port is; None when it is a destination by itself."""
    port_group: PortGroup | None = port.options.get("port_group")
    return port_group


def takes(port_group: PortGroup, number: int) -> bool:
    """Whether the ``number``-th of the sources that there are is for this share, when shares join one after the other.

    The last one takes those, too, that came or changed places in the meantime.
    """
    return number % port_group.of == port_group.index or port_group.index == port_group.of - 1


def one_of_each(ports: Sequence[Port], load: Callable[[Port], int]) -> list[Port]:
    """Return the ports that a new source is for: of those that share, the one that has least to carry."""
    alone = [port for port in ports if group_of(port) is None]
    best: dict[str, Port] = {}
    for port in ports:
        port_group = group_of(port)
        if port_group is not None and (
            port_group.whole not in best or load(port) < load(best[port_group.whole])
        ):
            best[port_group.whole] = port
    return [*alone, *best.values()]
