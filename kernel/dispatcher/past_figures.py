"""Past figures: what pipes and ports had counted by the time they went, so that no counter ever goes back."""

from __future__ import annotations

from collections import Counter, defaultdict
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
        """A pipe goes.  What its writer does until it hears of that is handed over to another, or abandoned."""
        self._routes[route].update(figures_of_pipe(pipe))

    def add_port(self, port: Port) -> None:
        """A port goes; called by its thread."""
        self._groups[port.group].update(figures_of_port(port))
        for route in port.routes:
            self._routes[route.spec.name]["unrouted"] += route.unrouted

    def of_route(self, name: str) -> Counter[str]:
        """Return the sums of a route so far."""
        return Counter(self._routes.get(name, ()))

    def of_group(self, name: str) -> Counter[str]:
        """Return the sums of an engine so far."""
        return Counter(self._groups.get(name, ()))


def figures_of_pipe(pipe: Pipe) -> dict[str, int]:
    """Return what a pipe has counted."""
    return {
        "written": pipe.taken + pipe.waiting(),
        "bytes": pipe.bytes_taken,
        "dropped": pipe.dropped,
        "refused": pipe.refused,
    }


def figures_of_port(port: Port) -> dict[str, int]:
    """Return what a port has counted."""
    return {"unrouted": port.unrouted, "abandoned": port.abandoned}
