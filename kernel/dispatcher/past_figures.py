"""Past figures: the counters of pipes and ports that are gone.

With them, the sums in statistics never fall.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kernel.pipes.pipe import Pipe

if TYPE_CHECKING:
    from kernel.dispatcher.port import Port


class PastFigures:
    """Sums by the name of the route, and by that of the engine.  Used under the dispatcher's lock."""

    def __init__(self) -> None:
        self._routes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._groups: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add_pipe(self, route: str, pipe: Pipe) -> None:
        """Add the counters of a pipe that is removed.

        Its writer may still write to it until it hears of that.  Those messages are not counted here: they
        are handed over to another pipe, which counts them, or they are abandoned.
        """
        _add(self._routes[route], figures_of_pipe(pipe))

    def add_port(self, port: Port) -> None:
        """Add the counters of a port that leaves.  Called by the port's thread."""
        _add(self._groups[port.group], figures_of_port(port))
        for route in port.routes:
            self._routes[route.spec.name]["unrouted"] += route.unrouted

    def of_route(self, name: str) -> Counter[str]:
        """Return the sums of all removed pipes of a route."""
        # A copy: the caller adds the figures of the pipes that are still there.
        return Counter(self._routes.get(name, ()))

    def of_group(self, name: str) -> Counter[str]:
        """Return the sums of all ports of an engine that have left."""
        return Counter(self._groups.get(name, ()))


def _add(sums: Counter[str], figures: Mapping[str, int]) -> None:
    # ``Counter.update`` takes five times as long, and each connection that ends comes here.
    for name, value in figures.items():
        sums[name] += value


def figures_of_pipe(pipe: Pipe) -> dict[str, int]:
    """Return the counters of a pipe by name."""
    return {
        # Not ``pipe.written``, which also counts credit that an application has not used.
        "written": pipe.taken + pipe.waiting(),
        "bytes": pipe.bytes_taken,
        "dropped": pipe.dropped,
        "refused": pipe.refused,
    }


def figures_of_port(port: Port) -> dict[str, int]:
    """Return the counters of a port by name."""
    return {"unrouted": port.unrouted, "abandoned": port.abandoned}
