"""Headers: ``NATS/1.0``, lines of names and values, an empty line.

In a message they are a dict of strings, or of lists of strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VERSION = b"NATS/1.0"
NO_RESPONDERS = VERSION + b" 503\r\n\r\n"


def decode(block: bytes) -> dict[str, Any]:
    """Return the headers of a block.  A name that repeats has a list of values.

    Raises ``ValueError`` if it is not a block of headers.
    """
    version, *lines = block.decode().split("\r\n")
    if not version.startswith("NATS/1.0") or lines[-2:] != ["", ""]:
        raise ValueError("no header block")
    headers: dict[str, Any] = {}
    for line in lines[:-2]:
        name, colon, value = line.partition(":")
        if not colon or not name:
            raise ValueError("a header without a colon")
        value = value.strip()
        before = headers.get(name)
        if before is None:
            headers[name] = value
        elif isinstance(before, list):
            before.append(value)
        else:
            headers[name] = [before, value]
    return headers


def encode(headers: Mapping[str, Any]) -> bytes:
    """Return a block; empty if no header can be expressed in NATS.

    Text, numbers and lists of these can.  Other values, which come from other protocols, are left out.  So
    are values that would end a line: with them somebody could put a second header, or a message, into the
    value of a header.
    """
    lines = []
    for name, values in headers.items():
        for value in values if isinstance(values, list) else (values,):
            if not isinstance(value, str | int | float):
                continue
            line = f"{name}: {value}"
            if ":" not in name and line.isprintable() and " " not in name:
                lines.append(line)
    return VERSION + b"\r\n" + "\r\n".join(lines).encode() + b"\r\n\r\n" if lines else b""
