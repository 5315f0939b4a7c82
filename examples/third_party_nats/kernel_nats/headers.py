"""Headers: ``NATS/1.0``, lines of names and values, an empty line.  Here they are a dict of strings, or of lists of strings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VERSION = b"NATS/1.0"
NO_RESPONDERS = VERSION + b" 503\r\n\r\n"


def decode(block: bytes) -> dict[str, Any]:
    """Return what is in a block; ``ValueError`` for what is none.  A name that repeats has a list of values."""
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
    """Return a block; empty if no header can be said.

    Text, numbers and lists of these can.  The rest, which comes from other protocols, is left out, and so is what would end a
    line: nobody is to put a second header, or a message, into the value of a header.
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
