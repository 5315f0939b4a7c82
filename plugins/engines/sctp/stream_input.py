"""The receiving half of a stream: from user messages to a port, with back-pressure.

While the port's pipes are full, batches wait here, and the peer is not given more window for this stream. The
window counts bytes of user messages since the conversation began: the peer may have sent up to ``_allowed``
of them altogether, as in HTTP/2's flow control, but with absolute numbers, so that a lost or repeated WINDOW
does no harm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kernel.contracts.engine import Port
from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Batch
from plugins.engines.sctp.framing import FRAGMENT, Framing, Kind
from plugins.engines.sctp.growing_window import GrowingWindow


class StreamInput:
    """The input of one stream. ``send_control(kind, number)`` sends a control message to the peer.

    A peer that was told a ``window`` has to keep to it. Without a window (``plain``) the whole association is
    not read while too much is pending.
    """

    def __init__(
        self,
        framing: Framing,
        send_control: Callable[[Kind, int], Any],
        *,
        max_message: int,
        window: GrowingWindow | None,
    ) -> None:
        self.messages = 0
        self.port: Port | None = None
        self.pending_bytes = 0
        """Bytes of user messages that the port has not taken."""
        self._framing = framing
        self._window = window
        self._max_message = max_message
        self._send_control = send_control
        self._pending: deque[tuple[list[Batch], int, bool]] = deque()
        self._port_has_room = True
        self._fragments: list[bytes] = []
        self._fragments_size = 0
        self.received = 0
        """Bytes in this conversation, including those that the peer abandoned."""
        self._allowed = 0 if window is None else window.size
        """How many of them the peer may send, as it was told."""
        self._counted = 0
        """Messages to be confirmed that the port has taken."""
        self._confirmed = 0
        """How many of those the peer knows to be confirmed."""
        self._batch_ends: deque[tuple[int, int, int]] = deque()
        """The end of each batch to be confirmed: the port's position, ``_counted``, messages in it."""

    def delivers_at_once(self, size: int) -> bool:
        """Whether a user message of ``size`` bytes may pass by: the port has all before it.

        And the peer need not be told of more window afterwards.
        """
        if self._pending or self._fragments or not self._port_has_room:
            return False
        window = self._window
        return window is None or self.received + size + window.size - self._allowed < window.size // 2

    def receive(self, kind: int, data: Sequence[bytes]) -> None:
        """Process consecutive user messages of one kind. Raises ``RemoteProtocolError``."""
        size = sum(map(len, data))
        self.received += size
        if kind == Kind.FRAGMENT:
            self._fragments += data
            self._fragments_size += size
            # The window moves on for a fragment at once: it is stored as part of a message, which has a limit
            # of its own. Otherwise a message larger than the window could never be completed.
            self._give_window()
            if self._fragments_size > self._max_message + FRAGMENT:
                raise RemoteProtocolError(f"a message of more than {self._max_message} bytes")
            return
        # The unit that ends a fragmented one comes under its own kind: it is joined in front of the group.
        if self._fragments:
            data = [b"".join((*self._fragments, data[0])), *data[1:]]
            self._fragments, self._fragments_size = [], 0
        counted = kind == Kind.COUNTED
        batches = self._framing.decode(data)
        # Behind what is pending, even if the port has room again: the order of the stream must be kept.
        if self._port_has_room and not self._pending:
            self._deliver(batches, size, counted=counted)
        else:
            self._pending.append((batches, size, counted))
            self.pending_bytes += size
            if self._window is not None and self.pending_bytes > 2 * self._window.size + FRAGMENT:
                raise RemoteProtocolError("the peer has sent more on a stream than its window allows")

    def on_sent(self, count: int) -> None:
        """Process SENT: the peer has sent so many bytes altogether.

        What has not arrived by now was abandoned, and counts as received.
        """
        # SENT goes in order on the stream, behind everything that was not abandoned, so that nothing counted
        # here can still arrive in order. Unordered units may; they are then counted twice, in the peer's
        # favour.
        self.received = max(self.received, count)
        self._give_window()

    def resume(self) -> None:
        """Deliver what is pending: the port has room again."""
        self._port_has_room = True
        while self._pending and self._port_has_room:
            batches, size, counted = self._pending.popleft()
            self.pending_bytes -= size
            self._deliver(batches, size, counted=counted)

    def end(self) -> None:
        """Deliver what is pending, whether there is room or not: nothing more will arrive.

        Messages to be confirmed are dropped here: the peer was not confirmed to, and sends them again.
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
        # False: the port has taken these batches too, but no more should follow.
        self._port_has_room = port.send(batches)
        self._give_window()
        if counted:
            self._counted += count
            if port.confirms:
                # The port counts all messages, the peer only those to be confirmed: each batch is a point at
                # which both are known.
                self._batch_ends.append((port.sent(), self._counted, count))
            # No destination confirms: the responsibility ends here.
            else:
                self._confirm(self._counted)

    def _give_window(self) -> None:
        window = self._window
        if window is None:
            return
        allowed = self.received - self.pending_bytes + window.size
        # Half a window at a time: one WINDOW for many messages.
        if allowed - self._allowed >= window.size // 2:
            size = window.size
            window.half_passed()
            self._allowed = allowed = allowed + window.size - size
            self._send_control(Kind.WINDOW, allowed)

    def on_confirmed(self, position: int) -> None:
        """Confirm to the peer what all destinations have: the port's messages up to ``position``."""
        batch_ends = self._batch_ends
        confirmed = self._confirmed
        while batch_ends and batch_ends[0][0] <= position:
            confirmed = batch_ends.popleft()[1]
        # A part of a batch.
        if batch_ends and position > batch_ends[0][0] - batch_ends[0][2]:
            confirmed = batch_ends[0][1] - (batch_ends[0][0] - position)
        self._confirm(confirmed)

    def _confirm(self, count: int) -> None:
        if count > self._confirmed:
            self._confirmed = count
            self._send_control(Kind.CONFIRM, count)
