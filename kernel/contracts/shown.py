"""Shown: a message as data for an operator, and the choice of the messages that an operator wants to see.

Taps and ``kernel peek`` use it.  What is shown of a message is bounded, whatever its
publisher has put into it.

An engine that can be watched inside has three operations (``EngineKind.operations``).  ``tap`` takes a
mapping with the fields of ``Selection``, and with which options of its kind's own it was asked
(``EngineKind.asked``); it returns ``{"tap": NUMBER}``.  ``tap-read`` takes ``{"tap": NUMBER, "most": N}`` and
returns ``{"messages": [...], "dropped": M}``: rows as ``shown`` makes them, N at most, of what has passed
since the last question, and how many were dropped since the tap began.  ``tap-end`` takes
``{"tap": NUMBER}``.  The engine also forgets a tap that nobody has asked for some seconds.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from kernel.contracts.key_trie import key_filter
from kernel.contracts.message import Batch, Buffer, Envelope

Row: TypeAlias = dict[str, Any]

MOST_BYTES = 4096
"""Octets of a body, or of a text among the properties, that are shown if the operator does
not say how many."""
_DEEPEST = 8
"""Tables in tables among the properties: a client may nest them without end."""
_MOST_ENTRIES = 100
"""Entries of a table or list among the properties."""


def shown(envelope: Envelope, body: Any, most_bytes: int = MOST_BYTES) -> Row:
    """Return a message as JSON has it.

    ``body`` is text if it is UTF-8 (``body_encoding`` is ``text``), otherwise in base64.  ``body_bytes``
    is its whole size, also if ``truncated`` says that only its beginning is shown.  The parts of a
    multi-part message are joined.
    """
    if isinstance(body, tuple):
        body = b"".join(body)
    size = len(body)
    # A memoryview first, so that a large body is not copied as a whole.
    head = bytes(memoryview(body)[:most_bytes])
    text = _text(head, cut=size > len(head))
    return {
        "exchange": envelope.exchange,
        "key": envelope.key,
        "persistent": envelope.persistent,
        "priority": envelope.priority,
        "expiration": envelope.expiration,
        "reply_to": envelope.reply_to,
        "properties": _plain(dict(envelope.properties), most_bytes, 0),
        "body_bytes": size,
        "body_encoding": "base64" if text is None else "text",
        "body": b64encode(head).decode() if text is None else text,
        "truncated": size > len(head),
    }


def _text(octets: bytes, *, cut: bool) -> str | None:
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        # The cut may have gone through a character of up to four octets.
        if cut and error.start > len(octets) - 4 and error.reason == "unexpected end of data":
            return octets[: error.start].decode()
        return None


def _plain(value: Any, most: int, depth: int) -> Any:
    """Return a value of the properties in a bounded form that JSON has."""
    if depth > _DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        some = list(value.items())[:_MOST_ENTRIES]
        return {str(name)[:most]: _plain(each, most, depth + 1) for name, each in some}
    if isinstance(value, list | tuple):
        return [_plain(each, most, depth + 1) for each in value[:_MOST_ENTRIES]]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value[:most]).decode("utf-8", "backslashreplace")
    if value is None or isinstance(value, bool | float):
        return value
    # JSON readers keep 53 bits of a number.  Classes derived from ``int``, such as a time, become texts.
    if type(value) is int and abs(value) < 1 << 53:
        return value
    return str(value)[:most]


class Selection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which of the messages that pass an operator wants to see.  Everything that is given has to fit."""

    keys: tuple[str, ...] = ()
    """Patterns, as those of routes.  One of them has to match the key."""
    headers: dict[str, str] = {}
    """Headers, or other properties of that name, and their values as text."""
    contains: str = ""
    """Text that the body has to contain, in UTF-8."""


class Selector:
    """Finds the selected messages of batches.  Used by one thread.

    All but the body is looked at once for each envelope of consecutive batches.
    """

    def __init__(self, selection: Selection) -> None:
        """Raises ``ValueError`` for a malformed pattern."""
        self._headers = selection.headers
        self._contains = selection.contains.encode("utf-8", "surrogateescape")
        self._matches = key_filter(selection.keys) if selection.keys else None
        self._last: Envelope | None = None
        self._last_fits = True

    def fits(self, envelope: Envelope) -> bool:
        """Whether messages under this envelope may be selected."""
        # Envelopes are compared by identity, and the last one is kept here: no other one can have its
        # identity.
        if envelope is not self._last:
            self._last = envelope
            self._last_fits = self._fits(envelope)
        return self._last_fits

    def bodies(self, batch: Batch) -> Iterator[Any]:
        """Return the bodies of the selected messages of a batch."""
        if not self.fits(batch.envelope):
            return iter(())
        if not self._contains:
            return iter(batch.bodies)
        wanted = self._contains
        if batch.multipart:
            return (parts for parts in batch.bodies if wanted in b"".join(parts))
        return (body for body in batch.bodies if wanted in _octets(body))

    def _fits(self, envelope: Envelope) -> bool:
        if self._matches is not None and not self._matches(envelope.key):
            return False
        if not self._headers:
            return True
        # Some protocols decode the properties at the first access, so only if they are wanted.
        properties = envelope.properties
        headers = properties.get("headers")
        if not isinstance(headers, Mapping):
            headers = {}
        return all(
            _as_text(headers.get(name, properties.get(name))) == value
            for name, value in self._headers.items()
        )


def _octets(body: Buffer) -> bytes | bytearray:
    # A memoryview cannot be searched.
    return bytes(body) if isinstance(body, memoryview) else body


def _as_text(value: Any) -> str | None:
    """Return a value as an operator types it: ``true``, ``7``, ``text``."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)
