"""Properties key: the name of a binding within those of one source and one destination.

It is the routing key in the form of a URL, and for a binding with arguments a digest of them.  Tools give
back what they were given, so the digest need not be RabbitMQ's.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus, unquote_plus
from zlib import crc32


def properties_key(key: str, arguments: Mapping[str, Any]) -> str:
    """Return the name of a binding."""
    name = _quoted(key)
    if not arguments:
        return name or "~"
    # ``repr``: arguments of different types are different, also where they are equal in Python.
    digest = crc32(repr(sorted(arguments.items())).encode("utf-8", "surrogateescape"))
    return f"{name}~{urlsafe_b64encode(digest.to_bytes(4)).decode().rstrip('=')}"


def same_key(one: str, given: str) -> bool:
    """Return whether a tool means a binding with the properties key ``one``.

    Some tools give the routing key as it is.  RabbitMQ decodes what it is given, so both mean the same.
    """
    return given == one or _quoted(unquote_plus(given, errors="surrogateescape")) == one


def _quoted(key: str) -> str:
    return quote_plus(key, safe="", errors="surrogateescape").replace("~", "%7E")
