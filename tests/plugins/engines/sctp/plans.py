"""Engines of SCTP on loopback, quick to notice what happens."""

from __future__ import annotations

from typing import Any

from kernel.topology.plan import EnginePlan

QUICK = {
    "rto_initial": 0.1,
    "rto_least": 0.05,
    "rto_most": 0.5,
    "sack_delay": 0.01,
    "heartbeat": 0.3,
    "association_tries": 20,  # a busy machine is no dead peer
}
RECONNECT = {"first": 0.01, "most": 0.05}
ANY = "127.0.0.1:0/0"


def listener(place: str | None = None, *, framing: str = "backend", **options: Any) -> EnginePlan:
    address = f"{framing}+sctp://{place or ANY}"
    return EnginePlan(
        name="net", kind="sctp", options={"address": address, "mode": "listen", "sctp": QUICK, **options}
    )


def dialler(place: str, *, framing: str = "backend", **options: Any) -> EnginePlan:
    address = f"{framing}+sctp://{place}"
    return EnginePlan(
        name="net",
        kind="sctp",
        options={"address": address, "sctp": QUICK, "reconnect": RECONNECT, **options},
    )
