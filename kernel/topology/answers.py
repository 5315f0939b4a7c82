"""Answers: how what the control socket answers becomes JSON."""

from __future__ import annotations

from typing import Any

import msgspec


def as_json(answer: dict[str, Any]) -> bytes:
    """Return an answer as one line of JSON, without the line end, whatever is in it."""
    try:
        return msgspec.json.encode(answer, enc_hook=str)
    except Exception:
        # The answer has something that JSON cannot express.  AMQP names are octets: a client may declare a
        # queue, or publish with a key, that is not UTF-8, and Python holds it with surrogates.
        return msgspec.json.encode(_expressible(answer))


def _expressible(value: Any) -> Any:
    """Return the value in a form that JSON can express: what is not Unicode is escaped."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        return {_expressible(str(name)): _expressible(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_expressible(each) for each in value]
    if value is None or isinstance(value, bool | float):
        return value
    # ``msgspec`` refuses integers of more than 64 bits, and classes derived from ``int`` such as
    # ``Timestamp``.
    if isinstance(value, int) and value.bit_length() < 64:
        return int(value)
    return str(value).encode("utf-8", "backslashreplace").decode()
