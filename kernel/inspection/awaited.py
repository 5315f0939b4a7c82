"""Numbered things that were sent, and how long their answers took."""

from __future__ import annotations

from collections import deque

from kernel.inspection.durations import Durations

REMEMBERED = 10_000
"""Of more, the oldest are not measured."""


class Awaited:
    """Numbers go up."""

    def __init__(self, durations: Durations | None = None) -> None:
        self.durations: Durations = durations or Durations()
        self._waiting: deque[tuple[int, float | None]] = deque(maxlen=REMEMBERED)

    def sent(self, number: int, time: float) -> None:
        """Wait for this one's answer."""
        self._waiting.append((number, time))

    def do_not_measure(self, number: int) -> None:
        """It was sent again: nobody could say what is answered (Karn)."""
        for at, (each, _) in enumerate(self._waiting):
            if each >= number:
                if each == number:
                    self._waiting[at] = (number, None)
                return

    def answered(self, number: int, time: float) -> None:
        """Take an answer to this one alone."""
        for at, (each, sent) in enumerate(self._waiting):
            if each >= number:
                if each == number:
                    del self._waiting[at]
                    self._measure(sent, time)
                return

    def answered_up_to(self, number: int, time: float) -> None:
        """Take an answer to all up to this one; what is measured is the last of them, which the answer did not wait for."""
        sent: float | None = None
        while self._waiting and self._waiting[0][0] <= number:
            sent = self._waiting.popleft()[1]
        self._measure(sent, time)

    def forget(self) -> None:
        """Do not wait any more."""
        self._waiting.clear()

    def _measure(self, sent: float | None, time: float) -> None:
        if sent is not None:
            self.durations.add(time - sent)
