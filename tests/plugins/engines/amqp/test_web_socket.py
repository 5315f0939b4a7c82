"""AMQP over WebSocket: with the package ``websockets`` at the other end, and with our own client engine."""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme
import websockets.sync.client as websockets
from websockets.exceptions import InvalidStatus

from kernel import EnginePlan, Kernel
from kernel.contracts.message import Envelope, batch_of
from kernel.testing.fixtures import KernelFactory
from plugins.engines.amqp.front_end import make_amqp_engine
from plugins.engines.amqp.options import AmqpOptions
from plugins.protocols.amqp091.connection import ClientConnection
from plugins.protocols.amqp091.events import ChannelOpened, ConnectionOpened, Delivered, Event
from plugins.protocols.amqp091.methods import basic, queue
from plugins.protocols.amqp091.options import ClientOptions
from tests.plugins.engines.amqp_client.conftest import TIMEOUT, Client, broker_plan
from tests.secure_web import SecureWebClient, secure_web_client


def place(kernel: Kernel) -> str:
    return kernel.address_of("broker")


@pytest.fixture
def certificates(tmp_path: Path) -> dict[str, str]:
    authority = trustme.CA()
    files = {"authorities": str(tmp_path / "authority.pem"), "certificate": str(tmp_path / "server.pem")}
    authority.cert_pem.write_to_path(files["authorities"])
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(files["certificate"])
    return files


class WebClient:
    """An AMQP client whose bytes go in WebSocket messages of an arbitrary size."""

    def __init__(self, wire: websockets.ClientConnection | SecureWebClient) -> None:
        self.wire = wire
        self.connection = ClientConnection(ClientOptions(heartbeat=0), 0.0)
        self.wait_for(ConnectionOpened)
        self.connection.open_channel(1)
        self.wait_for(ChannelOpened)

    def write(self) -> None:
        octets = b"".join(map(bytes, self.connection.data_to_send()))
        for start in range(0, len(octets), 1000):
            self.wire.send(octets[start : start + 1000])

    def wait_for(self, kind: type[Event]) -> list[Event]:
        while True:
            self.write()
            data = self.wire.recv(60)
            assert isinstance(data, bytes)
            events = self.connection.receive_data(data, 0.0)
            if any(isinstance(event, kind) for event in events):
                return events


Connect = Callable[..., WebClient]


@pytest.fixture
def web_client() -> Iterator[Connect]:
    with ExitStack() as stack:

        def make(url: str, **options: Any) -> WebClient:
            return WebClient(
                stack.enter_context(websockets.connect(url, proxy=None, open_timeout=60, **options))
            )

        yield make


def publish_and_consume(client: WebClient) -> None:
    body = bytes(range(256)) * 2000
    client.connection.send_method(1, queue.Declare(queue="q"))
    client.connection.publish(1, batch_of([body], Envelope(key="q")))
    client.connection.send_method(1, basic.Consume(queue="q", no_ack=True))
    delivered = [event for event in client.wait_for(Delivered) if isinstance(event, Delivered)]
    assert bytes(delivered[0].batch.bodies[0]) == body


def test_the_engine_amqp_listens_for_web_sockets(kernel_factory: KernelFactory, web_client: Connect) -> None:
    kernel = kernel_factory(broker_plan("amqp+ws://127.0.0.1:0/broker"))
    client = web_client(f"ws://{place(kernel)}/broker", subprotocols=["amqp"])
    assert client.wire.subprotocol == "amqp"
    publish_and_consume(client)
    (row,) = kernel.inspect("connections").rows
    assert (row["user"], row["ssl"]) == ("guest", False), "it counts as a client of this machine"


def test_wss_is_tls_and_web_socket(kernel_factory: KernelFactory, certificates: dict[str, str]) -> None:
    tls = {"certificate": certificates["certificate"]}
    kernel = kernel_factory(broker_plan("amqp+wss://127.0.0.1:0/broker", tls=tls))
    context = ssl.create_default_context(cafile=certificates["authorities"])
    with secure_web_client(f"wss://{place(kernel)}/broker", context, TIMEOUT) as wire:
        publish_and_consume(WebClient(wire))
        assert [row["ssl"] for row in kernel.inspect("connections").rows] == [True]


def test_clients_of_a_broker_meet_whatever_they_come_over(
    kernel_factory: KernelFactory, web_client: Connect
) -> None:
    listeners = [
        {"protocol": "amqp", "address": "tcp://127.0.0.1:0"},
        {"protocol": "amqp", "address": "ws://127.0.0.1:0/amqp", "web": {"origins": ["https://example.org"]}},
    ]
    kernel = kernel_factory(EnginePlan(name="broker", kind="broker", options={"listeners": listeners}))
    _, web = place(kernel).split(", ")
    publish_and_consume(web_client(f"ws://{web}/amqp", origin="https://example.org"))
    for options, status in (
        ({"origin": "https://evil.example"}, "403"),
        ({"subprotocols": ["mqtt"]}, "400"),
    ):
        with pytest.raises(InvalidStatus, match=status):
            web_client(f"ws://{web}/amqp", **options)
    with pytest.raises(InvalidStatus, match="404"):
        web_client(f"ws://{web}/other")


def test_a_client_that_does_not_shake_hands_in_time_is_refused(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(broker_plan("amqp+ws://127.0.0.1:0", handshake_seconds=0.1))
    host, _, port = place(kernel).partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as silent:
        assert silent.recv(1) == b""


@pytest.mark.parametrize("transport", ["ws", "wss"])
def test_the_client_engine_dials(
    kernel_factory: KernelFactory, certificates: dict[str, str], transport: str
) -> None:
    secret = transport == "wss"
    tls = {"certificate": certificates["certificate"]} if secret else {}
    broker = kernel_factory(
        broker_plan(f"amqp+{transport}://127.0.0.1:0/broker", tls=tls, queues=[{"name": "q"}])
    )
    client = Client(
        kernel_factory,
        f"amqp+{transport}://{place(broker)}/broker",
        tls={"authorities": certificates["authorities"]} if secret else {},
        web={"subprotocols": ["amqp"]},
        exchange="",
        key="q",
        consume=[{"queue": "q"}],
    )
    out, into = client.kernel.open("out"), client.kernel.open("in")
    for body in (b"small", b"x" * 1_000_000):
        out.send(body, timeout=TIMEOUT)
        assert bytes(into.receive(TIMEOUT)) == body


def test_without_the_extra_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "kernel.hosting.web_socket", raising=False)
    monkeypatch.setitem(sys.modules, "wsproto", None)
    with pytest.raises(ValueError, match=r"messaging-kernel\[web\]"):
        make_amqp_engine("broker", AmqpOptions(address="amqp+ws://127.0.0.1:0"))
