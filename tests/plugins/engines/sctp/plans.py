"""Engines of SCTP on loopback, quick to notice what happens."""

from __future__ import annotations

import socket
from typing import Any

from kernel.contracts.errors import TimedOut
from kernel.topology.plan import EnginePlan
from plugins.engines.sctp.system.layout import IPPROTO_SCTP

TIMEOUT = 60
QUICK = {
    "rto_initial": 0.1,
    "rto_min": 0.05,
    "rto_max": 0.5,
    "sack_delay": 0.01,
    "heartbeat": 0.3,
    "association_tries": 20,  # a busy machine is no dead peer
}
RECONNECT = {"first": 0.01, "most": 0.05}
ANY = {"udp": "127.0.0.1:0/0", "system": "127.0.0.1:0"}


def listener(
    place: str | None = None, *, framing: str = "backend", transport: str = "udp", **options: Any
) -> EnginePlan:
    address = f"{framing}+sctp://{place or ANY[transport]}"
    settings = {"address": address, "mode": "listen", "transport": transport, "sctp": QUICK}
    return EnginePlan(name="net", kind="sctp", options={**settings, **options})


def dialler(place: str, *, framing: str = "backend", **options: Any) -> EnginePlan:
    settings = {"address": f"{framing}+sctp://{place}", "sctp": QUICK, "reconnect": RECONNECT}
    return EnginePlan(name="net", kind="sctp", options={**settings, **options})


def has_system() -> bool:
    """Whether this system has SCTP of its own."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_SCTP).close()
    except OSError:
        return False
    return True


def bodies_of(channel: Any, count: int) -> list[bytes]:
    got: list[bytes] = []
    while len(got) < count:
        got += [bytes(body) for body in channel.receive_many(timeout=TIMEOUT)]
    return got


def sent_in_time(channel: Any, body: bytes, key: str, timeout: float = 0.5) -> bool:
    try:
        channel.send(body, key=key, timeout=timeout)
    except TimedOut:
        return False
    return True
