"""What an operator sees of a stream protocol: a row for each connection, with what the protocol says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kernel import Kernel
from kernel.plugins import PluginRegistry
from kernel.testing.fixtures import KernelFactory
from plugins.protocols.backend import plugin as backend
from plugins.protocols.backend.connection import BackendConnection
from tests.events import Events
from tests.system.conftest import dialler, listener, route


class Counting(BackendConnection):
    """The backend protocol with a counter and a fact of its own."""

    reads = 0

    def receive_data(self, data: Any, now: float) -> Any:
        self.reads += 1
        return super().receive_data(data, now)

    def counters(self) -> Mapping[str, int]:
        return {"reads": self.reads}

    def status(self) -> Mapping[str, Any]:
        return {"mood": "good"}


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_create", lambda options, side: Counting(options, side))


def counted(kernel: Kernel) -> Mapping[str, Any]:
    (figures,) = [engine.counters for engine in kernel.statistics().engines if engine.name == "net"]
    return figures


@pytest.mark.usefixtures("observed")
def test_connections_are_listed_with_what_their_protocol_counts(kernel_factory: KernelFactory) -> None:
    events, ended = Events(), Events()
    # Loaded now: the protocol that `observed` has replaced is in no registry that was loaded before.
    registry = PluginRegistry.load()
    receiving = kernel_factory(listener(), route("net", "app"), on_event=ended, registry=registry)
    sending = kernel_factory(
        dialler(f"backend+tcp://{receiving.address_of('net')}"), route("app", "net"), on_event=events
    )
    events.wait("connected")
    app = receiving.open("app")
    sending.open("app").send_many([b"one", b"two", b"three"])
    got = 0
    while got < 3:
        got += len(app.receive_many(timeout=60))
    (there,) = receiving.inspect("connections").rows
    assert there["engine"] == "net"
    assert there["name"] == f"net/{there['client']}"
    assert (there["state"], there["messages_in"], there["messages_out"]) == ("running", 3, 0)
    assert there["recv_oct"] > 11
    assert there["mood"] == "good"
    assert there["reads"] >= 1
    (here,) = sending.inspect("connections").rows
    assert (here["name"], here["messages_out"]) == ("net", 3)
    assert here["client"] == f"backend+tcp://{receiving.address_of('net')}"
    before = counted(receiving)["reads"]
    sending.close()
    assert sending.join(60)
    ended.wait("disconnected")
    assert counted(receiving)["reads"] >= before, (
        "what a conversation counted stays in the sum when it has ended"
    )
    assert len(receiving.inspect("connections").rows) == 0
