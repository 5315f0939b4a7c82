"""Numbered requests, and how long their answers took."""

from __future__ import annotations

from collections import deque

from kernel.contracts.dissecting.durations import Durations

REMEMBERED = 10_000
"""Requests that are remembered; older ones are not measured."""


class Awaited:
    """Requests with ascending numbers that wait for an answer. Times are seconds."""

    def __init__(self, durations: Durations | None = None) -> None:
        self.durations: Durations = durations or Durations()
        self._waiting: deque[tuple[int, float | None]] = deque(maxlen=REMEMBERED)

    def sent(self, number: int, time: float) -> None:
        """Record that a request was sent."""
        self._waiting.append((number, time))

    def do_not_measure(self, number: int) -> None:
        """Do not measure this request: an answer could be to its repetition (Karn's algorithm, RFC 6298)."""
        # Numbers ascend, so the search ends at the first that is not lower.
        for at, (each, _) in enumerate(self._waiting):
            if each >= number:
                if each == number:
                    # It stays, without a time.  If it were removed, ``answered_up_to`` would take the request
                    # before it for the last one and measure that.
                    self._waiting[at] = (number, None)
                return

    def answered(self, number: int, time: float) -> None:
        """Process the answer to one request."""
        for at, (each, sent) in enumerate(self._waiting):
            if each >= number:
                if each == number:
                    del self._waiting[at]
                    self._measure(sent, time)
                return

    def answered_up_to(self, number: int, time: float) -> None:
        """Process an answer to all requests up to this one.

        Only the last is measured: the answer did not wait for the others.
        """
        sent: float | None = None
        while self._waiting and self._waiting[0][0] <= number:
            sent = self._waiting.popleft()[1]
        self._measure(sent, time)

    def forget(self) -> None:
        """Forget all requests."""
        self._waiting.clear()

    def _measure(self, sent: float | None, time: float) -> None:
        if sent is not None:
            self.durations.add(time - sent)
