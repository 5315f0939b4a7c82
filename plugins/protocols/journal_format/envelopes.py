"""An envelope as a row of the envelope table, and back.

An envelope is anything with the fields of ``kernel.contracts.message.Envelope``; what comes back is the
keyword arguments that make one.  Nothing is lost: what a column cannot hold exactly (octets that are no UTF-8, a number
that is too large) is there once more among the properties, under ``$exact``.
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
"""The end of the year 9999, in microseconds: what a datetime can hold."""


class Source(NamedTuple):
    """Where messages came from."""

    engine: str = ""
    """The name of the port that sent them: the engine's, and for a listener the connection's."""
    route: str = ""


NOWHERE = Source()


def row_of(envelope: Any, source: Source = NOWHERE) -> tuple[Any, ...]:
    """Return the values of ``schema.ENVELOPE_FIELDS``, in their order."""
    exact: dict[str, Any] = {}
    left = dict(envelope.properties)
    headers, content_type = left.get("headers"), left.get("content_type")
    sent = _sent(headers, left.get("timestamp"))
    if isinstance(headers, Mapping):
        del left["headers"]
        headers = tagged_json.dumps(headers)
    else:
        headers = None
    if isinstance(content_type, str) and _is_clean(content_type):
        del left["content_type"]
    else:
        content_type = None
    return (
        source.engine,
        source.route,
        _text("exchange", envelope.exchange, exact),
        _text("key", envelope.key, exact),
        _text("reply_to", envelope.reply_to, exact) or None,
        _number("priority", envelope.priority, 1 << 15, exact),
        envelope.persistent,
        _number("expiration", envelope.expiration, 1 << 63, exact),
        sent,
        content_type,
        headers,
        _properties(left, exact),
    )


def fields_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that make the envelope of which ``row`` has the columns."""
    plain = json.loads(row["properties"] or "{}")
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


def _properties(left: Mapping[str, Any], exact: Mapping[str, Any]) -> str | None:
    if not left and not exact:
        return None
    plain = tagged_json.to_plain(left)
    if exact:
        plain["$exact"] = exact
    return tagged_json.to_text(plain)


def _is_clean(text: str) -> bool:
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
    return text.encode("utf-8", "replace").decode()


def _number(name: str, number: int | None, limit: int, exact: dict[str, Any]) -> int | None:
    if number is None or -limit <= number < limit:
        return number
    exact[name] = number
    return limit - 1 if number > 0 else -limit


def _sent(headers: Any, timestamp: Any) -> int | None:
    """When the sender says that it sent, in microseconds: RabbitMQ's header in milliseconds, or the property."""
    moment = headers.get("timestamp_in_ms") if isinstance(headers, Mapping) else None
    if type(moment) is int:
        return moment * 1000 if 0 <= moment * 1000 <= _LATEST else None
    if isinstance(timestamp, datetime):
        aware = timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)
        return (aware - _EPOCH) // _MICROSECOND
    return None
