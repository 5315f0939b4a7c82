"""Protocols that are told of their connection, and that go over to TLS in the middle of it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kernel import hookimpl
from kernel.contracts.errors import LocalProtocolError, RemoteProtocolError
from kernel.contracts.kinds import ProtocolKind
from kernel.contracts.message import Batch, Buffer, batch_of
from kernel.contracts.protocol import ConnectionFacts, Side
from kernel.plugins import Origin, PluginRegistry
from kernel.testing.fixtures import KernelFactory, kernel_factory
from kernel.testing.protocol_checks import PROTOCOL_CHECKS, ProtocolSubject
from kernel.topology.plan import EnginePlan, RoutePlan
from kernel.topology.system import Kernel
from tests.events import Events
from tests.line_protocol import LineProtocol
from tests.system.conftest import Certificates, certificates

__all__ = ["certificates", "kernel_factory"]


class Secret(LineProtocol):
    """Lines, after a first one in the clear: the client asks for TLS, and the server agrees."""

    made: list[Secret] = []

    def __init__(self, side: Side) -> None:
        super().__init__()
        self.facts: list[ConnectionFacts] = []
        self._side = side
        self._wants = self._secret = False
        self.made.append(self)

    # Told, UpgradesToTls

    def on_connection(self, facts: ConnectionFacts) -> None:
        self.facts.append(facts)
        facts.shared["conversations"] = facts.shared.get("conversations", 0) + 1
        if self._side == "client":
            self._out.append(b"tls?\n")

    def wants_tls(self) -> bool:
        return self._wants

    def tls_started(self, facts: ConnectionFacts, now: float) -> None:
        self.facts.append(facts)
        self._wants, self._secret = False, True

    # StreamProtocol

    def receive_data(self, data: Buffer, now: float) -> list[Batch]:
        lines = self.lines(data)
        if lines and not self._secret:
            expected = b"tls?" if self._side == "server" else b"tls!"
            if lines != [expected] or self._data or self._wants:
                raise RemoteProtocolError("more in the clear than the request")
            if self._side == "server":
                self._out.append(b"tls!\n")
            self._wants, lines = True, []
        if len(self._data) > 100_000:
            raise RemoteProtocolError("a line without end")
        return [batch_of(lines)] if lines else []

    def receive_eof(self, now: float) -> None:
        if self._data:
            raise RemoteProtocolError("in the middle of a line")
        super().receive_eof(now)

    def send_batches(self, batches: Sequence[Batch], now: float) -> None:
        if not self.ready_to_send():
            raise LocalProtocolError("it is not open")
        super().send_batches(batches, now)

    def ready_to_send(self) -> bool:
        return self._secret and not self._closed


class Plugin:
    @hookimpl
    def register_protocols(self) -> Iterable[ProtocolKind]:
        yield ProtocolKind(name="secret", summary="for tests", create=lambda options, side: Secret(side))


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> list[Secret]:
    """All conversations of the test, without those that engines make to try their options."""
    monkeypatch.setattr(Secret, "made", [])
    return Secret.made


def registry() -> PluginRegistry:
    made = PluginRegistry.load()
    made.add(Plugin(), Origin("secret", "test", "1.0"))
    return made


def kernel(make: KernelFactory, events: Events | None = None, **options: Any) -> Kernel:
    plan = (
        EnginePlan(name="net", kind="stream", options=options),
        EnginePlan(name="app", kind="native"),
        RoutePlan(source="net", targets=("app",)),
        RoutePlan(source="app", targets=("net",)),
    )
    return make(*plan, registry=registry(), on_event=events)


def test_both_ends_go_over_to_tls_and_know_each_other_then(
    kernel_factory: KernelFactory, certificates: Certificates, secret: list[Secret]
) -> None:
    trust = {"authorities": certificates.authorities}
    server = kernel(
        kernel_factory,
        address="secret+tcp://127.0.0.1:0",
        mode="listen",
        tls={"certificate": certificates.server, "require_client_certificate": True, **trust},
    )
    place = server.address_of("net")
    client = kernel(
        kernel_factory, address=f"secret+tcp://{place}", tls={"certificate": certificates.client, **trust}
    )
    here, there = client.open("app"), server.open("app")
    here.send(b"question")
    assert bytes(there.receive(60)) == b"question"
    there.send(b"answer" * 100)
    assert bytes(here.receive(60)) == b"answer" * 100
    clear, protected = next(each.facts for each in secret if each.facts and each.facts[0].local == place)
    assert (clear.encrypted, clear.certificate, clear.subject) == (False, None, "")
    assert protected.encrypted
    assert protected.certificate is not None
    shown = Path(certificates.client).read_text()
    assert ssl.DER_cert_to_PEM_cert(protected.certificate).strip() in shown
    assert protected.seed != clear.seed
    assert protected.shared == {"conversations": 1}


@pytest.mark.parametrize("tls, why", [({}, "tls.certificate"), ({"certificate": "stranger"}, "no TLS: ")])
def test_an_upgrade_that_fails_ends_the_connection(
    kernel_factory: KernelFactory, certificates: Certificates, tls: dict[str, str], why: str
) -> None:
    events = Events()
    tls = {key: getattr(certificates, value) for key, value in tls.items()}
    server = kernel(kernel_factory, events, address="secret+tcp://127.0.0.1:0", mode="listen", tls=tls)
    kernel(
        kernel_factory,
        address=f"secret+tcp://{server.address_of('net')}",
        tls={"authorities": certificates.authorities},
    )
    assert why in events.wait("disconnected").detail


def test_what_is_said_in_the_clear_behind_the_request_is_refused(
    kernel_factory: KernelFactory, certificates: Certificates
) -> None:
    events = Events()
    server = kernel(
        kernel_factory,
        events,
        address="secret+tcp://127.0.0.1:0",
        mode="listen",
        tls={"certificate": certificates.server},
    )
    host, _, port = server.address_of("net").partition(":")
    with socket.create_connection((host, int(port)), 60) as peer:
        peer.sendall(b"tls?\ninjected\n")
        assert "in the clear" in events.wait("disconnected").detail


def test_conversations_of_one_listener_share_a_dict(
    kernel_factory: KernelFactory, certificates: Certificates, secret: list[Secret]
) -> None:
    server = kernel(kernel_factory, address="secret+tcp://127.0.0.1:0", mode="listen")
    host, _, port = server.address_of("net").partition(":")
    peers = [socket.create_connection((host, int(port)), 60) for _ in range(2)]
    for peer in peers:
        peer.sendall(b"rubbish\n")
        assert peer.recv(100) == b""
        peer.close()
    told = [facts for each in secret for facts in each.facts]
    assert told[0].shared is told[1].shared
    assert told[0].shared == {"conversations": 2}
    assert told[0].seed != told[1].seed
    assert {facts.peer for facts in told} == {f"127.0.0.1:{_port_of(peer)}" for peer in told}


def _port_of(facts: ConnectionFacts) -> str:
    return facts.peer.rpartition(":")[2]


@pytest.mark.parametrize("check", PROTOCOL_CHECKS, ids=lambda check: check.__name__)
def test_the_conformance_kit_plays_the_host_of_such_a_protocol(
    check: Callable[[ProtocolSubject], Any], secret: list[Secret]
) -> None:
    batches = [batch_of([b"", b"1", b"x" * 300]), batch_of([b"of one size"] * 50)]
    check(ProtocolSubject(make=lambda: (Secret("client"), Secret("server")), batches=batches, keys=False))
