"""Answer: what a page gives for a request.  Errors have the JSON form of RabbitMQ's management API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

JSON = "application/json"


class Request(NamedTuple):
    """A complete request.  Its body was dropped: no page reads one."""

    method: str
    path: str
    """Decoded, without the query."""
    headers: Mapping[bytes, bytes]
    """By name in small letters.  Of several with one name the last."""
    peer: str
    """Where the client comes from, as an operator sees it."""
    loopback: bool
    """Whether that is this machine."""


class Answer(NamedTuple):
    """Status, headers and body."""

    status: int
    body: Sequence[bytes] = ()
    """In any pieces.  Several answers may share them."""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    """Besides those that every answer has."""
    close: bool = False
    """Whether the connection ends with this answer."""


Respond: TypeAlias = Callable[[Answer], None]
"""Called once, in the engine's thread, in the same turn or later."""


def json_answer(
    status: int, content: Any, headers: tuple[tuple[str, str], ...] = (), *, close: bool = False
) -> Answer:
    """Return an answer with a JSON body."""
    return Answer(status, (msgspec.json.encode(content) + b"\n",), JSON, headers, close)


def error(
    status: int, what: str, reason: str, headers: tuple[tuple[str, str], ...] = (), *, close: bool = False
) -> Answer:
    """Return an answer that says what went wrong."""
    return json_answer(status, {"error": what, "reason": reason}, headers, close=close)
