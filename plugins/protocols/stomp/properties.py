"""Message properties as headers of SEND and MESSAGE frames: RabbitMQ's names, which are AMQP's with hyphens.

A header that is not in the table below is a header of the message: an entry of the property ``headers``.  In
the other direction, what has no form as text is dropped: tables, arrays and binary values among the headers.
RabbitMQ does the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from kernel.contracts.message import Envelope
from kernel.contracts.timestamp import seconds_of, time_of
from plugins.protocols.stomp.errors import CannotCarry, Fault

TEXTS = {
    "content-type": "content_type",
    "content-encoding": "content_encoding",
    "correlation-id": "correlation_id",
    "amqp-message-id": "message_id",
    "type": "type",
    "user-id": "user_id",
    "app-id": "app_id",
}
"""Headers whose values are properties with text."""
OF_ENVELOPE = frozenset(("persistent", "priority", "expiration", "reply-to"))
"""Headers that are fields of the envelope."""
OF_FRAMES = frozenset(
    (
        "ack",
        "content-length",
        "destination",
        "message-id",
        "receipt",
        "redelivered",
        "subscription",
        "transaction",
    )
)
"""Headers that belong to a frame, and are no headers of its message."""
_NO_HEADERS_OF_MESSAGE = OF_ENVELOPE | OF_FRAMES | TEXTS.keys() | {"timestamp"}
_HIGHEST_PRIORITY = 255
_LONGEST_NUMBER = 20
_LATEST = (1 << 64) - 1


def envelope_of(exchange: str, key: str, headers: Mapping[str, str]) -> Envelope:
    """Return the envelope of a SEND frame.  Raises ``Fault`` for a number that is none."""
    properties: dict[str, Any] = {}
    for name, value in headers.items():
        if name in TEXTS:
            properties[TEXTS[name]] = value
    if "timestamp" in headers:
        properties["timestamp"] = time_of(_number(headers, "timestamp", _LATEST))
    others = {name: value for name, value in headers.items() if name not in _NO_HEADERS_OF_MESSAGE}
    if others:
        properties["headers"] = others
    return Envelope(
        exchange=exchange,
        key=key,
        reply_to=headers.get("reply-to", ""),
        persistent=is_true(headers, "persistent") or False,
        priority=_number(headers, "priority", _HIGHEST_PRIORITY) if "priority" in headers else 0,
        expiration=_number(headers, "expiration", _LATEST) if "expiration" in headers else None,
        properties=properties,
    )


def headers_of(envelope: Envelope) -> Iterator[tuple[str, str]]:
    """Yield the headers of a MESSAGE frame that come from its message.  Raises ``CannotCarry``."""
    properties = envelope.properties
    for name, property_name in TEXTS.items():
        value = properties.get(property_name)
        if value is not None:
            yield name, _text(property_name, value)
    if envelope.persistent:
        yield "persistent", "true"
    if envelope.priority:
        yield "priority", str(envelope.priority)
    if envelope.expiration is not None:
        yield "expiration", str(envelope.expiration)
    if envelope.reply_to:
        yield "reply-to", envelope.reply_to
    moment = properties.get("timestamp")
    if moment is not None:
        yield "timestamp", _seconds(moment)
    yield from _others(properties.get("user_properties"), properties.get("headers"))


def is_true(headers: Mapping[str, str], name: str) -> bool | None:
    """Return a header that says true or false; None: it is missing, or says something else (RabbitMQ)."""
    return {"true": True, "True": True, "false": False, "False": False}.get(headers.get(name, ""))


def _number(headers: Mapping[str, str], name: str, most: int) -> int:
    text = headers[name].strip(" ")
    # ``isascii``: there are digits of other scripts.
    if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER and int(text) <= most:
        return int(text)
    raise Fault("Invalid header", f"{name} must be a number from 0 to {most}, and not {headers[name]!r:.80}")


def _others(pairs: Any, headers: Any) -> Iterator[tuple[str, str]]:
    """Yield the headers that an application has set, one of a name: a header, or the last user property."""
    found: dict[Any, Any] = {}
    # Routes and applications may have put anything there.
    for pair in pairs if isinstance(pairs, list | tuple) else ():
        if isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str):
            found[pair[0]] = pair[1]
    # Behind the user properties, so that a header counts if both have the name.
    if isinstance(headers, Mapping):
        found.update(headers)
    for name, value in found.items():
        if not isinstance(name, str) or name in _NO_HEADERS_OF_MESSAGE:
            continue
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, bool):
            yield name, "true" if value else "false"
        elif isinstance(value, int | float):
            yield name, str(value)
        elif isinstance(value, datetime):
            yield name, value.isoformat()


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise CannotCarry(f"property {name} is not UTF-8: {bytes(value[:80])!r}") from None
    raise CannotCarry(f"property {name} cannot be {value!r:.80}")


def _seconds(moment: Any) -> str:
    if isinstance(moment, datetime | int) and 0 <= (seconds := seconds_of(moment)) <= _LATEST:
        return str(int(seconds))
    raise CannotCarry(f"property timestamp cannot be {moment!r:.80}")
