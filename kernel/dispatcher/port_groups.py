"""Port groups: several ports that are one destination together, such as the streams of one SCTP association.

A route from one source port leads to one port of the group only.  So a member that is full stops only the
sources that lead to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernel.contracts.engine import PortGroup
from kernel.dispatcher.port import Port


def group_of(port: Port) -> PortGroup | None:
    """Return the port group that this port is a member of; None when it is a destination by itself."""
    port_group: PortGroup | None = port.options.get("port_group")
    return port_group


def takes(port_group: PortGroup, number: int) -> bool:
    """Whether a member that joins takes the present source with this number (from 0).

    Members join one after the other, and sources may come and go in between, so that their numbers change.
    The last member therefore takes all sources; the caller leaves out those that lead to a member already.
    """
    return number % port_group.of == port_group.index or port_group.index == port_group.of - 1


def one_of_each(ports: Sequence[Port], load: Callable[[Port], int]) -> list[Port]:
    """Return the ports that a new source leads to.

    Of each port group that is only the member with the lowest ``load``.
    """
    alone = [port for port in ports if group_of(port) is None]
    # By the name of the destination: a port group of another destination is counted by itself.
    best: dict[str, Port] = {}
    for port in ports:
        port_group = group_of(port)
        if port_group is not None and (
            port_group.whole not in best or load(port) < load(best[port_group.whole])
        ):
            best[port_group.whole] = port
    return [*alone, *best.values()]
