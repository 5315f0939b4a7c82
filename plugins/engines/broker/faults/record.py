"""Record: what has been published, delivered and acknowledged, for the assertions of a test."""

from __future__ import annotations

from base64 import b64encode
from collections import deque
from typing import Any, Literal, NamedTuple

from kernel.contracts.message import Batch

What = Literal["published", "delivered", "acknowledged"]

_MOST_RECORDED = 100_000
"""Batches of each sort that are remembered; then the oldest are forgotten."""


class Entry(NamedTuple):
    """One batch that has passed."""

    batch: Batch
    queues: tuple[str, ...]
    client: str
    redelivered: bool


class Record:
    """What has passed since the broker was started.  Used by the broker's thread."""

    def __init__(self) -> None:
        self._entries: dict[What, deque[Entry]] = {
            "published": deque(maxlen=_MOST_RECORDED),
            "delivered": deque(maxlen=_MOST_RECORDED),
            "acknowledged": deque(maxlen=_MOST_RECORDED),
        }

    def add(self, what: What, entry: Entry) -> None:
        """Note a batch."""
        self._entries[what].append(entry)

    def rows(self, what: What) -> list[dict[str, Any]]:
        """Return a row for each message, in the order in which they passed, as JSON can have them."""
        return [
            {
                "body": b64encode(bytes(body)).decode(),
                "exchange": entry.batch.envelope.exchange,
                "key": entry.batch.envelope.key,
                "queues": list(entry.queues),
                "client": entry.client,
                "redelivered": entry.redelivered,
            }
            for entry in self._entries[what]
            for body in entry.batch.bodies
        ]
