"""AMQP over TLS, with real clients and certificates made for the occasion."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aio_pika
import pika
import pytest
import trustme
from pika.credentials import ExternalCredentials, PlainCredentials

from kernel.contracts.engine import EngineEvent
from kernel.plugins import PluginRegistry
from kernel.topology.check import plan_of_text
from kernel.topology.plan import EnginePlan, Plan
from kernel.topology.system import Kernel
from plugins.engines.amqp.front_end import make_amqp_engine
from plugins.engines.amqp.options import AmqpOptions
from tests.events import Events

pytestmark = [pytest.mark.peer("pika"), pytest.mark.peer("aio-pika")]

AUTHORITY = trustme.CA()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A certificate of the server and the authority's own."""
    folder: Path = tmp_path_factory.mktemp("tls")
    AUTHORITY.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(
        folder / "server.pem"
    )
    AUTHORITY.cert_pem.write_to_path(folder / "authority.pem")
    return {"certificate": str(folder / "server.pem"), "authorities": str(folder / "authority.pem")}


class Tls:
    """A kernel with an AMQP server over TLS."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.events = Events()
        kernel.events.append(self.events)
        self.port = int(kernel.address_of("broker").rpartition(":")[2])

    def connect(self, credentials: Any, name: str | None = None) -> pika.BlockingConnection:
        parameters = pika.ConnectionParameters(
            "127.0.0.1",
            self.port,
            credentials=credentials,
            ssl_options=pika.SSLOptions(client_context(name), "localhost"),
        )
        return pika.BlockingConnection(parameters)


def client_context(name: str | None = None) -> ssl.SSLContext:
    """Trust the authority; with a name, show a certificate of that name."""
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    if name is not None:
        AUTHORITY.issue_cert("client.test", common_name=name).configure_cert(context)
    return context


def _kernel(tls: dict[str, Any], **options: Any) -> Kernel:
    options = {"address": "amqp+tls://127.0.0.1:0", "tls": tls, **options}
    kernel = Kernel(Plan(engines=(EnginePlan(name="broker", kind="amqp", options=options),))).start()
    kernel.wait_running()
    return kernel


@pytest.fixture
def tls(files: dict[str, str]) -> Iterator[Tls]:
    with _kernel(files) as kernel:
        yield Tls(kernel)


@pytest.fixture
def mutual(files: dict[str, str]) -> Iterator[Tls]:
    users = {"alice": {"password": "unused"}}
    with _kernel({**files, "require_client_certificate": True}, users=users) as kernel:
        yield Tls(kernel)


def test_pika_publishes_and_gets(tls: Tls) -> None:
    body = bytes(range(256)) * 4096  # many records of TLS
    with tls.connect(PlainCredentials("guest", "guest")) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.confirm_delivery()
        channel.basic_publish("", "q", body)
        assert channel.basic_get("q", auto_ack=True)[2] == body


def test_aio_pika_publishes_and_gets(tls: Tls) -> None:
    async def program() -> bytes:
        url = f"amqps://guest:guest@localhost:{tls.port}/"
        connection = await aio_pika.connect(url, ssl_context=client_context())
        async with asyncio.timeout(60), connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q")
            for number in range(300):
                await channel.default_exchange.publish(aio_pika.Message(b"%d" % number), routing_key="q")
            return b" ".join([(await queue.get(no_ack=True)).body for _ in range(300)])

    assert asyncio.run(program()) == b" ".join(b"%d" % number for number in range(300))


def test_a_client_that_never_shakes_hands_is_hung_up_on(files: dict[str, str]) -> None:
    with _kernel(files, handshake_seconds=0.3) as kernel:
        tls = Tls(kernel)
        with socket.create_connection(("127.0.0.1", tls.port), timeout=60) as silent:
            assert silent.recv(1) == b""
        assert "no TLS handshake within" in tls.events.wait("refused", "broker").detail


def test_clients_that_shake_hands_count_from_the_moment_they_are_accepted(files: dict[str, str]) -> None:
    begun, over = threading.Event(), threading.Event()

    def hold(event: EngineEvent) -> None:
        """Meanwhile the system alone accepts."""
        if event.what == "refused" and not begun.is_set():
            begun.set()
            over.wait(60)

    with _kernel(files, max_connections=2) as kernel, contextlib.ExitStack() as stack:
        tls = Tls(kernel)
        kernel.events.append(hold)

        def connect() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", tls.port), timeout=60))

        connect().sendall(b"AMQP\0\0\x09\x01")
        assert begun.wait(60)
        clients = [connect() for _ in range(5)]
        over.set()
        assert [client.recv(1) for client in clients[2:]] == [b""] * 3
        assert kernel.statistics().engines[0].counters["refused"] == 1 + 3


def test_a_client_without_tls_is_refused(tls: Tls) -> None:
    with socket.create_connection(("127.0.0.1", tls.port), timeout=60) as plain:
        plain.sendall(b"AMQP\0\0\x09\x01")
        assert "TLS handshake failed" in tls.events.wait("refused", "broker").detail


def test_the_kernel_stops_while_somebody_shakes_hands(files: dict[str, str]) -> None:
    kernel = _kernel(files)
    with socket.create_connection(("127.0.0.1", Tls(kernel).port), timeout=60) as silent:
        kernel.close()
        assert kernel.join(60)
        try:
            assert silent.recv(1) == b""
        except ConnectionResetError:  # it was still in the listener's queue
            pass


@pytest.mark.parametrize("address", ["amqp+tls://0.0.0.0:5671", "amqp+unix:///run/broker.sock"])
def test_a_topology_file_may_say_every_address(address: str, files: dict[str, str]) -> None:
    text = f'[engines.broker]\nkind = "amqp"\naddress = "{address}"\n'
    if "tls" in address:
        text += f'tls.certificate = "{files["certificate"]}"\n'
    assert plan_of_text(text, PluginRegistry.load()).engines[0].options["address"] == address


def test_an_address_of_another_protocol_is_refused() -> None:
    with pytest.raises(ValueError, match=r"begins with one of amqp\+tcp, amqp\+tls, amqp\+unix"):
        make_amqp_engine("broker", AmqpOptions(address="backend+tcp://127.0.0.1:0"))


def test_a_certificate_logs_in(mutual: Tls) -> None:
    with mutual.connect(ExternalCredentials(), "alice") as connection:
        connection.channel().queue_declare("q")


def test_a_certificate_of_an_unknown_name_does_not(mutual: Tls) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        mutual.connect(ExternalCredentials(), "mallory")


def test_without_a_certificate_there_is_no_connection(mutual: Tls) -> None:
    with pytest.raises((pika.exceptions.AMQPConnectionError, ssl.SSLError, ConnectionError)):
        mutual.connect(PlainCredentials("alice", "unused"))


def _first_octet(port: int, context: ssl.SSLContext) -> bytes:
    """Return what a server answers first.  With TLS 1.3 a client learns only then that it was refused."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as wrapped,
    ):
        wrapped.sendall(b"AMQP\0\0\x09\x01")
        return wrapped.recv(1)


def test_certificates_may_be_optional(files: dict[str, str]) -> None:
    stranger = ssl.create_default_context()
    AUTHORITY.configure_trust(stranger)
    trustme.CA().issue_cert("client.test", common_name="alice").configure_cert(stranger)
    users = {"alice": {"password": "secret"}}
    with _kernel({**files, "request_client_certificate": True}, users=users) as kernel:
        tls = Tls(kernel)
        for credentials, name in (
            (ExternalCredentials(), "alice"),
            (PlainCredentials("alice", "secret"), None),
            (PlainCredentials("alice", "secret"), "alice"),
        ):
            with tls.connect(credentials, name) as connection:
                connection.channel().queue_declare("q")
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            tls.connect(ExternalCredentials())
        with pytest.raises((ssl.SSLError, ConnectionError)):
            _first_octet(tls.port, stranger)


def test_external_is_not_offered_where_no_certificate_was_verified(tls: Tls) -> None:
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        tls.connect(ExternalCredentials(), "alice")
