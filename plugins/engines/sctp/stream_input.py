"""The receiving half of a stream: from the user messages of a stream to a port, and back-pressure on the way.

While the port's pipes are full, batches are kept here, and the peer is not told that it may send more on this stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kernel.contracts.engine import Port
from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Batch
from plugins.engines.sctp.framing import FRAGMENT, Framing, Kind


class StreamInput:
    """What comes on one stream.  ``send_control(kind, number)`` sends a word to the peer.

    A peer that is told of its ``window`` has to keep to it; without one, the association is not read while too much is pending.
    """

    def __init__(
        self,
        framing: Framing,
        send_control: Callable[[Kind, int], Any],
        *,
        max_message: int,
        window: int | None,
    ) -> None:
        self.messages = 0
        self.port: Port | None = None
        self.pending_bytes = 0
        """Of user messages that the port has not taken."""
        self._framing = framing
        self._window = window
        self._max_message = max_message
        self._send_control = send_control
        self._pending: deque[tuple[list[Batch], int, bool]] = deque()
        self._port_has_room = True
        self._fragments: list[bytes] = []
        self._fragments_size = 0
        self._received = 0  # bytes, in this conversation, those included that were given up on the way
        self._allowed = window or 0  # what the peer was told of them
        self._counted = 0  # messages to be confirmed that the port has taken
        self._confirmed = 0  # of those, what the peer knows to be confirmed
        self._batch_ends: deque[tuple[int, int, int]] = (
            deque()
        )  # (port's count, ours, how many) at the end of a batch

    def receive(self, kind: int, data: Sequence[bytes]) -> None:
        """Take consecutive user messages of one kind.  Raises ``RemoteProtocolError``."""
        size = sum(map(len, data))
        self._received += size
        if kind == Kind.FRAGMENT:
            self._fragments += data
            self._fragments_size += size
            self._give_window()  # it is pending as part of a message, which has a limit of its own
            if self._fragments_size > self._max_message + FRAGMENT:
                raise RemoteProtocolError(f"a message of more than {self._max_message} bytes")
            return
        if self._fragments:
            data = [b"".join((*self._fragments, data[0])), *data[1:]]
            self._fragments, self._fragments_size = [], 0
        counted = kind == Kind.COUNTED
        batches = self._framing.decode(data)
        if self._port_has_room and not self._pending:
            self._deliver(batches, size, counted=counted)
        else:
            self._pending.append((batches, size, counted))
            self.pending_bytes += size
            if self._window is not None and self.pending_bytes > 2 * self._window + FRAGMENT:
                raise RemoteProtocolError("more on a stream than its window allows")

    def on_sent(self, count: int) -> None:
        """The peer has sent so many bytes altogether: what has not come by now was given up."""
        self._received = max(self._received, count)
        self._give_window()

    def resume(self) -> None:
        """The port has room."""
        self._port_has_room = True
        while self._pending and self._port_has_room:
            batches, size, counted = self._pending.popleft()
            self.pending_bytes -= size
            self._deliver(batches, size, counted=counted)

    def end(self) -> None:
        """Nothing more comes: pass on what is pending, whether there is room or not.

        What is to be confirmed cannot be any more; the peer keeps it, and sends it again.
        """
        pending, self._pending = self._pending, deque()
        self.pending_bytes = 0
        for batches, _, counted in pending:
            if self.port is not None and not counted:
                self.messages += sum(len(batch.bodies) for batch in batches)
                self.port.send(batches)

    def _deliver(self, batches: list[Batch], size: int, *, counted: bool) -> None:
        port = self.port
        assert port is not None
        count = sum(len(batch.bodies) for batch in batches)
        self.messages += count
        self._port_has_room = port.send(batches)
        self._give_window()
        if counted:
            self._counted += count
            if port.confirms:
                self._batch_ends.append((port.sent(), self._counted, count))
            else:  # nobody further on does: it is out of our hands
                self._confirm(self._counted)

    def _give_window(self) -> None:
        if self._window is None:
            return
        allowed = self._received - self.pending_bytes + self._window
        if allowed - self._allowed >= self._window // 2:
            self._allowed = allowed
            self._send_control(Kind.WINDOW, allowed)

    def on_confirmed(self, position: int) -> None:
        """Every destination has what the port sent up to ``position``."""
        batch_ends = self._batch_ends
        confirmed = self._confirmed
        while batch_ends and batch_ends[0][0] <= position:
            confirmed = batch_ends.popleft()[1]
        if batch_ends and position > batch_ends[0][0] - batch_ends[0][2]:  # a part of a batch
            confirmed = batch_ends[0][1] - (batch_ends[0][0] - position)
        self._confirm(confirmed)

    def _confirm(self, count: int) -> None:
        if count > self._confirmed:
            self._confirmed = count
            self._send_control(Kind.CONFIRM, count)
