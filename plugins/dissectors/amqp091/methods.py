"""The facts of methods and content headers, by name; passwords are left out."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import msgspec

from kernel.contracts.errors import RemoteProtocolError
from plugins.protocols.amqp091 import frames
from plugins.protocols.amqp091.content import decode_properties
from plugins.protocols.amqp091.methods.method import Method

_SECRET = frozenset(("response", "challenge", "new_secret"))
"""Arguments that contain credentials."""
_SILENT = frozenset(("ticket",))
_FAULTS = (RemoteProtocolError, IndexError, struct.error, ValueError, OverflowError, RecursionError)


def decode(payload: bytes) -> Method:
    """Decode a method. Raises ``RemoteProtocolError``."""
    kind = frames.METHODS.get(payload[:4])
    if kind is None:
        raise RemoteProtocolError(f"an unknown method {payload[:4].hex()}")
    try:
        return kind.decode(payload)
    except _FAULTS as error:
        raise RemoteProtocolError(f"{kind.name}: {error}") from None


def facts_of(method: Method) -> dict[str, Any]:
    """Return the arguments that say something."""
    facts: dict[str, Any] = {}
    for field in method.__struct_fields__:
        value = getattr(method, field)
        # The length helps to see an empty password, and tells little else.
        if field in _SECRET:
            facts[field] = f"({len(value)} bytes)"
        # 0 is a fact (a delivery tag, a message count).  An empty text, an empty table and False are left
        # out.
        elif field not in _SILENT and (value or (isinstance(value, int) and not isinstance(value, bool))):
            # ``global_`` has its underscore only because of Python.
            facts[field.rstrip("_")] = readable(value)
    return facts


def properties_of(raw: bytes) -> dict[str, Any]:
    """Return the properties of a content header."""
    try:
        values = decode_properties(raw)
    except _FAULTS as error:
        # The message is shown all the same: its size is known.
        return {"properties": f"malformed: {error}"}
    return {name: readable(value) for name, value in values.items()}


def readable(value: Any) -> Any:
    """Return a value of a field table in a form that can be shown."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, Mapping):
        return {str(name): readable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [readable(each) for each in value]
    return value if isinstance(value, int | float | None) else str(value)


class Content(msgspec.Struct):
    """An incomplete message on a channel."""

    method: Method
    size: int | None = None
    """Bytes of the body, according to the header."""
    got: int = 0
    properties: Mapping[str, Any] = {}

    def complete(self) -> bool:
        """Whether the body is complete."""
        return self.size is not None and self.got >= self.size
