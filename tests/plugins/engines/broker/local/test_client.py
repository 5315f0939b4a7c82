"""The in-process front end: a broker in the application's own kernel, without a socket."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from kernel.contracts.errors import ConnectionLost, KernelClosed, KernelError, WrongThread
from kernel.contracts.message import Envelope
from kernel.pipes.water_marks import WaterMarks
from kernel.topology.plan import EnginePlan, Plan, RoutePlan
from kernel.topology.system import Kernel
from plugins.engines.broker.errors import AccessRefused, NotFound, PreconditionFailed
from plugins.engines.broker.host.feed import Feed
from plugins.engines.broker.local.client import BrokerClient

TO_Q = Envelope(key="q")
TO_TOPIC = Envelope(exchange="amq.topic", key="k")
LONG = 60.0


def make_kernel(*routes: RoutePlan, **options: Any) -> Kernel:
    broker = EnginePlan(name="broker", kind="broker", options=options)
    mine = EnginePlan(name="mine", kind="broker-client", options={"broker": "broker"})
    return Kernel(Plan(engines=(broker, mine, EnginePlan(name="app", kind="native")), routes=routes))


@pytest.fixture
def start() -> Iterator[Callable[..., Kernel]]:
    """Start a kernel with a broker of such options."""
    kernels: list[Kernel] = []

    def start(*routes: RoutePlan, **options: Any) -> Kernel:
        kernels.append(make_kernel(*routes, **options))
        kernels[-1].start()
        return kernels[-1]

    yield start
    for kernel in kernels:
        kernel.close(linger=0)
        kernel.join()


@pytest.fixture
def client(start: Callable[..., Kernel]) -> BrokerClient:
    client = start().open("mine", "broker-client")
    client.declare_queue("q")
    return client


def test_what_is_published_is_delivered(client: BrokerClient) -> None:
    client.consume("q")
    client.publish_many([b"1", b"2"], TO_Q)
    client.wait_confirmed(LONG)
    first, second = client.receive(LONG), client.receive(LONG)
    assert first is not None
    assert second is not None
    assert [first.body, second.body] == [b"1", b"2"]
    assert first.envelope is TO_Q
    client.ack([first, second])
    assert client.declare_queue("q").messages == 0


def test_exchanges_and_bindings(client: BrokerClient) -> None:
    client.declare_exchange("x", "topic")
    client.bind("q", "x", "a.#")
    client.publish(b"1", Envelope(exchange="x", key="a.b"))
    client.publish(b"2", Envelope(exchange="x", key="b"))
    assert client.declare_queue("q").messages == 1
    client.unbind("q", "x", "a.#")
    client.publish(b"3", Envelope(exchange="x", key="a.b"))
    assert client.purge("q") == 1
    client.delete_exchange("x")
    with pytest.raises(NotFound, match="no exchange 'x'"):
        client.bind("q", "x")


def test_get_and_reject(client: BrokerClient) -> None:
    assert client.get("q") is None
    client.publish(b"1", TO_Q)
    delivery = client.get("q")
    assert delivery is not None
    assert (delivery.body, delivery.redelivered) == (b"1", False)
    client.reject(delivery, requeue=True)
    again = client.get("q")
    assert again is not None
    assert again.redelivered
    client.reject(again, requeue=False)
    assert client.get("q") is None


def test_a_client_is_handed_no_more_than_its_prefetch(client: BrokerClient) -> None:
    client.consume("q", prefetch=2)
    client.publish_many([b"1", b"2", b"3"], TO_Q)
    client.wait_confirmed(LONG)
    assert client.declare_queue("q").messages == 1
    found = client.receive_many(LONG)
    assert [delivery.body for delivery in found] == [b"1", b"2"]
    client.ack(found)
    (last,) = client.receive_many(LONG)
    assert last.body == b"3"


def test_more_than_a_window_is_delivered(client: BrokerClient) -> None:
    client.consume("q", auto_ack=True)
    body = bytes(100_000)
    client.publish_many([body] * 50, TO_Q)
    count = 0
    while count < 50:
        count += len(client.receive_many(LONG))
    assert client.declare_queue("q").messages == 0


def test_what_is_refused_is_said_by_wait_confirmed(client: BrokerClient) -> None:
    client.publish(b"1", Envelope(exchange="nowhere"))
    client.publish(b"2", TO_Q)
    with pytest.raises(NotFound, match="no exchange 'nowhere'"):
        client.wait_confirmed(LONG)
    client.wait_confirmed(LONG)
    assert client.declare_queue("q").messages == 1


def test_a_full_queue_refuses(client: BrokerClient) -> None:
    client.declare_queue("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.publish_many([b"1", b"2", b"3"], Envelope(key="full"))
    with pytest.raises(PreconditionFailed, match="2 messages were refused"):
        client.wait_confirmed(LONG)


def test_a_mandatory_message_that_goes_nowhere_is_said(client: BrokerClient) -> None:
    client.publish(b"1", Envelope(key="none"))
    client.wait_confirmed(LONG)
    client.publish(b"1", Envelope(key="none"), mandatory=True)
    with pytest.raises(NotFound, match="no queue for messages"):
        client.wait_confirmed(LONG)


def test_what_is_not_acknowledged_goes_back_when_the_client_leaves(start: Callable[..., Kernel]) -> None:
    kernel = start()
    with kernel.open("mine", "broker-client") as first:
        first.declare_queue("q")
        first.declare_queue("own", exclusive=True)
        first.consume("q")
        first.publish(b"1", TO_Q)
        assert first.receive(LONG) is not None
    with kernel.open("mine", "broker-client") as second:
        assert second.declare_queue("q").messages == 1
        with pytest.raises(NotFound, match="no queue 'own'"):
            second.purge("own")


def test_an_exclusive_queue_is_for_one_client(start: Callable[..., Kernel]) -> None:
    kernel = start()
    with kernel.open("mine", "broker-client") as first, kernel.open("mine", "broker-client") as second:
        name = first.declare_queue(exclusive=True).name
        with pytest.raises(KernelError, match="exclusive access"):
            second.consume(name)


def test_a_confirmed_message_is_on_the_disk(start: Callable[..., Kernel], tmp_path: Path) -> None:
    first = start(data_dir=str(tmp_path))
    client = first.open("mine", "broker-client")
    client.declare_queue("q", durable=True)
    client.publish_many([b"1", b"2"], Envelope(key="q", persistent=True))
    client.wait_confirmed(LONG)
    first.close(linger=0)
    first.join()
    with start(data_dir=str(tmp_path)).open("mine", "broker-client") as again:
        assert again.declare_queue("q", durable=True).messages == 2


def test_a_confirmation_waits_for_the_routes(start: Callable[..., Kernel]) -> None:
    route = RoutePlan(source="broker", targets=("app",), confirm=True, marks=WaterMarks(high=100))
    kernel = start(route)
    client = kernel.open("mine", "broker-client")
    with kernel.open("app", auto_confirm=False) as app:
        client.publish(b"1", Envelope(key="anything"))
        with pytest.raises(KernelError, match="did not confirm in time"):
            client.wait_confirmed(0.01)
        assert app.receive(timeout=LONG) == b"1"
        app.confirm()
        client.wait_confirmed(LONG)


def test_a_repeated_message_is_confirmed_and_goes_nowhere(start: Callable[..., Kernel]) -> None:
    kernel = start(RoutePlan(source="broker", targets=("app",)))
    client = kernel.open("mine", "broker-client")
    client.declare_queue("q")
    with kernel.open("app") as app:
        for number in (1, 2, 2, 1, 3):
            headers = {"x-publisher": "p", "x-publishing-id": number}
            client.publish(b"%d" % number, Envelope(key="q", properties={"headers": headers}), mandatory=True)
        client.wait_confirmed(LONG)
        assert [app.receive(timeout=LONG) for _ in range(3)] == [b"1", b"2", b"3"]
        client.publish(b"last", Envelope(key="q"))
        assert app.receive(timeout=LONG) == b"last"
    assert client.declare_queue("q").messages == 4


def test_publishers_wait_for_a_full_route(start: Callable[..., Kernel]) -> None:
    marks = WaterMarks(high=10)
    kernel = start(RoutePlan(source="broker", targets=("app",), marks=marks))
    client = kernel.open("mine", "broker-client")
    app = kernel.open("app")
    everything = threading.Event()

    def publish() -> None:
        with kernel.open("mine", "broker-client") as mine:
            for number in range(200):
                mine.publish(b"%d" % number, Envelope(key="k"))
                mine.declare_queue("q")  # a turn of the broker
            everything.set()

    thread = threading.Thread(target=publish)
    thread.start()
    bodies = [app.receive(timeout=LONG) for _ in range(200)]
    thread.join(LONG)
    assert everything.is_set()
    assert bodies == [b"%d" % number for number in range(200)]
    client.close()
    app.close()


def test_permissions_of_a_user_count(start: Callable[..., Kernel]) -> None:
    users = {"reader": {"password": "x", "configure": "^r", "write": "^r", "read": "^r"}}
    kernel = start(users=users)
    with kernel.open("mine", "broker-client", user="reader") as client:
        client.declare_queue("r")
        with pytest.raises(AccessRefused, match="'q' in vhost '/' refused for user 'reader'"):
            client.declare_queue("q")
        with pytest.raises(AccessRefused, match="exchange 'amq.fanout' in vhost '/' refused"):
            client.declare_queue("r.too", arguments={"x-dead-letter-exchange": "amq.fanout"})
        client.publish(b"1", TO_Q)
        with pytest.raises(AccessRefused, match="amq.default"):
            client.wait_confirmed(LONG)


@pytest.mark.parametrize(
    "options, complaint",
    [
        ({"user": "nobody"}, "no user 'nobody'"),
        ({"vhost": "none"}, "vhost none not found"),
        ({"broker": "app", "timeout": 0.01}, "broker 'app' is not running, or is no broker"),
    ],
)
def test_a_client_that_cannot_connect_says_why(
    start: Callable[..., Kernel], options: dict[str, Any], complaint: str
) -> None:
    kernel = start()
    with pytest.raises(KernelError, match=complaint):
        kernel.open("mine", "broker-client", **options)


def test_a_client_that_gave_up_connecting_leaves_no_session(start: Callable[..., Kernel]) -> None:
    kernel = start()
    first = kernel.open("mine", "broker-client")
    busy = threading.Event()
    first._tell(lambda session, now: busy.wait(LONG))
    with pytest.raises(KernelError, match="the broker did not answer in time"):
        kernel.open("mine", "broker-client", timeout=0.01)
    busy.set()
    first.declare_queue("q")
    assert len(kernel.inspect("connections").rows) == 1


def test_the_end_of_a_queue_is_told_to_who_waits_for_its_messages(start: Callable[..., Kernel]) -> None:
    kernel = start()
    with kernel.open("mine", "broker-client") as client, kernel.open("mine", "broker-client") as other:
        client.declare_queue("q")
        client.consume("q", tag="c")
        other.delete_queue("q")
        with pytest.raises(NotFound, match="queue of consumer 'c' was deleted"):
            client.receive(LONG)


def test_the_end_of_the_kernel_wakes_who_waits(start: Callable[..., Kernel]) -> None:
    kernel = start()
    client = kernel.open("mine", "broker-client")
    timer = threading.Timer(0.01, lambda: kernel.close(linger=0))
    timer.start()
    with pytest.raises((KernelClosed, ConnectionLost)):
        client.receive(LONG)
    timer.join()


def test_another_thread_may_not_use_a_client(client: BrokerClient) -> None:
    failures: list[BaseException] = []

    def use() -> None:
        try:
            client.publish(b"1", TO_Q)
        except WrongThread as error:
            failures.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert len(failures) == 1


def test_an_unknown_tag_ends_the_session(client: BrokerClient) -> None:
    client.publish(b"1", TO_Q)
    delivery = client.get("q")
    assert delivery is not None
    client.ack(delivery)
    client.ack(delivery)
    with pytest.raises(ConnectionLost, match="unknown delivery tag"):
        client.declare_queue("q")


def test_it_shares_queues_with_clients_of_other_protocols(start: Callable[..., Kernel]) -> None:
    kernel = start(listeners=[{"protocol": "amqp", "address": "127.0.0.1:0"}])
    kernel.wait_running()
    port = int(kernel.address_of("broker").rpartition(":")[2])
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    with connection, kernel.open("mine", "broker-client") as client:
        channel = connection.channel()
        channel.queue_declare("q")
        client.consume("q")
        properties = pika.BasicProperties(content_type="text/plain")
        channel.basic_publish("", "q", b"from pika", properties)
        delivery = client.receive(LONG)
        assert delivery is not None
        assert delivery.body == b"from pika"
        assert delivery.envelope.properties["content_type"] == "text/plain"
        names = {row["client"] for row in kernel.inspect("connections").rows}
        assert "in-process" in names


class _FullOnce:
    """A port that says once that a route is full; the reader makes room before it could tell."""

    def __init__(self, port: Any) -> None:
        self._port = port
        self._said = False

    def send(self, batches: Any) -> bool:
        going = self._said
        self._said = True
        self._port.send(batches)
        return going

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


def test_who_is_held_back_goes_on_although_another_one_finds_the_room(
    start: Callable[..., Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Feed.open
    monkeypatch.setattr(Feed, "open", lambda feed, port: opened(feed, _FullOnce(port)))  # type: ignore[arg-type]
    kernel = start(RoutePlan(source="broker", targets=("app",), confirm=True))
    with (
        kernel.open("app") as app,
        kernel.open("mine", "broker-client") as first,
        kernel.open("mine", "broker-client") as second,
    ):
        first.publish(b"1", TO_TOPIC)
        assert app.receive(timeout=LONG) == b"1"
        second.publish(b"2", TO_TOPIC)
        assert app.receive(timeout=LONG) == b"2"
        first.publish(b"3", TO_TOPIC)
        assert app.receive(timeout=LONG) == b"3"


@pytest.mark.parametrize(
    "mistake",
    [
        lambda client: client.declare_queue(3),
        lambda client: client.declare_queue("r", arguments=["x-max-length"]),
        lambda client: client.declare_queue("r", arguments={3: 1}),
        lambda client: client.declare_exchange(b"x"),
        lambda client: client.declare_exchange("x", 3),
        lambda client: client.bind("q", "amq.topic", 3),
        lambda client: client.unbind("q", 3),
        lambda client: client.purge(3),
        lambda client: client.delete_queue(None),
        lambda client: client.delete_exchange(3),
        lambda client: client.publish("text", TO_Q),
        lambda client: client.publish(b"body", "q"),
        lambda client: client.publish(b"body", Envelope(key=3)),
        lambda client: client.publish_many(b"bodies", TO_Q),
        lambda client: client.consume(3),
        lambda client: client.consume("q", tag=3),
        lambda client: client.consume("q", prefetch="10"),
        lambda client: client.consume("q", prefetch=-1),
        lambda client: client.cancel(3),
        lambda client: client.get(3),
    ],
)
def test_a_mistake_of_the_application_raises_there_and_ends_no_broker(
    client: BrokerClient, mistake: Callable[[Any], Any]
) -> None:
    with pytest.raises(TypeError):
        mistake(client)
    client.publish(b"1", TO_Q)
    delivery = client.get("q")
    assert delivery is not None
    assert delivery.body == b"1"
