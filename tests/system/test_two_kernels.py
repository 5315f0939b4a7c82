"""Every sort of message between two kernels, over every transport."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import trustme

from kernel.contracts.errors import PlanError, TimedOut
from kernel.contracts.loan import lend
from kernel.contracts.message import Envelope, Message
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan, Plan
from kernel.topology.system import Kernel
from tests.events import Events
from tests.system.conftest import Certificates, Transport, dialler, listener, route


def feed(
    kernel_factory: KernelFactory, transport: Transport, **options: Any
) -> tuple[Kernel, Kernel, Any, Any]:
    """A sender that dials and a receiver that listens."""
    receiving = kernel_factory(transport.listener(), route("net", "app", **options))
    sending = kernel_factory(transport.dialler(receiving), route("app", "net", **options))
    return sending, receiving, sending.open("app"), receiving.open("app")


def receive_all(channel: Any, count: int) -> list[bytes]:
    got: list[bytes] = []
    while len(got) < count:
        got += map(bytes, channel.receive_many(timeout=60))
    return got


def test_single_messages_and_batches_of_all_sizes(
    kernel_factory: KernelFactory, transport: Transport
) -> None:
    _, _, a, b = feed(kernel_factory, transport)
    sizes = [0, 1, 10, 254, 255, 256, 5000, 70_000, 1_000_000]
    for size in sizes:
        a.send(bytes([size % 251]) * size)
    a.send_many([b"%d" % number for number in range(20_000)])
    expected = [bytes([size % 251]) * size for size in sizes] + [b"%d" % number for number in range(20_000)]
    assert receive_all(b, len(expected)) == expected


def test_parts_keys_and_properties(kernel_factory: KernelFactory, transport: Transport) -> None:
    _, _, a, b = feed(kernel_factory, transport)
    a.send(b"1", key="fruit.apple")
    a.send_parts([b"x" * 300, b"", b"z"], key="parts")
    a.send_message(
        Message(b"2", Envelope(key="k", exchange="e", reply_to="r", priority=7, properties={"type": "t"}))
    )
    assert b.receive_message(60).key == "fruit.apple"
    parts = b.receive_message(60)
    assert (tuple(map(bytes, parts.parts)), parts.key) == ((b"x" * 300, b"", b"z"), "parts")
    envelope = b.receive_message(60).envelope
    assert (envelope.key, envelope.exchange, envelope.reply_to, envelope.priority) == ("k", "e", "r", 7)
    assert envelope.properties["type"] == "t"


def test_questions_and_answers(kernel_factory: KernelFactory, transport: Transport) -> None:
    serving = kernel_factory(
        transport.listener(stamp_reply_to=True),
        route("net", "server"),
        route("server", "net", router="reply"),
    )
    asking = [
        kernel_factory(transport.dialler(serving), route("app", "net"), route("net", "app")) for _ in range(3)
    ]
    server = serving.open("server")
    clients = [kernel.open("app") for kernel in asking]
    for number, client in enumerate(clients):
        client.send(b"question %d" % number)
    for _ in clients:
        question = server.receive_message(60)
        server.reply(question, bytes(question.body).replace(b"question", b"answer"))
    assert [bytes(client.receive(60)) for client in clients] == [b"answer %d" % number for number in range(3)]


def test_confirmation_travels_back_to_the_sender(kernel_factory: KernelFactory, transport: Transport) -> None:
    _, _, a, b = feed(kernel_factory, transport, confirm=True)
    a.send_many([b"%d" % number for number in range(1000)])
    with pytest.raises(TimedOut):
        a.wait_confirmed(0.05)
    assert len(receive_all(b, 1000)) == 1000
    with pytest.raises(TimedOut):
        b.receive(0)
    a.wait_confirmed(60)


def test_a_sender_that_comes_after_the_connection_is_confirmed_too(kernel_factory: KernelFactory) -> None:
    receiving = kernel_factory(listener(), route("net", "app", confirm=True))
    events = Events()
    sending = kernel_factory(
        dialler(f"backend+tcp://{receiving.address_of('net')}"),
        route("plain", "net"),
        route("app", "net", confirm=True),
        on_event=events,
    )
    events.wait("connected")
    b = receiving.open("app")
    sending.open("plain", api="native").send_many([b"x"] * 10)
    assert len(receive_all(b, 10)) == 10
    a = sending.open("app")
    a.send_many([b"1", b"2"])
    with pytest.raises(TimedOut):
        a.wait_confirmed(0.05)
    assert receive_all(b, 2) == [b"1", b"2"]
    with pytest.raises(TimedOut):
        b.receive(0)
    a.wait_confirmed(60)


def test_subscriptions_travel_to_the_sender(kernel_factory: KernelFactory) -> None:
    sending = kernel_factory(listener(), route("app", "net", router="by-key"))
    options = {"protocol": {"subscriptions": ["fruit.*", "prefix:st"]}}
    events = Events()
    receiving = kernel_factory(
        dialler(f"backend+tcp://{sending.address_of('net')}", **options), route("net", "app"), on_event=events
    )
    events.wait("connected")
    a, b = sending.open("app"), receiving.open("app")
    got: list[bytes] = []
    while not got:  # a subscription takes its time to travel
        a.send(b"?", key="fruit.first")
        try:
            got.append(bytes(b.receive(0.05)))
        except TimedOut:
            pass
    for key in ("fruit.apple", "iron", "stone", "fruit.a.b"):
        a.send(key.encode(), key=key)
    while got[-1] != b"stone":
        got.append(bytes(b.receive(60)))
    assert [body for body in got if body != b"?"] == [b"fruit.apple", b"stone"]


def test_a_lent_buffer_is_given_back_when_it_is_written(
    kernel_factory: KernelFactory, transport: Transport
) -> None:
    _, _, a, b = feed(kernel_factory, transport)
    returned = threading.Event()
    a.send(lend(bytearray(b"x" * 3_000_000), returned.set))
    assert bytes(b.receive(60)) == b"x" * 3_000_000
    assert returned.wait(60)


def test_many_connections_each_have_their_own_stream(kernel_factory: KernelFactory) -> None:
    receiving = kernel_factory(listener(), route("net", "app"))
    address = f"backend+tcp://{receiving.address_of('net')}"
    names = [f"d{number}" for number in range(20)]
    plans: list[Any] = [dialler(address, name=name) for name in names]
    sending = kernel_factory(*plans, *(route(f"app-{name}", name) for name in names))
    b = receiving.open("app")
    for name in names:
        sending.open(f"app-{name}", api="native").send_many(
            [b"%s %d" % (name.encode(), at) for at in range(50)]
        )
    got = receive_all(b, 1000)
    for name in names:
        mine = [body for body in got if body.startswith(name.encode() + b" ")]
        assert mine == [b"%s %d" % (name.encode(), at) for at in range(50)]


# ---------------------------------------------------------------------- TLS


@pytest.mark.parametrize(
    "tls",
    [
        {"authorities": "ca"},
        {"authorities": "ca", "certificate": "stranger"},
        {"certificate": "client"},
        {"authorities": "ca", "certificate": "client", "server_name": "elsewhere.example"},
    ],
    ids=["no certificate", "a stranger's certificate", "unknown authority", "wrong name"],
)
def test_tls_peers_that_cannot_prove_who_they_are_get_nothing(
    kernel_factory: KernelFactory, certificates: Certificates, tls: dict[str, str]
) -> None:
    files = {"ca": certificates.authorities, "client": certificates.client, "stranger": certificates.stranger}
    server_events, events = Events(), Events()
    server_tls = {
        "certificate": certificates.server,
        "authorities": certificates.authorities,
        "require_client_certificate": True,
    }
    receiving = kernel_factory(
        listener(address="backend+tls://127.0.0.1:0", tls=server_tls),
        route("net", "app"),
        on_event=server_events,
    )
    kernel_factory(
        dialler(
            f"backend+tls://{receiving.address_of('net')}",
            tls={name: files.get(value, value) for name, value in tls.items()},
        ),
        route("app", "net"),
        on_event=events,
    )
    events.wait("retrying")
    assert events.count("connected") == 0
    assert server_events.count("connected") == 0


def test_a_tls_listener_without_a_certificate_is_refused(kernel_factory: KernelFactory) -> None:
    with pytest.raises(PlanError, match="a listener of tls needs tls.certificate"):
        kernel_factory(listener(address="backend+tls://127.0.0.1:0"))


# ---------------------------------------------------------------------- old peers


def test_kernels_may_speak_the_old_format_to_each_other(kernel_factory: KernelFactory) -> None:
    old = {"protocol": {"format": "0.x"}}
    receiving = kernel_factory(listener(**old), route("net", "app"))
    sending = kernel_factory(
        dialler(f"backend+tcp://{receiving.address_of('net')}", **old), route("app", "net")
    )
    a, b = sending.open("app"), receiving.open("app")
    a.send(b"1", key="lost on the way")
    a.send_parts([b"2", b"3"])
    assert [b.receive_message(60), b.receive_message(60)] == [Message(b"1"), Message(b"23")]


def test_an_unknown_protocol_in_an_address_fails_visibly(kernel_factory: KernelFactory) -> None:
    events = Events()
    plan = EnginePlan(
        name="net", kind="stream", options={"address": "bakend+tcp://127.0.0.1:0", "mode": "listen"}
    )
    kernel_factory(on_event=events).add_engine(plan)
    assert "backend" in events.wait("failed").detail


def test_a_tls_dialler_without_a_host_asks_for_localhost(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(
        str(tmp_path / "server.pem")
    )
    server = listener(address="backend+tls://127.0.0.1:0", tls={"certificate": str(tmp_path / "server.pem")})
    app = EnginePlan(name="app", kind="native")
    with Kernel(Plan(engines=(server, app), routes=(route("net", "app"),))) as receiving:
        receiving.wait_running()
        port = receiving.address_of("net").rpartition(":")[2]
        client = dialler(f"backend+tls://:{port}", tls={"authorities": str(tmp_path / "ca.pem")})
        with Kernel(Plan(engines=(client, app), routes=(route("app", "net"),))) as sending:
            sending.open("app").send(b"hello", timeout=60)
            assert receiving.open("app").receive(60) == b"hello"
