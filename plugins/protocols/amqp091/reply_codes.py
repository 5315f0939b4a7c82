"""Reply codes (section 1.8 of the specification's XML) and their texts."""

from __future__ import annotations

from enum import IntEnum


class ReplyCode(IntEnum):
    """Why a channel or connection is closed, or a message returned."""

    SUCCESS = 200
    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541


# ``class="soft-error"`` in the specification's XML.
SOFT = frozenset({311, 312, 313, 403, 404, 405, 406})
"""The codes that close only a channel.  All others close the connection."""

_NAMES = {int(code): code.name for code in ReplyCode}


def reply_text(code: int, text: str) -> str:
    """Return the text as RabbitMQ writes it, ``NOT_FOUND - no queue ...``, cut to 255 octets."""
    name = _NAMES.get(code)
    if name is not None and code != ReplyCode.SUCCESS and not text.startswith(name):
        text = f"{name} - {text}"
    # A reply text is a short string.  It may contain names that a client has chosen, of up to 255 octets
    # each, so that a whole text may not fit.  ``ignore`` drops a character that the cut has split.
    octets = text.encode("utf-8", "surrogateescape")
    return text if len(octets) <= 255 else octets[:255].decode("utf-8", "ignore")
