"""Own counters: what the protocols of an engine count themselves, summed over all conversations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kernel.hosting.stream_host import StreamHost


class OwnCounters:
    """Sums by name.  ``add`` is called by the engine's thread, ``sums`` by any."""

    def __init__(self) -> None:
        self._ended: Counter[str] = Counter()

    def add(self, ended: StreamHost) -> None:
        """Keep the counts of a conversation that has ended."""
        self._ended.update(ended.own_counters())

    def sums(self, living: Iterable[StreamHost]) -> dict[str, int]:
        """Return the sums over all conversations, ended and living."""
        # A copy: other threads ask while the engine adds.
        sums = self._ended.copy()
        for conversation in living:
            sums.update(conversation.own_counters())
        return dict(sums)
