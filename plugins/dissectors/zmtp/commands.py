"""Greetings and commands of ZMTP 3.x: what they say (23/ZMTP, 24/ZMTP-PLAIN, 37/ZMTP)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kernel.contracts.errors import RemoteProtocolError


def of_greeting(greeting: bytes) -> dict[str, Any]:
    """Return what 64 bytes of greeting say."""
    mechanism = greeting[12:32].rstrip(b"\0").decode("ascii", "replace")
    return {
        "version": f"{greeting[10]}.{greeting[11]}",
        "mechanism": mechanism,
        "as_server": bool(greeting[32]),
    }


def split(body: bytes) -> tuple[str, bytes]:
    """Return a command's name and data."""
    end = 1 + body[0] if body else 0
    if end < 2 or len(body) < end:
        raise RemoteProtocolError("a command without a name")
    return body[1:end].decode("ascii", "replace"), body[end:]


def of_command(name: str, data: bytes) -> dict[str, Any]:
    """Return what a command says; never a password."""
    if name in ("READY", "INITIATE"):
        return dict(_metadata(data))
    if name == "HELLO" and data and len(data) > data[0] + 1:  # PLAIN; CURVE's is encrypted
        user, password = data[1 : 1 + data[0]], data[1 + data[0] :]
        if len(password) == 1 + password[0]:
            return {"username": user.decode(errors="replace"), "password": "(not shown)"}
    if name in ("SUBSCRIBE", "CANCEL"):
        return {"topic": data.decode(errors="replace")}
    if name == "ERROR" and data:
        return {"reason": data[1 : 1 + data[0]].decode(errors="replace")}
    if name == "PING" and len(data) >= 2:
        return {"ttl_seconds": int.from_bytes(data[:2], "big") / 10}
    return {"bytes": len(data)} if data else {}


def _metadata(data: bytes) -> Iterator[tuple[str, str]]:
    """Give names and values (one byte of length, four bytes of length)."""
    at = 0
    while at < len(data):
        middle = at + 1 + data[at]
        end = middle + 4 + int.from_bytes(data[middle : middle + 4], "big")
        if len(data) < end or len(data) < middle + 4:
            raise RemoteProtocolError("metadata that do not fill their command")
        yield (
            data[at + 1 : middle].decode("ascii", "replace"),
            data[middle + 4 : end].decode(errors="replace"),
        )
        at = end
