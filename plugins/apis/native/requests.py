"""Requests: tells the answers to a channel's questions from the other messages that come to it.

A question carries two things in its envelope, which the answer brings back, since an answer is sent under the
envelope of its question: ``reply_to``, by which the router ``reply`` finds the channel, and the property
``correlation_id``, which says which question it was.  Both begin with a token that no other channel has.
``reply_to`` is not the channel's name: other channels may have that name, too.

An answer is taken out of the messages that were taken from the port, and never seen by ``receive``.  It is
confirmed at once: to a successor of the channel it would mean nothing.  So the positions of the other
messages have gaps, which ``last_before`` counts.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from kernel.contracts.engine import Taken
from kernel.contracts.envelopes import checked_text
from kernel.contracts.message import Batch, Envelope, Message, messages_of

REPLY_NAME = "reply_name"
"""The option of a port that names it for the router ``reply`` (``Host.port``)."""


def new_token() -> str:
    """Return a name that no other channel has."""
    return os.urandom(8).hex()


class Requests:
    """The questions of one channel that are not answered yet, and the answers that nobody has fetched yet."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._asked = 0
        self.answers: dict[str, Message | None] = {}
        """By the number of a question: its answer, None if that has not come yet."""
        self.arrived: deque[Batch] = deque()
        """What was taken and not looked at yet (``sort``)."""
        self._taken_out: list[int] = []
        """Positions of answers, in order, that may be above what was confirmed so far."""

    def ask(self, key: str | None, headers: Mapping[str, Any] | None = None) -> tuple[str, Envelope]:
        """Return the number of a new question, and its envelope."""
        if key is not None:
            key = checked_text(key, "a key")
        self._asked += 1
        number = f"{self._token}-{self._asked}"
        properties: dict[str, Any] = {"correlation_id": number}
        if headers:
            properties["headers"] = dict(headers)
        envelope = Envelope(key=key or "", reply_to=self._token, properties=properties)
        # No call behind it: a handler of a signal would raise there, and nobody would forget the number.
        self.answers[number] = None
        return number, envelope

    def forget(self, number: str) -> None:
        """Drop the answer to a question, also one that comes later."""
        self.answers.pop(number, None)

    def sort(self, others: deque[Batch]) -> None:
        """Keep the answers among what has arrived; append the rest to ``others``.

        Each batch is in one of the places, wherever a handler of a signal raises: between what makes it known
        elsewhere and ``del`` there is no call.
        """
        arrived = self.arrived
        while arrived:
            batch = arrived[0]
            number = self._number_of(batch)
            if number is None:
                others += (batch,)
            # A question that was forgotten is not in the table, and of several answers the first counts.
            elif self.answers.get(number, batch) is None:
                message = _first(batch)
                self.answers[number] = message
            del arrived[0]

    def _number_of(self, batch: Batch) -> str | None:
        """Return which question a batch is the answer to; None: it is none."""
        number = batch.envelope.properties.get("correlation_id")
        return number if isinstance(number, str) and number.startswith(self._token) else None

    def take_out(self, taken: Taken, confirm_only: Callable[[int, int], Any]) -> list[Batch]:
        """Keep the answers among what was taken; return the rest."""
        rest: list[Batch] = []
        last = 0 if taken.position is None else taken.position - taken.count
        for batch in taken.batches:
            first, last = last + 1, last + len(batch.bodies)
            number = self._number_of(batch)
            if number is None:
                rest.append(batch)
                continue
            if self.answers.get(number, batch) is None:
                self.answers[number] = _first(batch)
            if taken.position is not None:
                confirm_only(first, last)
                self._taken_out += range(first, last + 1)
        return rest

    def last_before(self, unread: int, position: int) -> int:
        """Return the position of the last message in front of the last ``unread`` ones.

        ``position`` is that of the last message taken.
        """
        last = position - unread
        # From the end: each answer behind ``last`` is one of the messages that were counted as unread.
        for taken_out in reversed(self._taken_out):
            if taken_out <= last:
                break
            last -= 1
        # What is confirmed now is not looked at again.
        self._taken_out = [taken_out for taken_out in self._taken_out if taken_out > last]
        return last


def _first(batch: Batch) -> Message:
    """Return the first message: what ``messages_of`` does, without its list."""
    return messages_of(batch)[0] if batch.multipart else Message(batch.bodies[0], batch.envelope)
