"""Converts an envelope into a row of the envelope table, and back.

An envelope is any object with the fields of ``kernel.contracts.message.Envelope``.  The way back returns the
keyword arguments for a new one.  Nothing is lost: a value that a column cannot hold exactly (text that is not
valid UTF-8, a number that is too large) is stored a second time among the properties, under ``$exact``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from plugins.protocols.journal_format import tagged_json

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LATEST = 253_402_300_799_999_999
"""The last microsecond of the year 9999, since 1970 UTC: the latest time that a ``datetime`` can hold."""


class Source(NamedTuple):
    """The sender of messages, as the port of the journal's engine names it."""

    engine: str = ""
    """The name of the port that sent them: the engine's name, or for a listener the name of one of its
    connections."""
    route: str = ""
    """The name of the route that brought them."""


NOWHERE = Source()


def row_of(envelope: Any, source: Source = NOWHERE) -> tuple[Any, ...]:
    """Return the values of the columns ``schema.ENVELOPE_FIELDS``, in that order."""
    exact: dict[str, Any] = {}
    remaining = dict(envelope.properties)
    headers, content_type = remaining.get("headers"), remaining.get("content_type")
    # A column of its own, so that queries can select by it.  The header and the property stay where they are.
    sent = sent_at(headers, remaining.get("timestamp"))
    # Headers and the content type have columns of their own.  Whatever does not fit into its column stays
    # among the properties.
    if isinstance(headers, Mapping):
        del remaining["headers"]
        headers = tagged_json.dumps(headers)
    else:
        headers = None
    if isinstance(content_type, str) and _is_clean(content_type):
        del remaining["content_type"]
    else:
        content_type = None
    return (
        source.engine,
        source.route,
        _text("exchange", envelope.exchange, exact),
        _text("key", envelope.key, exact),
        # Null is stored for an empty address, since most messages have none.
        _text("reply_to", envelope.reply_to, exact) or None,
        _number("priority", envelope.priority, 1 << 15, exact),
        envelope.persistent,
        _number("expiration", envelope.expiration, 1 << 63, exact),
        sent,
        content_type,
        headers,
        _properties(remaining, exact),
    )


def fields_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of an ``Envelope`` from ``row``, the values of its columns by name."""
    plain = json.loads(row["properties"] or "{}")
    # Before ``from_plain``: these are fields of the envelope and no properties.  A property of this name
    # would be in a ``$table``, as all names with ``$`` are.
    exact = plain.pop("$exact", {})
    properties = tagged_json.from_plain(plain)
    if row["headers"] is not None:
        properties["headers"] = tagged_json.loads(row["headers"])
    if row["content_type"] is not None:
        properties["content_type"] = row["content_type"]
    fields = {
        "key": row["key"],
        "exchange": row["exchange"],
        "reply_to": row["reply_to"] or "",
        "persistent": row["persistent"],
        "priority": row["priority"],
        "expiration": row["expiration"],
        **exact,
    }
    if properties:
        fields["properties"] = properties
    return fields


def _properties(remaining: Mapping[str, Any], exact: Mapping[str, Any]) -> str | None:
    if not remaining and not exact:
        return None
    plain = tagged_json.to_plain(remaining)
    if exact:
        # After ``to_plain``, which would take the name for a tag.
        plain["$exact"] = exact
    return tagged_json.to_text(plain)


def _is_clean(text: str) -> bool:
    """Return whether UTF-8 can encode a text: bytes that were not UTF-8 are lone surrogates in it."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(name: str, text: str, exact: dict[str, Any]) -> str:
    if _is_clean(text):
        return text
    exact[name] = text
    # The column has something readable for queries; the exact text is what a replay sends.
    return text.encode("utf-8", "replace").decode()


def _number(name: str, number: int | None, limit: int, exact: dict[str, Any]) -> int | None:
    if number is None or -limit <= number < limit:
        return number
    exact[name] = number
    # The nearest number that the column holds, for the same reason.
    return limit - 1 if number > 0 else -limit


def sent_at(headers: Any, timestamp: Any) -> int | None:
    """Return the sender's own time, in microseconds since 1970 UTC; None if it gave none.

    RabbitMQ's header ``timestamp_in_ms`` (milliseconds) comes before the property ``timestamp`` (whole
    seconds).
    """
    moment = headers.get("timestamp_in_ms") if isinstance(headers, Mapping) else None
    # Not ``isinstance``: True is an int.
    if type(moment) is int:
        return moment * 1000 if 0 <= moment * 1000 <= _LATEST else None
    if isinstance(timestamp, datetime):
        # A time without a zone is UTC, as AMQP's timestamps are.
        aware = timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)
        return (aware - _EPOCH) // _MICROSECOND
    return None
