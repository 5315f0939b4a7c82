"""Pairs of ends, and bytes of ZMTP written by hand from 13/, 15/, 23/, 24/ and 37/ZMTP."""

from __future__ import annotations

from typing import Any

from kernel.contracts.message import Batch
from kernel.contracts.protocol import Side
from kernel.testing.protocol_checks import carry, written
from plugins.protocols.zmtp.connection import ZmtpConnection
from plugins.protocols.zmtp.options import ZmtpOptions

SIGNATURE = bytes.fromhex("ff 00 00 00 00 00 00 00 01 7f")
NULL, PLAIN = (name + bytes(16 - len(name) + 4) for name in (b"NULL", b"PLAIN"))


def greeting(minor: int = 1, mechanism: bytes = NULL, as_server: int = 0) -> bytes:
    return SIGNATURE + bytes((3, minor)) + mechanism + bytes((as_server,)) + bytes(31)


def ready(kind: bytes) -> bytes:
    """READY with one property: Socket-Type."""
    body = b"\x05READY" + b"\x0bSocket-Type" + b"\0\0\0" + bytes((len(kind),)) + kind
    return bytes((4, len(body))) + body


def make(kind: str, side: Side = "server", **options: Any) -> ZmtpConnection:
    end = ZmtpConnection(ZmtpOptions(type=kind, **options), side)  # type: ignore[arg-type]
    end.handle_timeout(0.0)
    return end


def told(kind: str, peer: bytes, minor: int = 1, **options: Any) -> ZmtpConnection:
    """An end whose peer has said greeting and READY."""
    end = make(kind, **options)
    end.receive_data(greeting(minor) + ready(peer), 0.0)
    assert end.ready_to_send()
    end.data_to_send()
    return end


def opened(client: str, server: str, **options: Any) -> tuple[ZmtpConnection, ZmtpConnection]:
    ends = make(client, "client", **options), make(server, "server", **options)
    carry(*ends, 0.0)
    assert all(end.ready_to_send() for end in ends)
    return ends


def plain(batches: list[Batch]) -> list[Any]:
    """Bodies and keys, without the borders of batches."""
    return [
        (tuple(map(bytes, body)) if batch.multipart else bytes(body), batch.envelope.key)
        for batch in batches
        for body in batch.bodies
    ]


__all__ = [
    "NULL",
    "PLAIN",
    "SIGNATURE",
    "carry",
    "greeting",
    "make",
    "opened",
    "plain",
    "ready",
    "told",
    "written",
]
