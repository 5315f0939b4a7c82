"""What a connection still has to write, and how many bytes that is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from kernel.contracts.message import Buffer
from kernel.hosting.wire import Wire


class Unwritten:
    """Buffers in their order; true while there are any."""

    __slots__ = ("_buffers", "size")

    def __init__(self) -> None:
        self.size = 0
        """Bytes."""
        self._buffers: deque[Buffer] = deque()

    def __bool__(self) -> bool:
        return bool(self._buffers)

    def write(self, more: Iterable[Buffer], wire: Wire) -> int:
        """Write as much as goes, ``more`` behind what was there; return how many bytes went.  Raises ``OSError``."""
        buffers, size = self._buffers, self.size
        for buffer in more:
            buffers.append(buffer)
            size += len(buffer)
        if not buffers:
            return 0
        self.size = size
        self.size = 0 if wire.send(buffers) else sum(map(len, buffers))
        return size - self.size

    def clear(self) -> None:
        """Forget it: the connection is gone."""
        self._buffers.clear()
        self.size = 0
