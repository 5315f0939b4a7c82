"""What breaks comes back by itself: the broker, the queue, the permission; with ``confirm`` nothing is lost."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from kernel.contracts.errors import TimedOut
from kernel.pipes.water_marks import WaterMarks
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan, RoutePlan
from kernel.topology.system import Kernel
from plugins.protocols.amqp091.events import Delivered
from plugins.protocols.amqp091.methods import basic, exchange, queue
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.plugins.engines.amqp_client.conftest import TIMEOUT, Client, broker_plan, receive

Connect = Callable[..., Client]
NATIVE = EnginePlan(name="kept", kind="native")


def _bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def _raw(broker: Kernel) -> RawClient:
    return RawClient(int(broker.address_of("broker").rpartition(":")[2]))


def test_nothing_is_lost_when_the_publishers_broker_goes_and_comes(
    kernel_factory: KernelFactory, connect: Connect
) -> None:
    # What is in a broker's queues goes with it; what it hands on to a route of its own stays.
    keeper = kernel_factory(
        broker_plan(), RoutePlan(source="broker", targets=("kept",), confirm=True), NATIVE
    )
    address = keeper.address_of("broker")
    kept = keeper.open("kept")
    client = connect(address, exchange="amq.fanout", mandatory=False)
    out = client.kernel.open("out")
    total = 0
    for cut in range(3):
        out.send_many(_bodies(total, total + 3000), timeout=TIMEOUT)
        total += 3000
        keeper.remove_engine("broker")
        client.events.wait("disconnected", times=cut + 1)
        out.send_many(_bodies(total, total + 500), timeout=TIMEOUT)
        total += 500
        keeper.add_engine(broker_plan(address))
        client.events.wait("connected", times=cut + 2)
    receive(kept, _bodies(0, total))
    kept.confirm()
    out.wait_confirmed(TIMEOUT)


def test_what_was_not_acknowledged_comes_again_over_a_new_connection(
    connect: Connect, broker: Kernel
) -> None:
    client = connect(exchange="", key="q", consume=[{"queue": "q", "prefetch": 50}])
    out, into = client.kernel.open("out"), client.kernel.open("in", auto_confirm=False)
    out.send_many(_bodies(0, 200))
    out.wait_confirmed(TIMEOUT)
    receive(into, _bodies(0, 50))
    client.kernel.remove_engine("client")
    with _raw(broker) as raw:
        raw.send(basic.Consume(queue="q", no_ack=True))
        got: set[bytes] = set()
        while len(got) < 200:
            got.update(map(bytes, raw.wait_for(Delivered).batch.bodies))
    assert got == set(_bodies(0, 200))


def test_what_was_declared_is_declared_again(
    kernel_factory: KernelFactory, connect: Connect, broker: Kernel
) -> None:
    client = connect(
        exchanges=[{"name": "feed", "type": "fanout"}],
        queues=[{"name": "mine"}],
        bindings=[{"exchange": "feed", "queue": "mine"}],
        exchange="feed",
        consume=[{"queue": "mine"}],
    )
    address = broker.address_of("broker")
    broker.remove_engine("broker")
    client.events.wait("disconnected")
    broker.add_engine(broker_plan(address))
    client.events.wait("connected", times=2)
    client.kernel.open("out").send(b"after")
    assert bytes(client.kernel.open("in").receive(TIMEOUT)) == b"after"
    assert client.statistics()["reconnects"] == 1


def test_a_queue_that_is_deleted_is_declared_and_consumed_from_again(
    connect: Connect, broker: Kernel
) -> None:
    client = connect(exchange="", key="mine", queues=[{"name": "mine"}], consume=[{"queue": "mine"}])
    out, into = client.kernel.open("out"), client.kernel.open("in")
    out.send(b"before")
    assert bytes(into.receive(TIMEOUT)) == b"before"
    with _raw(broker) as raw:
        raw.ask(queue.Delete(queue="mine"), queue.DeleteOk)
    event = client.events.wait("cancelled")
    assert "consuming from 'mine'" in event.detail
    assert event.next_try is not None
    with _raw(broker) as raw:  # the server goes on with one connection: it has not been lost
        _until_consumed(raw, "mine")
    out.send(b"after")
    assert bytes(into.receive(TIMEOUT)) == b"after"
    assert not client.events.all("disconnected")


def _until_consumed(raw: RawClient, name: str) -> None:
    for _ in range(100_000):
        if raw.ask(queue.Declare(queue=name, durable=True), queue.DeclareOk).consumer_count:
            return
    raise AssertionError("nobody consumes")


def test_the_second_address_is_tried_when_nobody_is_at_the_first(connect: Connect, broker: Kernel) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen; nobody else can
        client = connect(f"127.0.0.1:{silent.getsockname()[1]}", broker.address_of("broker"))
    assert client.events.wait("connected").peer == f"amqp+tcp://{broker.address_of('broker')}"


def test_a_client_goes_over_to_the_other_server_when_its_own_goes(
    kernel_factory: KernelFactory, connect: Connect, broker: Kernel
) -> None:
    other = kernel_factory(broker_plan(queues=[{"name": "q"}]))
    client = connect(
        broker.address_of("broker"),
        other.address_of("broker"),
        exchange="",
        key="q",
        consume=[{"queue": "q"}],
    )
    out, into = client.kernel.open("out"), client.kernel.open("in")
    out.send_many(_bodies(0, 100))
    receive(into, _bodies(0, 100))
    broker.remove_engine("broker")
    client.events.wait("connected", times=4)  # both links, twice
    out.send_many(_bodies(100, 200))
    receive(into, _bodies(100, 200))
    out.wait_confirmed(TIMEOUT)


@pytest.mark.parametrize(
    "options,said",
    [
        ({"consume": [{"queue": "nowhere"}]}, ["consuming from 'nowhere'", "404", "declare it"]),
        ({"queues": [{"name": "q", "durable": False}]}, ["declaring queue 'q'", "406", "passive = true"]),
        (
            {"bindings": [{"exchange": "no", "queue": "q"}]},
            ["binding 'q' to exchange 'no'", "404", "declare it"],
        ),
    ],
)
def test_a_refusal_says_what_was_refused_and_what_to_do(
    kernel_factory: KernelFactory, broker: Kernel, options: dict[str, object], said: list[str]
) -> None:
    client = Client(kernel_factory, broker.address_of("broker"), **options)
    event = client.events.wait("refused", times=2)  # and tried again
    assert [text for text in said if text not in event.detail] == []
    assert event.next_try is not None
    assert not client.events.all("disconnected")


@pytest.mark.usefixtures("short_login_delay")
@pytest.mark.parametrize("options", [{"password": "wrong"}, {"vhost": "nowhere"}])
def test_a_login_that_fails_says_so_and_is_tried_again(
    kernel_factory: KernelFactory, broker: Kernel, options: dict[str, str]
) -> None:
    client = Client(kernel_factory, broker.address_of("broker"), **options)
    event = client.events.wait("disconnected", times=2)
    assert ("check user, password" in event.detail) == ("password" in options)
    assert "vhost" in event.detail


def test_an_exchange_that_is_not_there_stops_nothing_for_ever(connect: Connect, broker: Kernel) -> None:
    client = connect(exchange="late", key="q", mandatory=False)
    out = client.kernel.open("out")
    out.send_many(_bodies(0, 10))
    assert "404" in client.events.wait("refused", times=2).detail
    with _raw(broker) as raw:
        raw.ask(exchange.Declare(exchange="late", type="fanout"), exchange.DeclareOk)
        out.wait_confirmed(TIMEOUT)


def test_a_server_that_is_full_gets_messages_again_until_it_takes_them(
    connect: Connect, broker: Kernel
) -> None:
    full = {"x-max-length": 5, "x-overflow": "reject-publish"}
    client = connect(exchange="", key="small", queues=[{"name": "small", "arguments": full}])
    out = client.kernel.open("out")
    out.send_many(_bodies(0, 12))
    assert client.events.wait("retrying").next_try is not None
    got: list[bytes] = []
    with _raw(broker) as raw:
        raw.send(basic.Consume(queue="small", no_ack=True))
        out.wait_confirmed(TIMEOUT)
        while len(got) < 12:
            got += raw.wait_for(Delivered).batch.bodies
    assert sorted(map(int, got)) == list(range(12))
    assert client.statistics()["messages_nacked"] > 0


def test_a_message_that_no_queue_wants_is_counted_and_reported(connect: Connect) -> None:
    client = connect(exchange="amq.direct", key="nobody")
    out = client.kernel.open("out")
    out.send_many([b"1", b"2"])
    out.wait_confirmed(TIMEOUT)
    assert "to no queue" in client.events.wait("returned").detail
    assert client.statistics()["messages_returned"] == 2


@pytest.mark.parametrize("no_ack", [False, True])
def test_a_reader_that_is_slow_stops_the_server_and_loses_nothing(
    connect: Connect, broker: Kernel, no_ack: bool
) -> None:
    consume = [{"queue": "q", "prefetch": 20, "no_ack": no_ack}]
    with _raw(broker) as raw:
        for number in range(300):
            raw.publish(b"%06d" % number + b"x" * 30_000, "q")
        raw.ask(basic.Qos(), basic.QosOk)
        client = connect(consume=consume, confirm=False, marks=WaterMarks(high=10))
        into = client.kernel.open("in")
        assert bytes(into.receive(TIMEOUT)[:6]) == b"000000"
        if not no_ack:
            left = raw.ask(queue.Declare(queue="q", passive=True), queue.DeclareOk).message_count
            assert left >= 300 - 3 * 20 - 10
    got = [0]
    while len(got) < 300:
        got += [int(bytes(body[:6])) for body in into.receive_many(timeout=TIMEOUT)]
    assert got == list(range(300))
    with pytest.raises(TimedOut):
        into.receive(0)
