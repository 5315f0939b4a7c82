"""Line protocol: the smallest stream protocol, from which tests derive protocols of their own."""

from __future__ import annotations

from collections.abc import Sequence

from kernel.contracts.message import Batch, Buffer, batch_of


class LineProtocol:
    """Each line is a message, in both directions.

    There is no handshake, nothing is confirmed and nothing has a time limit.  A test overrides what it is about.
    """

    def __init__(self) -> None:
        self.subscriptions: list[tuple[str, str]] = []
        self._data = b""
        self._out: list[Buffer] = []
        self._closed = False

    def receive_data(self, data: Buffer, now: float) -> list[Batch]:
        lines = self.lines(data)
        return [batch_of(lines)] if lines else []

    def lines(self, data: Buffer) -> list[bytes]:
        """Return the lines that are complete now."""
        *lines, self._data = (self._data + bytes(data)).split(b"\n")
        return lines

    def receive_eof(self, now: float) -> None:
        self._closed = True

    def send_batches(self, batches: Sequence[Batch], now: float) -> None:
        self._out += [bytes(body) + b"\n" for batch in batches for body in batch.bodies]

    def data_to_send(self) -> list[Buffer]:
        out, self._out = self._out, []
        return out

    def ready_to_send(self) -> bool:
        return not self._closed

    def next_deadline(self) -> float | None:
        return None

    def handle_timeout(self, now: float) -> None: ...

    def confirm(self, count: int) -> None: ...

    def want_confirm(self) -> None: ...

    def confirmed(self) -> int | None:
        return None

    def close(self, reason: str, now: float) -> None:
        self._closed = True

    def closed(self) -> bool:
        return self._closed
