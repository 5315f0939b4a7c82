"""Our broker and a client engine of ours, in kernels of their own, joined by a real socket."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import trustme

from kernel.pipes.water_marks import WaterMarks
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan, RoutePlan
from tests.events import Events

FAST = {"first": 0.01, "most": 0.05}
TIMEOUT = 60.0


class ClientKernel:
    """A kernel with a client engine; ``out`` feeds it, ``in`` gets what it receives."""

    def __init__(self, make: KernelFactory, kind: str, address: str, **options: Any) -> None:
        self.events = Events()
        confirm = options.pop("confirm", True)
        marks = options.pop("marks", WaterMarks(high=100_000))
        wait = options.pop("wait", True)
        parts: list[EnginePlan | RoutePlan] = [
            EnginePlan(name="client", kind=kind, options={"address": address, "reconnect": FAST, **options}),
            EnginePlan(name="out", kind="native"),
            EnginePlan(name="in", kind="native"),
            EnginePlan(name="dead", kind="native"),
            RoutePlan(
                source="out",
                targets=("client",),
                confirm=confirm,
                marks=marks,
                dead_letters="dead" if confirm else None,
            ),
        ]
        if options.get("subscriptions"):
            parts.append(RoutePlan(source="client", targets=("in",), confirm=confirm, marks=marks))
        self.kernel = make(*parts, on_event=self.events)
        if wait:
            self.events.wait("connected")

    def open(self, name: str) -> Any:
        return self.kernel.open(name, "native")

    def statistics(self) -> dict[str, Any]:
        (found,) = [engine for engine in self.kernel.statistics().engines if engine.name == "client"]
        return found.counters


def broker_of(protocol: str, address: str, name: str, **options: Any) -> EnginePlan:
    """Return a broker with a listener for a protocol; ``listener``: options of that."""
    listener = {"protocol": protocol, "address": address, **options.pop("listener", {})}
    return EnginePlan(name=name, kind="broker", options={"listeners": [listener], **options})


def certificates(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the option ``tls`` of a listener that wants certificates, and of a client that has one as ``bridge``."""
    authority = trustme.CA()
    trusted, server, bridge = (str(folder / f"{name}.pem") for name in ("authority", "server", "bridge"))
    authority.cert_pem.write_to_path(trusted)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(server)
    issued = authority.issue_cert("bridge.example", common_name="bridge")
    issued.private_key_and_cert_chain_pem.write_to_path(bridge)
    listener = {"certificate": server, "authorities": trusted, "require_client_certificate": True}
    return listener, {"certificate": bridge, "authorities": trusted}


ONLY_BRIDGE = {"bridge": {"password": "nobody knows it", "configure": ".*", "write": ".*", "read": ".*"}}
"""The users of a broker that knows ``bridge`` alone."""


def receive(app: Any, expected: Iterable[bytes]) -> list[bytes]:
    """Receive until all that is expected has come; return it with what came twice."""
    missing = set(expected)
    got: list[bytes] = []
    while missing:
        bodies = [bytes(body) for body in app.receive_many(timeout=TIMEOUT)]
        got += bodies
        missing.difference_update(bodies)
    return got


def bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]
