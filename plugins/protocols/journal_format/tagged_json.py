"""JSON that loses nothing of an AMQP field table.

A value that JSON does not have is written as an object with a single name (a tag) that begins with ``$``:

======================  =====================================================
``bytes``               ``{"$bytes": "base64"}``
``bytearray``           ``{"$bytearray": "base64"}``
``Decimal``             ``{"$decimal": "1.50"}``
``datetime``            ``{"$time": "2026-11-21T12:00:00+00:00"}``
nan and infinities      ``{"$float": "nan"}``
a table with a name     ``{"$table": [[name, value], ...]}``
that begins with ``$``
or is not a ``str``
======================  =====================================================

A value of any other type is written as ``str(value)``.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any


def dumps(value: Any) -> str:
    """Return the JSON text of a value."""
    return to_text(to_plain(value))


def loads(text: str) -> Any:
    """Return the value that was given to ``dumps``; tuples have become lists."""
    return from_plain(json.loads(text))


def to_text(plain: Any) -> str:
    """Return the JSON text of a value without other types, with characters that UTF-8 can encode."""
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Lone surrogates, from bytes that were not UTF-8.  Escape everything beyond ASCII.
        text = json.dumps(plain, separators=(",", ":"), allow_nan=False)
    return text


def to_plain(value: Any) -> Any:
    """Return a value in which tags replace everything that JSON does not have."""
    if isinstance(value, Mapping):
        # A name with ``$`` could be taken for a tag when it is read.
        if all(isinstance(name, str) and not name.startswith("$") for name in value):
            return {name: to_plain(item) for name, item in value.items()}
        return {"$table": [[to_plain(name), to_plain(item)] for name, item in value.items()]}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    # Before the loop: the usual types.  JSON has integers of any size.
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        # JSON has no nan and no infinities.
        return value if isfinite(value) else {"$float": repr(value)}
    for kind, tag, write in _WRITERS:
        if isinstance(value, kind):
            return {tag: write(value)}
    # Not exact, but a journal refuses no message for a type in its headers.
    return str(value)


def from_plain(value: Any) -> Any:
    """Return a value in which its tags are replaced by what they stand for."""
    if isinstance(value, list):
        return [from_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    # A tag is the only name of its object.
    if len(value) == 1:
        (tag, inner), *_ = value.items()
        # An unknown tag stays an object.
        read = _READERS.get(tag)
        if read is not None:
            return read(inner)
    return {name: from_plain(item) for name, item in value.items()}


def _base64(octets: Any) -> str:
    return b64encode(octets).decode()


_WRITERS: tuple[tuple[type, str, Callable[[Any], str]], ...] = (
    (bytes, "$bytes", _base64),
    (bytearray, "$bytearray", _base64),
    (memoryview, "$bytearray", _base64),
    (Decimal, "$decimal", str),
    (datetime, "$time", datetime.isoformat),
)
_READERS: dict[str, Callable[[Any], Any]] = {
    "$bytes": b64decode,
    "$bytearray": lambda text: bytearray(b64decode(text)),
    "$decimal": Decimal,
    "$time": datetime.fromisoformat,
    "$float": float,
    # Names may be tagged values, too.
    "$table": lambda pairs: {from_plain(name): from_plain(item) for name, item in pairs},
}
