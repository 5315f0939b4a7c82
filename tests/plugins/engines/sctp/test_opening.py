"""The addresses of an endpoint."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import trio

from plugins.engines.sctp.opening import resolved

THERE = (socket.AF_INET, socket.SOCK_DGRAM, 0, "", ("127.0.0.1", 0))
MISSING = (socket.AF_INET, socket.SOCK_DGRAM, 0, "", ("192.0.2.1", 0))  # RFC 5737: no system has it
MISSING_6 = (socket.AF_INET6, socket.SOCK_DGRAM, 0, "", ("2001:db8::1", 0, 0, 0))  # nor this one (RFC 3849)


@pytest.mark.parametrize(
    "found, here, theirs",
    [
        ([MISSING_6, THERE, THERE], ("127.0.0.1",), ("127.0.0.1", "2001:db8::1")),
        ([MISSING, MISSING_6], ("192.0.2.1", "2001:db8::1"), ("192.0.2.1", "2001:db8::1")),
    ],
)
def test_addresses_of_a_name_that_this_system_does_not_have_are_left_out(
    monkeypatch: pytest.MonkeyPatch, found: list[Any], here: tuple[str, ...], theirs: tuple[str, ...]
) -> None:
    """Unless it has none of them: then the first is the one that is reported."""

    async def getaddrinfo(*_: object, **__: object) -> list[Any]:
        return found

    monkeypatch.setattr(trio.socket, "getaddrinfo", getaddrinfo)

    async def main() -> None:
        assert await resolved(["name"], here=True) == here
        assert await resolved(["name"]) == theirs
        assert await resolved(["name", ""], here=True) == ("",)

    trio.run(main)
