"""The receiving half of a lane: from the user messages of a stream to a port, and back-pressure on the way.

While the port's pipes are full, runs are kept here, and the peer is not told that it may send more on this stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kernel.contracts.engine import Port
from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Batch
from plugins.engines.sctp.framing import PIECE, Framing, Kind


class LaneInput:
    """What comes on one stream.  ``tell(kind, number)`` sends a word to the peer.

    A peer that is told of its ``window`` has to keep to it; without one, the association is not read while too much is held.
    """

    def __init__(
        self,
        framing: Framing,
        tell: Callable[[Kind, int], Any],
        *,
        max_message: int,
        window: int | None,
    ) -> None:
        self.messages = 0
        self.port: Port | None = None
        self.held_bytes = 0
        """Of user messages that the port has not taken."""
        self._framing = framing
        self._window = window
        self._max_message = max_message
        self._tell = tell
        self._held: deque[tuple[list[Batch], int, bool]] = deque()
        self._going = True
        self._pieces: list[bytes] = []
        self._pieces_size = 0
        self._received = 0  # bytes, in this conversation, those included that were given up on the way
        self._allowed = window or 0  # what the peer was told of them
        self._counted = 0  # messages to be confirmed that the port has taken
        self._told = 0  # of those, what the peer knows to be confirmed
        self._places: deque[tuple[int, int, int]] = (
            deque()
        )  # (port's count, ours, how many) at the end of a batch

    def receive(self, kind: int, data: Sequence[bytes]) -> None:
        """Take consecutive user messages of one kind.  Raises ``RemoteProtocolError``."""
        size = sum(map(len, data))
        self._received += size
        if kind == Kind.PIECE:
            self._pieces += data
            self._pieces_size += size
            self._give_window()  # it is held as part of a message, which has a limit of its own
            if self._pieces_size > self._max_message + PIECE:
                raise RemoteProtocolError(f"a message of more than {self._max_message} bytes")
            return
        if self._pieces:
            data = [b"".join((*self._pieces, data[0])), *data[1:]]
            self._pieces, self._pieces_size = [], 0
        counted = kind == Kind.COUNTED
        batches = self._framing.decode(data)
        if self._going and not self._held:
            self._deliver(batches, size, counted=counted)
        else:
            self._held.append((batches, size, counted))
            self.held_bytes += size
            if self._window is not None and self.held_bytes > 2 * self._window + PIECE:
                raise RemoteProtocolError("more on a stream than its window allows")

    def on_sent(self, count: int) -> None:
        """The peer has sent so many bytes altogether: what has not come by now was given up."""
        self._received = max(self._received, count)
        self._give_window()

    def go_on(self) -> None:
        """The port has room."""
        self._going = True
        while self._held and self._going:
            batches, size, counted = self._held.popleft()
            self.held_bytes -= size
            self._deliver(batches, size, counted=counted)

    def end(self) -> None:
        """Nothing more comes: pass on what is held, whether there is room or not.

        What is to be confirmed cannot be any more; the peer keeps it, and sends it again.
        """
        held, self._held = self._held, deque()
        self.held_bytes = 0
        for batches, _, counted in held:
            if self.port is not None and not counted:
                self.messages += sum(len(batch.bodies) for batch in batches)
                self.port.send(batches)

    def _deliver(self, batches: list[Batch], size: int, *, counted: bool) -> None:
        port = self.port
        assert port is not None
        count = sum(len(batch.bodies) for batch in batches)
        self.messages += count
        self._going = port.send(batches)
        self._give_window()
        if counted:
            self._counted += count
            if port.confirms:
                self._places.append((port.sent(), self._counted, count))
            else:  # nobody further on does: it is out of our hands
                self._confirm(self._counted)

    def _give_window(self) -> None:
        if self._window is None:
            return
        allowed = self._received - self.held_bytes + self._window
        if allowed - self._allowed >= self._window // 2:
            self._allowed = allowed
            self._tell(Kind.WINDOW, allowed)

    def on_confirmed(self, count: int) -> None:
        """Every destination has the first ``count`` messages that the port sent while somebody confirms."""
        places = self._places
        confirmed = self._told
        while places and places[0][0] <= count:
            confirmed = places.popleft()[1]
        if places and count > places[0][0] - places[0][2]:  # a part of a batch
            confirmed = places[0][1] - (places[0][0] - count)
        self._confirm(confirmed)

    def _confirm(self, count: int) -> None:
        if count > self._told:
            self._told = count
            self._tell(Kind.CONFIRM, count)
