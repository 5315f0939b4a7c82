"""The client and our own broker, in kernels of their own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from kernel.contracts.errors import TimedOut
from kernel.contracts.message import Envelope, Message
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan
from tests.interop.until import until
from tests.plugins.engines.client_kernel import ONLY_BRIDGE, certificates
from tests.plugins.engines.stomp_client.conftest import TIMEOUT, Client, bodies, broker_plan, receive
from tests.ports import free_port

QUEUE: tuple[dict[str, Any], ...] = ({"destination": "/queue/q"},)


@pytest.mark.parametrize("ack", ["client", "client-individual"])
@pytest.mark.parametrize("receipts", ["auto", "each"])
def test_there_and_back_in_every_version(
    connect: Callable[..., Client], version: str, ack: str, receipts: str
) -> None:
    client = connect(
        versions=(version,),
        receipts=receipts,
        destination="/queue/q",
        subscriptions=({"destination": "/queue/q", "ack": ack, "prefetch": 50},),
    )
    out, into = client.open("out"), client.open("in")
    out.send_many(bodies(0, 500), timeout=TIMEOUT)
    assert receive(into, bodies(0, 500)) == bodies(0, 500)
    out.wait_confirmed(TIMEOUT)
    assert client.statistics()["unconfirmed"] == 0


def test_what_was_not_confirmed_comes_again_to_the_next_kernel(connect: Callable[..., Client]) -> None:
    """The first application has received some messages, and did not come back for more, which confirms them."""
    first = connect(destination="/queue/q", subscriptions=QUEUE)
    out = first.open("out")
    out.send_many(bodies(0, 100), timeout=TIMEOUT)
    assert first.open("in").receive_many(timeout=TIMEOUT)
    out.wait_confirmed(TIMEOUT)
    first.kernel.close(linger=0)
    assert first.kernel.join(TIMEOUT)
    second = connect(subscriptions=QUEUE)
    assert set(receive(second.open("in"), bodies(0, 100))) == set(bodies(0, 100))


def test_what_was_confirmed_does_not_come_again(connect: Callable[..., Client]) -> None:
    first = connect(destination="/queue/q", subscriptions=QUEUE)
    first.open("out").send_many(bodies(0, 100), timeout=TIMEOUT)
    into = first.open("in")
    receive(into, bodies(0, 100))
    # To come back for more confirms what was received before.
    first.open("out").send(b"last", timeout=TIMEOUT)
    receive(into, [b"last"])
    first.kernel.close()
    assert first.kernel.join(TIMEOUT)
    second = connect(destination="/queue/q", subscriptions=QUEUE)
    second.open("out").send(b"new", timeout=TIMEOUT)
    # The last one was received and not confirmed.
    assert set(receive(second.open("in"), [b"new"])) <= {b"last", b"new"}


@pytest.mark.slow
@pytest.mark.parametrize("receipts", ["auto", "each"])
def test_a_durable_broker_that_restarts_loses_nothing(
    kernel_factory: KernelFactory, tmp_path: Path, receipts: str
) -> None:
    place = f"127.0.0.1:{free_port()}"
    plan = broker_plan(place, data_dir=str(tmp_path / "data"))
    broker = kernel_factory(plan)
    client = Client(kernel_factory, place, destination="/queue/q", subscriptions=QUEUE, receipts=receipts)
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
    out.wait_confirmed(TIMEOUT)
    assert set(got) == set(bodies(0, 3000))


def _passed_on(client: Client, out: Any) -> Callable[[], bytes]:
    dead = client.open("dead")

    def look() -> bytes:
        # The thread of a source passes on what was refused, while it is inside a call.
        with suppress(TimedOut):
            out.wait_confirmed(0.01)
        with suppress(TimedOut):
            return bytes(dead.receive(0.01))
        return b""

    return look


@pytest.mark.parametrize("receipts", ["batch", "each"])
def test_a_message_that_the_broker_refuses_goes_to_the_dead_letters_and_stops_no_others(
    connect: Callable[..., Client], receipts: str
) -> None:
    client = connect(subscriptions=QUEUE, receipts=receipts)
    out = client.open("out")
    envelopes = [Envelope(key="q"), Envelope(exchange="nowhere", key="k"), Envelope(key="q")]
    for body, envelope in zip((b"1", b"bad", b"2"), envelopes, strict=True):
        out.send_message(Message(body, envelope), timeout=TIMEOUT)
    assert until(_passed_on(client, out)) == b"bad"
    receive(client.open("in"), [b"1", b"2"])
    assert "nowhere" in client.events.wait("refused").detail
    statistics = client.statistics()
    assert statistics["messages_refused"] == 1
    assert statistics["errors"] >= 1


def test_what_stomp_cannot_carry_is_refused_without_an_error(connect: Callable[..., Client]) -> None:
    client = connect(subscriptions=QUEUE)
    out = client.open("out")
    envelope = Envelope(key="q", properties={"correlation_id": b"\xff"})
    out.send_message(Message(b"bad", envelope), timeout=TIMEOUT)
    out.send_message(Message(b"good", Envelope(key="q")), timeout=TIMEOUT)
    assert until(_passed_on(client, out)) == b"bad"
    receive(client.open("in"), [b"good"])
    assert client.statistics()["errors"] == 0


def test_a_refused_subscription_is_named_and_the_others_work(connect: Callable[..., Client]) -> None:
    client = connect(
        destination="/queue/q", subscriptions=({"destination": "/amq/queue/missing"}, *QUEUE), wait=False
    )
    detail = client.events.wait("refused").detail
    assert "subscribing to '/amq/queue/missing'" in detail
    assert "no queue 'missing'" in detail
    client.open("out").send(b"x", timeout=TIMEOUT)
    receive(client.open("in"), [b"x"])
    # It is tried again, and works when there is such a queue.
    other = connect(subscriptions=({"destination": "/queue/missing"},), destination="/queue/missing")
    other.kernel.close()
    assert until(lambda: client.statistics()["links"][0]["state"] == "connected")


@pytest.mark.usefixtures("short_login_delay")
def test_a_wrong_passcode_is_named(connect: Callable[..., Client]) -> None:
    client = connect(passcode="wrong", wait=False)
    detail = client.events.wait("refused").detail
    assert "refuses the connection" in detail
    assert "check login 'guest', passcode and host '/'" in detail
    assert client.events.wait("retrying", times=2).next_try
    assert until(lambda: client.statistics()["refusals"])


def test_properties_reach_the_other_side(connect: Callable[..., Client]) -> None:
    client = connect(subscriptions=({"destination": "/topic/#"},))
    properties = {"content_type": "text/plain", "correlation_id": "7", "headers": {"a:b": "c\nd"}}
    envelope = Envelope(
        exchange="amq.topic", key="k/v1", reply_to="/queue/answers", priority=7, properties=properties
    )
    client.open("out").send_message(Message(b"x\0y", envelope), timeout=TIMEOUT)
    message = client.open("in").receive_message(TIMEOUT)
    assert bytes(message.body) == b"x\0y"
    assert (message.envelope.exchange, message.key) == ("amq.topic", "k/v1")
    assert message.envelope.reply_to == "/queue/answers"
    assert message.envelope.priority == 7
    assert message.envelope.persistent
    assert {name: message.envelope.properties[name] for name in properties} == properties


def test_over_a_unix_socket(kernel_factory: KernelFactory, tmp_path: Path, version: str) -> None:
    place = f"{tmp_path}/stomp"
    kernel_factory(broker_plan(f"unix://{place}"))
    client = Client(
        kernel_factory,
        f"stomp+unix://{place}",
        versions=(version,),
        destination="/queue/q",
        subscriptions=QUEUE,
    )
    client.open("out").send(b"x", timeout=TIMEOUT)
    assert bytes(client.open("in").receive(TIMEOUT)) == b"x"


@pytest.mark.parametrize("transport", ["tls", "ws", "wss"])
def test_over_tls_and_web_socket(kernel_factory: KernelFactory, tmp_path: Path, transport: str) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    path = "/ws" if transport != "tls" else ""
    listener = {} if transport == "ws" else {"tls": {"certificate": str(tmp_path / "server.pem")}}
    broker = kernel_factory(broker_plan(f"{transport}://127.0.0.1:0{path}", listener=listener))
    place = broker.address_of("broker").rpartition("://")[2]
    client = Client(
        kernel_factory,
        f"stomp+{transport}://{place}{path}",
        tls={"authorities": str(tmp_path / "authority.pem")},
        destination="/queue/q",
        subscriptions=QUEUE,
    )
    out, into = client.open("out"), client.open("in")
    for body in (b"small", b"x" * 1_000_000):
        out.send(body, timeout=TIMEOUT)
        assert bytes(into.receive(TIMEOUT)) == body


@pytest.mark.parametrize("transport", ["tls", "wss"])
def test_the_name_in_its_certificate_logs_it_in(
    kernel_factory: KernelFactory, tmp_path: Path, transport: str
) -> None:
    listener_tls, tls = certificates(tmp_path)
    path = "/ws" if transport == "wss" else ""
    plan = broker_plan(f"{transport}://127.0.0.1:0{path}", listener={"tls": listener_tls}, users=ONLY_BRIDGE)
    broker = kernel_factory(plan)
    place = broker.address_of("broker").rpartition("://")[2]
    client = Client(
        kernel_factory,
        f"stomp+{transport}://{place}{path}",
        login="",
        passcode="",
        tls=tls,
        destination="/queue/q",
        subscriptions=QUEUE,
    )
    client.open("out").send(b"x", timeout=TIMEOUT)
    assert bytes(client.open("in").receive(TIMEOUT)) == b"x"
    (row,) = broker.inspect("connections", TIMEOUT).rows
    assert row["user"] == "bridge"


def test_a_route_without_confirmation_is_sent_again_as_well(
    kernel_factory: KernelFactory, tmp_path: Path
) -> None:
    place = f"127.0.0.1:{free_port()}"
    client = Client(
        kernel_factory, place, confirm=False, destination="/queue/q", subscriptions=QUEUE, wait=False
    )
    client.events.wait("retrying")
    client.open("out").send_many(bodies(0, 100), timeout=TIMEOUT)
    kernel_factory(broker_plan(place))
    assert set(receive(client.open("in"), bodies(0, 100))) == set(bodies(0, 100))


def test_options_of_a_plan_are_checked(kernel_factory: KernelFactory) -> None:
    with pytest.raises(Exception, match="is there twice"):
        kernel_factory(EnginePlan(name="c", kind="stomp-client", options={"subscriptions": [*QUEUE, *QUEUE]}))
