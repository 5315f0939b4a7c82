"""A conversation in lines.  Sans-I/O: no socket, no clock, nothing but bytes in and bytes out.

Lines end with a newline; a carriage return before it is not part of the message.  Both sides are the same.
There is no handshake, no envelope and no confirmation: a message that was written to the wire counts as
delivered.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel.contracts.errors import LocalProtocolError, RemoteProtocolError
from kernel.contracts.message import Batch, Buffer, batch_of
from kernel_lines.options import LinesOptions


class LinesConnection:
    """``kernel.contracts.protocol.StreamProtocol`` for lines."""

    def __init__(self, options: LinesOptions) -> None:
        self._max_line = options.max_line
        self._begun: list[bytes] = []  # pieces of a line whose end has not come yet
        self._begun_size = 0
        self._out: list[Buffer] = []
        self._closed = False
        self.subscriptions: list[tuple[str, str]] = []

    # ------------------------------------------------------------------ receiving

    def receive_data(self, data: Buffer, now: float) -> list[Batch]:
        """Take bytes; return the lines that are complete, as one batch."""
        whole, newline, rest = bytes(data).rpartition(b"\n")
        lines: list[bytes] = []
        if newline:
            lines = [line.removesuffix(b"\r") for line in b"".join((*self._begun, whole)).split(b"\n")]
            self._begun.clear()
            self._begun_size = 0
            self._refuse_long(lines)
        if rest:
            self._begun.append(rest)
            self._begun_size += len(rest)
            if self._begun_size > self._max_line:
                raise RemoteProtocolError(f"a line of more than {self._max_line} bytes", _batches(lines))
        return _batches(lines)

    def _refuse_long(self, lines: list[bytes]) -> None:
        """Raise for a line that is too long, with those that came before it."""
        if max(map(len, lines)) > self._max_line:
            at = next(at for at, line in enumerate(lines) if len(line) > self._max_line)
            raise RemoteProtocolError(
                f"a line of {len(lines[at])} bytes; max_line is {self._max_line}", _batches(lines[:at])
            )

    def receive_eof(self, now: float) -> None:
        """The peer has hung up."""
        self._closed = True
        if self._begun:
            raise RemoteProtocolError("the peer hung up in the middle of a line")

    # ------------------------------------------------------------------ sending

    def send_batches(self, batches: Sequence[Batch], now: float) -> None:
        """Queue batches: one buffer a batch.  A body that holds newlines arrives as several messages."""
        if self._closed:
            raise LocalProtocolError("the conversation is over")
        for batch in batches:
            bodies = [b"".join(parts) for parts in batch.bodies] if batch.multipart else batch.bodies
            if bodies:
                self._out.append(b"\n".join(bodies) + b"\n")

    def data_to_send(self) -> list[Buffer]:
        """Return and forget what is to be written."""
        out, self._out = self._out, []
        return out

    def ready_to_send(self) -> bool:
        """From the beginning: there is no handshake."""
        return not self._closed

    # ------------------------------------------------------------------ what lines do not have

    def next_deadline(self) -> float | None:
        """Nothing is ever due."""
        return None

    def handle_timeout(self, now: float) -> None:
        """Called once at the beginning."""

    def confirm(self, count: int) -> None:
        """The peer could not be told."""

    def want_confirm(self) -> None:
        """The peer could not be asked."""

    def confirmed(self) -> int | None:
        """What was written counts as confirmed."""
        return None

    def close(self, reason: str, now: float) -> None:
        """There is no way to announce the close."""
        self._closed = True

    def closed(self) -> bool:
        """Whether the conversation is over."""
        return self._closed


def _batches(lines: list[bytes]) -> list[Batch]:
    return [batch_of(lines)] if lines else []
