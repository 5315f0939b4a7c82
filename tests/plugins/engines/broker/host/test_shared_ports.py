"""One port for WebSocket and several listeners: the path says which one a client means."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from kernel import EnginePlan
from kernel.contracts.errors import KernelError
from kernel.contracts.kinds import EngineSetup
from kernel.plugins import PluginRegistry
from kernel.testing.fixtures import KernelFactory, kernel_factory
from kernel.topology.system import Kernel
from plugins.engines.broker.host.options import ManyListenersOptions
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.packets import Connack, Disconnect
from tests.plugins.engines.mqtt.raw_client import TIMEOUT, connect_packet
from tests.plugins.engines.stomp.raw_client import frame
from tests.ports import free_port
from tests.secure_web import secure_web_client

__all__ = ["kernel_factory"]

STOMP_LOGIN = frame("CONNECT", accept_version="1.2", host="/", login="guest", passcode="guest")


def make(
    kernels: KernelFactory, port: int, transport: str = "ws", *more: dict[str, Any], **both: Any
) -> Kernel:
    """Start a broker with MQTT at /mqtt and STOMP at /stomp of one port, and more listeners."""
    listeners = [
        {"protocol": name, "address": f"{transport}://127.0.0.1:{port}/{name}", **both}
        for name in ("mqtt", "stomp")
    ]
    options = {"listeners": [*listeners, *more]}
    return kernels(EnginePlan(name="broker", kind="broker", options=options))


def mqtt(client: ClientConnection) -> bytes:
    """Log in over MQTT; return the answer."""
    client.send(encode(connect_packet(4), 4))
    return bytes(client.recv(TIMEOUT))  # type: ignore[arg-type]  # binary


def stomp(client: ClientConnection) -> bytes:
    """Log in over STOMP; return the answer."""
    client.send(STOMP_LOGIN)
    return bytes(client.recv(TIMEOUT))  # type: ignore[arg-type]  # binary


def open_at(port: int, path: str, *subprotocols: Any) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{port}/{path}", subprotocols=subprotocols or None, open_timeout=TIMEOUT)


def test_the_path_chooses_the_protocol(kernel_factory: KernelFactory) -> None:
    port = free_port()
    kernel = make(kernel_factory, port)
    assert kernel.address_of("broker") == f"127.0.0.1:{port}, 127.0.0.1:{port}"
    with open_at(port, "mqtt", "mqtt") as one, open_at(port, "stomp?page=1", "v12.stomp") as two:
        assert (one.subprotocol, two.subprotocol) == ("mqtt", "v12.stomp")
        assert mqtt(one) == encode(Connack(), 4)
        assert stomp(two).startswith(b"CONNECTED\n")
        assert [row["client"].split()[0] for row in kernel.inspect("connections").rows] == ["MQTT", "STOMP"]
    with pytest.raises(InvalidStatus, match="404"):
        open_at(port, "amqp")
    with pytest.raises(InvalidStatus, match="400"):
        open_at(port, "stomp", "mqtt")
    (engine,) = kernel.statistics().engines
    assert engine.counters["accepted"] == 4, "each counts once"


def test_each_path_has_its_own_rules(kernel_factory: KernelFactory) -> None:
    """A text message is for STOMP, and MQTT has none [MQTT-6.0.0-1]."""
    port = free_port()
    make(kernel_factory, port)
    with open_at(port, "mqtt") as one, open_at(port, "stomp") as two:
        two.send(STOMP_LOGIN.decode())
        assert bytes(two.recv(TIMEOUT)).startswith(b"CONNECTED\n")  # type: ignore[arg-type]  # binary
        one.send("text")
        with pytest.raises(ConnectionClosed, match="1003"):
            one.recv(TIMEOUT)


def test_each_path_has_its_own_limit_of_connections(kernel_factory: KernelFactory) -> None:
    port = free_port()
    one_more = {"protocol": "mqtt", "address": f"ws://127.0.0.1:{port}/one", "max_connections": 1}
    kernel = make(kernel_factory, port, "ws", one_more)
    with open_at(port, "one") as first, open_at(port, "one") as second, open_at(port, "mqtt") as other:
        assert mqtt(first) == encode(Connack(), 4)
        with pytest.raises(ConnectionClosed):
            second.recv(TIMEOUT)
        assert mqtt(other) == encode(Connack(), 4)
        (engine,) = kernel.statistics().engines
        assert (engine.counters["accepted"], engine.counters["refused"]) == (3, 1)
        first.send(encode(Disconnect(), 4))
        with pytest.raises(ConnectionClosed):
            first.recv(TIMEOUT)
    with open_at(port, "one") as third:
        assert mqtt(third) == encode(Connack(), 4)


def test_tls_is_for_all_paths(kernel_factory: KernelFactory, tmp_path: Path) -> None:
    certificate = tmp_path / "server.pem"
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
    port = free_port()
    tls = {"certificate": str(certificate)}
    make(kernel_factory, port, "wss", tls=tls)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with secure_web_client(f"wss://127.0.0.1:{port}/stomp", context, TIMEOUT) as client:
        client.send(STOMP_LOGIN)
        assert client.recv(TIMEOUT).startswith(b"CONNECTED\n")


def test_listeners_that_share_a_port_have_the_same_tls(tmp_path: Path) -> None:
    certificate = tmp_path / "server.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
    listeners: tuple[dict[str, Any], ...] = (
        {"protocol": "mqtt", "address": "ws://127.0.0.1:1/mqtt"},
        {
            "protocol": "stomp",
            "address": "wss://127.0.0.1:1/stomp",
            "tls": {"certificate": str(certificate)},
        },
    )
    registry = PluginRegistry.load()
    setup = EngineSetup(
        name="broker",
        options=ManyListenersOptions(listeners=listeners),
        make_protocol=lambda name, options, side: None,
        kinds=registry.kinds,
    )
    with pytest.raises(KernelError, match="share a port, and so TLS"):
        registry.kind("engines", "broker").create(setup)


@pytest.mark.parametrize("address", ["ws://127.0.0.1:1/mqtt", "tcp://127.0.0.1:1"])
def test_a_port_is_not_shared_without_another_path(kernel_factory: KernelFactory, address: str) -> None:
    listeners = [
        {"protocol": "mqtt", "address": "ws://127.0.0.1:1/mqtt"},
        {"protocol": "stomp", "address": address},
    ]
    with pytest.raises(KernelError, match="listens at .* too"):
        kernel_factory(EnginePlan(name="broker", kind="broker", options={"listeners": listeners}))


def test_two_engines_do_not_share_a_port(kernel_factory: KernelFactory) -> None:
    plans = [
        EnginePlan(
            name=name,
            kind="broker",
            options={"listeners": [{"protocol": "mqtt", "address": f"ws://127.0.0.1:1/{name}"}]},
        )
        for name in ("one", "two")
    ]
    with pytest.raises(KernelError, match="listens at .* too"):
        kernel_factory(*plans)
