"""Answer: what a page gives for a request.  Errors have the JSON form of RabbitMQ's management API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias
from typing import Protocol as Interface

import msgspec

JSON = "application/json"

NOTHING_ALLOWED = "default-src 'none'; frame-ancestors 'none'"
"""For browsers: what is answered has no scripts, and is in no frame of others."""


class Request(NamedTuple):
    """A request; its body is there when ``Whole`` has read it."""

    method: str
    path: str
    """Decoded, without the query."""
    headers: Mapping[bytes, bytes]
    """By name in small letters.  Of several with one name the last."""
    peer: str
    """Where the client comes from, as an operator sees it."""
    loopback: bool
    """Whether that is this machine."""
    body: bytes = b""
    parts: tuple[str, ...] = ()
    """The path between its slashes, each part decoded: a part may have a slash (``%2F``)."""
    query: Mapping[str, str] = {}
    """Of several with one name the last."""


class Stream(Interface):
    """An answer that goes on until the client leaves: server-sent events."""

    def write(self, piece: bytes) -> bool:
        """Send a piece; return False, and send nothing, while the client has not taken the one before.

        May end the connection.
        """
        ...

    def end(self) -> None:
        """End the answer, and the connection."""
        ...


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
    policy: str = NOTHING_ALLOWED
    """Its content security policy."""
    begin: Callable[[Stream], Callable[[], None]] | None = None
    """For an answer that goes on: called once with the stream that takes what follows ``body``.  It returns
    the function to call when the connection has ended."""


Respond: TypeAlias = Callable[[Answer], None]
"""Called once, in the engine's thread, in the same turn or later."""

Whole: TypeAlias = Callable[[Callable[[Request], None]], None]
"""Reads the body of a request, and calls the function with the request and the body."""


def json_answer(
    status: int, content: Any, headers: tuple[tuple[str, str], ...] = (), *, close: bool = False
) -> Answer:
    """Return an answer with a JSON body."""
    return Answer(status, (encoded(content) + b"\n",), JSON, headers, close)


def encoded(content: Any) -> bytes:
    """Return a text in JSON."""
    try:
        return msgspec.json.encode(content)
    except UnicodeEncodeError:
        # Clients choose names and arguments, whose octets may be no UTF-8.
        # Only if it has to be: this goes through all of it in Python.
        return msgspec.json.encode(_readable(content))


def _readable(content: Any) -> Any:
    if isinstance(content, str):
        return content.encode("utf-8", "backslashreplace").decode()
    if isinstance(content, Mapping):
        return {_readable(key): _readable(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_readable(each) for each in content]
    return content


def error(
    status: int, what: str, reason: object, headers: tuple[tuple[str, str], ...] = (), *, close: bool = False
) -> Answer:
    """Return an answer that says what went wrong."""
    return json_answer(status, {"error": what, "reason": reason}, headers, close=close)
