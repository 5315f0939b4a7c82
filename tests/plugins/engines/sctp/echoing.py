"""What a peer that returns each message on its stream is asked, and what has to come back."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kernel.topology.system import Kernel
from tests.plans import route
from tests.plugins.engines.sctp.plans import TIMEOUT, bodies_of

FEEDS = 4
ROUTES = (
    route("net", "app", confirm=True),
    *(route(f"feed{number}", "net", confirm=True) for number in range(FEEDS)),
)


class Echoing:
    """A kernel with these routes: several sources, each a stream, and one destination."""

    def __init__(self, kernel: Kernel) -> None:
        self._sources = [kernel.open(f"feed{number}") for number in range(FEEDS)]
        self.sink = kernel.open("app")

    def exchange(self, sizes: Sequence[int]) -> None:
        """Send messages of these sizes from each source; they come back whole, and in order on each stream."""
        expected: dict[bytes, list[bytes]] = {}
        for number, source in enumerate(self._sources):
            name, chance = b"%d" % number, random.Random(number)
            expected[name] = [name + chance.randbytes(size - 1) for size in sizes]
            source.send_many(expected[name], timeout=TIMEOUT)
        got: dict[bytes, list[bytes]] = {name: [] for name in expected}
        for body in bodies_of(self.sink, FEEDS * len(sizes)):
            got[body[:1]].append(body)
        assert got == expected, "what came back is not what was sent"
        for source in self._sources:
            source.wait_confirmed(TIMEOUT)
