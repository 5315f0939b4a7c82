"""The common part of dissectors for protocols that consist of frames in a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from kernel.contracts.dissecting.frame_reader import Find, Frame, FrameReader
from kernel.contracts.dissector import CLIENT, SERVER, Line
from kernel.contracts.errors import RemoteProtocolError


class FramedDissector(ABC):
    """A stream dissector that gets whole frames. After missing bytes it resynchronizes."""

    def __init__(self, find: Find | None = None) -> None:
        self.readers: tuple[FrameReader, ...] = tuple(
            FrameReader(partial(self.measure, sender), find) for sender in (CLIENT, SERVER)
        )
        self._skipped = [0, 0]
        self.malformed: int = 0
        """Number of malformed frames."""

    @abstractmethod
    def measure(self, sender: int, data: bytes, at: int) -> int:
        """Return the size in bytes of the frame at ``at``, or 0 if more bytes are needed.

        Raises ``RemoteProtocolError``.
        """

    @abstractmethod
    def frame(self, sender: int, frame: Frame, time: float) -> Sequence[Line]:
        """Process a frame; return its lines. Raises ``RemoteProtocolError`` if it is malformed."""

    def end_of_segment(self, sender: int) -> Sequence[Line]:
        """Return lines that were delayed to be reported together."""
        return ()

    def lost(self, sender: int) -> Sequence[Line]:
        """Return the lines of what stays unfinished: the sender's frames do not continue where they were."""
        return ()

    def receive(self, sender: int, data: bytes, time: float) -> list[Line]:
        """Process the sender's next bytes; return the lines that they complete."""
        reader = self.readers[sender]
        out_of_step = not reader.in_step
        lines: list[Line] = []
        try:
            for frame in reader.receive(data):
                # The first frame after a gap proves that the search was successful.
                if out_of_step:
                    out_of_step = False
                    lines.append(Line("in step again", {"skipped": reader.skipped - self._skipped[sender]}))
                    self._skipped[sender] = reader.skipped
                try:
                    lines += self.frame(sender, frame, time)
                # The content of one frame is wrong.  Its size was right, so the next frame is found.
                except RemoteProtocolError as error:
                    lines.append(self._malformed(error))
        # The size is wrong: the reader is out of step, and what the sender had begun cannot be finished.
        except RemoteProtocolError as error:
            lines.append(self._malformed(error))
            lines += self.lost(sender)
        lines += self.end_of_segment(sender)
        return lines

    def lose(self, sender: int, count: int | None, time: float) -> list[Line]:
        """Skip bytes that were not captured; None: nobody knows how many."""
        reader = self.readers[sender]
        reader.lose(count)
        # Nobody knows how much it was: the capture began in the middle of the connection.
        if count is None:
            return list(self.lost(sender))
        lines = [Line("bytes missing", {"bytes": count, "in_step": reader.in_step})]
        return lines if reader.in_step else [*lines, *self.lost(sender)]

    def own_figures(self) -> Mapping[str, Any]:
        """Return the counters of this class."""
        return {"malformed": self.malformed, "skipped_bytes": sum(reader.skipped for reader in self.readers)}

    def _malformed(self, error: RemoteProtocolError) -> Line:
        self.malformed += 1
        return Line("malformed", {"why": str(error)})
