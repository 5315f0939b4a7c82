"""Dead letters: the envelope of a message that a queue drops and passes to its dead-letter exchange.

The ``x-death`` header follows RabbitMQ's description (https://www.rabbitmq.com/docs/dlx): one entry with a
count for each queue and reason, the latest first.  The ``x-first-death`` headers are written once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from kernel.contracts.message import Envelope
from kernel.contracts.properties import changed
from plugins.engines.broker.publishing_ids import PUBLISHING_ID

Reason = Literal["rejected", "expired", "maxlen", "delivery_limit", "undeliverable"]
"""RabbitMQ's reasons, and ``undeliverable``: a consumer's protocol cannot carry the message."""


def headers_of(envelope: Envelope) -> Mapping[str, Any]:
    """Return the headers of a message; empty if it has none, or if the property is not a mapping."""
    if not envelope.properties:
        return {}
    headers = envelope.properties.get("headers")
    return headers if isinstance(headers, Mapping) else {}


def deaths_of(envelope: Envelope) -> list[dict[str, Any]]:
    """Return the ``x-death`` entries, the latest first.

    Clients may write the header, so anything else is ignored.
    """
    deaths = headers_of(envelope).get("x-death")
    if not isinstance(deaths, list):
        return []
    return [dict(death) for death in deaths if isinstance(death, Mapping)]


def dead_envelope(
    envelope: Envelope, reason: Reason, queue: str, exchange: str, key: str | None, clock: float
) -> Envelope:
    """Return the envelope under which messages leave ``queue`` for a dead-letter exchange.

    ``clock`` is the time of day.
    """
    before = headers_of(envelope)
    deaths = _one_for_each(deaths_of(envelope))
    died = bool(deaths)
    # One entry for each queue and reason.  A repeated death raises its count and comes to the front.
    earlier = next((d for d in deaths if d.get("queue") == queue and d.get("reason") == reason), None)
    if earlier is None:
        death = _new_death(envelope, reason, queue, clock)
    else:
        deaths.remove(earlier)
        death = earlier | {"count": _counted(earlier.get("count")) + 1}
    first: dict[str, Any] = {
        "x-first-death-reason": reason,
        "x-first-death-queue": queue,
        "x-first-death-exchange": envelope.exchange,
    }
    # Written with the first death only (RabbitMQ): a message that brings deaths has them, or never will.
    headers = {} if died else {name: value for name, value in first.items() if name not in before}
    headers["x-death"] = [death, *deaths]
    # With a dead-letter key the message goes to this key alone.  Otherwise it keeps all of its keys, those in
    # the CC header included.  Consumers must never see BCC (RabbitMQ, sender-selected distribution).
    # A publishing id counted when the message came.
    without = ("BCC", PUBLISHING_ID) if key is None else ("BCC", "CC", PUBLISHING_ID)
    return msgspec.structs.replace(
        envelope,
        exchange=exchange,
        key=envelope.key if key is None else key,
        expiration=None,
        # Without ``expiration`` it does not expire again in the next queue.  ``original-expiration`` keeps
        # the value.
        properties=changed(envelope.properties, {"expiration": None}, headers=headers, without=without),
    )


def would_cycle(envelope: Envelope, queue: str) -> bool:
    """Whether a dead letter was in ``queue`` before and was not rejected since.

    Such a message would circulate for ever.
    """
    # The latest death comes first.  A rejection is the decision of a consumer, which may decide otherwise the
    # next time.  So a circle with a rejection in it is allowed (RabbitMQ).
    for death in deaths_of(envelope):
        if death.get("reason") == "rejected":
            return False
        if death.get("queue") == queue:
            return True
    return False


def _new_death(envelope: Envelope, reason: Reason, queue: str, clock: float) -> dict[str, Any]:
    copies = headers_of(envelope).get("CC")
    keys = [envelope.key, *copies] if isinstance(copies, list) else [envelope.key]
    death: dict[str, Any] = {
        "count": 1,
        "reason": reason,
        "queue": queue,
        "time": datetime.fromtimestamp(int(clock), UTC),
        "exchange": envelope.exchange,
        "routing-keys": keys,
    }
    if envelope.expiration is not None:
        death["original-expiration"] = str(envelope.expiration)
    return death


def _one_for_each(deaths: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry for each queue and reason, each with a count.

    Old brokers wrote an entry for each death, without a count.  Of several entries with a count the first
    one counts (RabbitMQ).
    """
    entries: dict[tuple[Any, Any], dict[str, Any]] = {}
    without_count: Counter[tuple[Any, Any]] = Counter()
    for death in deaths:
        # Clients may write any values here.
        where = (str(death.get("queue")), str(death.get("reason")))
        entries.setdefault(where, death)
        without_count[where] += "count" not in death
    return [
        death if "count" in death else death | {"count": without_count[where]}
        for where, death in entries.items()
    ]


def _counted(count: object) -> int:
    """Return a count that a client may have written; 0 if it is no number that fits into 64 bits."""
    # Below 2^62, so that the count still fits after it was raised.
    return count if isinstance(count, int) and 0 <= count < 1 << 62 else 0
