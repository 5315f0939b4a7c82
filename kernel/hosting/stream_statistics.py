"""The counters of a stream connection."""

from __future__ import annotations


class StreamStatistics:
    """Counters of one connection, or the sum of those of an engine."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "messages_in",
        "messages_out",
        "messages_refused",
        "protocol_errors",
    )

    bytes_in: int
    bytes_out: int
    messages_in: int
    messages_out: int
    messages_refused: int
    protocol_errors: int

    def __init__(self) -> None:
        self.messages_in = self.messages_out = self.messages_refused = 0
        self.bytes_in = self.bytes_out = self.protocol_errors = 0

    def as_dict(self) -> dict[str, int]:
        """Return the counters by their standard names."""
        return {name: getattr(self, name) for name in self.__slots__}
