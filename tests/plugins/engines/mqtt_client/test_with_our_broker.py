"""The client and our own broker, in kernels of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernel.contracts.message import Envelope, Message
from kernel.testing.fixtures import KernelFactory
from tests.plugins.engines.client_kernel import ONLY_BRIDGE, certificates
from tests.plugins.engines.mqtt_client.conftest import TIMEOUT, Client, bodies, broker_plan, receive
from tests.ports import free_port


def test_what_was_not_confirmed_comes_again_to_the_next_kernel(
    connect: Callable[..., Client], version: int
) -> None:
    """The broker keeps the session; the first application has received the messages, and confirmed none."""
    subscriptions = ({"filter": "t"},)
    first = connect(client_id="reader", version=version, subscriptions=subscriptions)
    writer = connect(client_id="writer", version=version, topic="t", qos=1)
    out = writer.open("out")
    out.send_many(bodies(0, 100), timeout=TIMEOUT)
    receive(first.open("in"), bodies(0, 100))
    out.wait_confirmed(TIMEOUT)
    first.kernel.close(linger=0)
    assert first.kernel.join(TIMEOUT)
    second = connect(client_id="reader", version=version, subscriptions=subscriptions)
    into = second.open("in")
    assert set(receive(into, bodies(0, 100))) == set(bodies(0, 100))


@pytest.mark.slow
def test_a_durable_broker_that_restarts_loses_nothing(kernel_factory: KernelFactory, tmp_path: Path) -> None:
    place = f"127.0.0.1:{free_port()}"
    data = str(tmp_path / "data")
    plan = broker_plan(place, data_dir=data)
    broker = kernel_factory(plan)
    client = Client(kernel_factory, place, topic="t", qos=2, subscriptions=({"filter": "t", "qos": 2},))
    out, into = client.open("out"), client.open("in")
    got: list[bytes] = []
    for cut in range(3):
        first = cut * 1000
        out.send_many(bodies(first, first + 500), timeout=TIMEOUT)
        got += receive(into, bodies(first, first + 10))
        broker.remove_engine("broker")
        client.events.wait("disconnected", times=cut + 1)
        out.send_many(bodies(first + 500, first + 1000), timeout=TIMEOUT)
        broker.add_engine(plan)
        client.events.wait("connected", times=cut + 2)
        got += receive(into, set(bodies(first, first + 1000)) - set(got))
    # QoS 2: once, and in order.
    assert got == bodies(0, 3000)


def test_a_message_that_the_broker_refuses_does_not_stop_others(connect: Callable[..., Client]) -> None:
    """Topics that begin with $ are the broker's own."""
    client = connect(subscriptions=({"filter": "#"},))
    out = client.open("out")
    for key in ("$SYS.mine", "a"):
        out.send_message(Message(key.encode(), Envelope(key=key, persistent=True)), timeout=TIMEOUT)
    assert bytes(client.open("in").receive(TIMEOUT)) == b"a"
    assert "Not authorized" in client.events.wait("refused").detail
    assert client.statistics()["messages_refused"] == 1


def test_a_second_client_of_the_same_identifier_is_named(connect: Callable[..., Client]) -> None:
    first = connect(client_id="twin")
    connect(client_id="twin")
    detail = first.events.wait("disconnected").detail
    assert "Session taken over" in detail
    assert "another client uses client_id 'twin': set another one here" in detail


def test_over_a_unix_socket(kernel_factory: KernelFactory, tmp_path: Path, version: int) -> None:
    place = f"{tmp_path}/mqtt"
    kernel_factory(broker_plan(f"unix://{place}"))
    client = Client(
        kernel_factory,
        f"mqtt+unix://{place}",
        version=version,
        topic="t",
        qos=1,
        subscriptions=({"filter": "t", "qos": 1},),
    )
    client.open("out").send(b"x", timeout=TIMEOUT)
    assert bytes(client.open("in").receive(TIMEOUT)) == b"x"


@pytest.mark.parametrize("transport", ["tls", "wss"])
def test_the_name_in_its_certificate_logs_it_in(
    kernel_factory: KernelFactory, tmp_path: Path, version: int, transport: str
) -> None:
    listener_tls, tls = certificates(tmp_path)
    path = "/mqtt" if transport == "wss" else ""
    plan = broker_plan(f"{transport}://127.0.0.1:0{path}", listener={"tls": listener_tls}, users=ONLY_BRIDGE)
    broker = kernel_factory(plan)
    place = broker.address_of("broker").rpartition("://")[2]
    client = Client(
        kernel_factory,
        f"mqtt+{transport}://{place}{path}",
        version=version,
        user="",
        password="",
        tls=tls,
        topic="t",
        qos=1,
        subscriptions=({"filter": "t", "qos": 1},),
    )
    client.open("out").send(b"x", timeout=TIMEOUT)
    assert bytes(client.open("in").receive(TIMEOUT)) == b"x"
    (row,) = broker.inspect("connections", TIMEOUT).rows
    assert row["user"] == "bridge"


def test_properties_reach_the_other_side(connect: Callable[..., Client]) -> None:
    client = connect(
        subscriptions=({"filter": "there/#", "qos": 1},), publish_prefix="there/", receive_prefix="b/"
    )
    properties = {"content_type": "text/plain", "correlation_id": b"7", "user_properties": (("a", "b"),)}
    envelope = Envelope(key="k.v1/2", reply_to="answers", persistent=True, properties=properties)
    client.open("out").send_message(Message(b"x", envelope), timeout=TIMEOUT)
    message = client.open("in").receive_message(TIMEOUT)
    assert message.key == "b.there.k.v1/2"
    assert message.envelope.reply_to == "answers"
    assert message.envelope.persistent
    assert {name: message.envelope.properties[name] for name in properties} == properties


def test_the_subprotocol_of_web_sockets_is_offered(kernel_factory: KernelFactory, version: int) -> None:
    """[MQTT-6.0.0-3]: this listener refuses clients that offer another one, or none."""
    kernel = kernel_factory(
        broker_plan("ws://127.0.0.1:0/mqtt", listener={"web": {"subprotocols": ("mqtt",)}})
    )
    address = kernel.address_of("broker").rpartition("://")[2]
    client = Client(
        kernel_factory,
        f"mqtt+ws://{address}/mqtt",
        version=version,
        topic="t",
        qos=1,
        subscriptions=({"filter": "t", "qos": 1},),
    )
    client.open("out").send(b"x", timeout=TIMEOUT)
    assert bytes(client.open("in").receive(TIMEOUT)) == b"x"
