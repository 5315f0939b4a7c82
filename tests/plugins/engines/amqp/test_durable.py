"""The AMQP server with a data directory: what a client was told is so, whatever happens to the process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pika
import pytest

from plugins.engines.broker.host import stream_client
from plugins.engines.broker.host.options import BindingOptions, ExchangeOptions, QueueOptions
from plugins.protocols.amqp091.events import Acknowledged, Delivered, MethodReceived
from plugins.protocols.amqp091.frames import HEARTBEAT_FRAME
from plugins.protocols.amqp091.methods import basic, confirm, queue
from tests.plugins.engines.amqp.conftest import Server
from tests.plugins.engines.amqp.still_host import StillServer
from tests.plugins.engines.broker.client import run

pytestmark = pytest.mark.peer("pika")

PERSISTENT = pika.BasicProperties(delivery_mode=2, headers={"x": 1})
Serve = Callable[..., Server]


def test_confirmed_messages_and_definitions_outlive_the_broker(serve: Serve, tmp_path: Path) -> None:
    first = serve(data_dir=str(tmp_path))
    channel = first.channel()
    channel.confirm_delivery()
    channel.exchange_declare("logs", "topic", durable=True)
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "logs", "a.#")
    for number in range(10):
        channel.basic_publish("logs", "a.b", b"%d" % number, PERSISTENT)
    method, _, _ = channel.basic_get("q")
    channel.basic_ack(method.delivery_tag)
    channel.basic_get("q")
    for connection in first._connections:
        connection.close()
    first.host.call(first.engine.stop)
    second = serve(data_dir=str(tmp_path))
    channel = second.channel()
    assert channel.queue_declare("q", passive=True).method.message_count == 9
    got = [channel.basic_get("q", auto_ack=True) for _ in range(9)]
    assert [body for _, _, body in got] == [b"%d" % number for number in range(1, 10)]
    assert [method.redelivered for method, _, _ in got] == [True] + [False] * 8
    assert got[0][1].headers == {"x": 1}
    channel.basic_publish("logs", "a.c", b"routed")
    assert channel.basic_get("q", auto_ack=True)[2] == b"routed"


def test_a_quorum_queue_stores_transient_messages_as_well(serve: Serve, tmp_path: Path) -> None:
    """Beside a persistent one and in two queues: what RabbitMQ's quorum queues do with every message."""
    first = serve(data_dir=str(tmp_path))
    channel = first.channel()
    channel.confirm_delivery()
    for name, kind in (("quorum", "quorum"), ("classic", "classic")):
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
        channel.queue_bind(name, "amq.fanout")
    channel.basic_publish("amq.fanout", "", b"transient")
    channel.basic_publish("amq.fanout", "", b"persistent", PERSISTENT)
    for connection in first._connections:
        connection.close()
    first.host.call(first.engine.stop)
    channel = serve(data_dir=str(tmp_path)).channel()
    assert [channel.basic_get("quorum", auto_ack=True)[2] for _ in range(3)] == [
        b"transient",
        b"persistent",
        None,
    ]
    assert [channel.basic_get("classic", auto_ack=True)[2] for _ in range(2)] == [b"persistent", None]


def test_a_transaction_is_safe_when_it_is_committed(serve: Serve, tmp_path: Path) -> None:
    server = serve(data_dir=str(tmp_path))
    channel = server.channel()
    channel.queue_declare("q", durable=True)
    channel.tx_select()
    channel.basic_publish("", "q", b"committed", PERSISTENT)
    channel.tx_commit()
    store = server.host.call(lambda: server.engine.broker.store)
    assert store.safe == store.mark
    assert b"committed" in b"".join(path.read_bytes() for path in tmp_path.glob("*.log"))


def test_statistics_tell_of_the_store(serve: Serve, tmp_path: Path) -> None:
    server = serve(data_dir=str(tmp_path))
    server.channel().queue_declare("q", durable=True)
    figures = server.engine.statistics()["store"]
    assert (figures["segments"], figures["fsyncs"], figures["damaged_records"]) == (1, 1, 0)
    (segment,) = tmp_path.glob("*.log")
    octets = segment.read_bytes()
    assert any(octets[figures["bytes"] - 40 : figures["bytes"]])
    assert not any(octets[figures["bytes"] :])


def test_queues_that_are_long_together_wait_on_the_disk(serve: Serve, tmp_path: Path) -> None:
    server = serve(data_dir=str(tmp_path), all_queues_bytes=100_000)
    channel = server.channel()
    channel.confirm_delivery()
    for name in ("one", "other"):
        channel.queue_declare(name, durable=True)
        for number in range(100):
            channel.basic_publish("", name, b"%02d" % number + b"x" * 4998, PERSISTENT)
    server.engine.alarm_watch.alarms.next_check = 0.0  # half a second has passed
    server.host.call(lambda: server.engine.finish_turn(server.host.now()))
    rows = server.host.call(lambda: server.engine.inspect("queues"))
    assert [row["message_bytes_ready"] - row["message_bytes_paged_out"] <= 50_000 for row in rows] == [
        True
    ] * 2
    assert [row["message_bytes_ready"] for row in rows] == [500_000] * 2
    for name in ("one", "other"):
        got = [channel.basic_get(name, auto_ack=True)[2][:2] for _ in range(100)]
        assert got == [b"%02d" % number for number in range(100)]


@pytest.fixture
def busy_disk(serve: Serve, tmp_path: Path) -> Iterator[tuple[Server, threading.Event]]:
    """A server whose disk does nothing until the event."""
    quorum = QueueOptions(name="quorum", arguments={"x-queue-type": "quorum"})
    server = serve(data_dir=str(tmp_path), queues=(QueueOptions(name="there"), quorum))
    free = threading.Event()

    def wait() -> Callable[[], None]:
        free.wait(60)
        return lambda: None

    server.channel().queue_declare("q", durable=True)
    server.host.call(lambda: server.engine.kept._writer.submit(wait))
    yield server, free
    free.set()


def in_a_thread(what: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(what()))
    thread.start()
    return thread, answers


def test_clients_hear_nothing_before_it_is_safe(busy_disk: tuple[Server, threading.Event]) -> None:
    server, free = busy_disk
    declaring, publishing, committing = server.channel(), server.channel(), server.channel()
    publishing.confirm_delivery()
    replicating = server.channel()
    replicating.confirm_delivery()
    committing.tx_select()
    committing.basic_publish("", "q", b"in a transaction", PERSISTENT)
    asked = [
        in_a_thread(lambda: declaring.queue_declare("new", durable=True)),
        in_a_thread(lambda: publishing.basic_publish("", "q", b"with a confirm", PERSISTENT)),
        in_a_thread(committing.tx_commit),
        in_a_thread(lambda: replicating.basic_publish("", "quorum", b"transient, in a quorum queue")),
    ]
    other = server.channel()  # who asked for nothing durable is served meanwhile
    other.queue_declare("transient")
    for name, count in (("q", 2), ("quorum", 1)):
        while other.queue_declare(name, passive=True).method.message_count < count:
            pass
    assert [answers for _, answers in asked] == [[]] * 4
    free.set()
    for thread, answers in asked:
        thread.join(60)
        assert len(answers) == 1


def test_a_long_queue_is_handed_over_in_many_turns(
    still: Callable[..., StillServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_client, "WINDOW_BYTES", 1)  # a message at a time
    server = still(data_dir=str(tmp_path), queues=(QueueOptions(name="q"),))
    client = server.connect()
    store = server.engine.broker.store
    server.engine.feed.vhost.publish(run(*[b"x"] * 300, key="q", persistent=True), server.host.now())
    server.engine.finish_turn(server.host.now())
    while store.safe < store.mark:
        server.host.turn()
    client.send(
        basic.Consume(queue="q", consumer_tag="c", no_ack=True)
    )  # each handed over is written down as acknowledged
    assert server.host.turn()
    assert server.engine.feed.vhost.queues["q"].backlog.count > 290
    events = client.read_all()
    assert sum(len(event.batch) for event in events if isinstance(event, Delivered)) == 300


def test_routes_are_confirmed_what_is_safe(busy_disk: tuple[Server, threading.Event]) -> None:
    server, free = busy_disk
    port = server.feed_port
    port.wants_confirm = True
    port.waiting.append(run(b"1", b"2", key="there", persistent=True))
    server.host.call(server.engine.on_output)
    assert port.confirmed_in == 0
    free.set()
    assert port.arrived.wait(60)
    assert port.confirmed_in == 2


@pytest.fixture
def slow_disk(
    still: Callable[..., StillServer], tmp_path: Path
) -> Iterator[tuple[StillServer, Callable[[], None]]]:
    """A server with a queue whose disk does nothing until it is told to, and for which little may wait."""
    server = still(data_dir=str(tmp_path), queues=(QueueOptions(name="q"),))
    kept = server.engine.kept
    assert kept is not None
    store, free = kept.store, threading.Event()
    store.options = msgspec.structs.replace(store.options, most_waiting_bytes=1000)

    def wait() -> Callable[[], None]:
        free.wait(60)
        return lambda: None

    def go() -> None:
        free.set()
        while store.safe < store.mark:
            server.host.turn()
        server.host.process()

    server.engine.finish_turn(server.host.now())
    go()
    free.clear()
    kept._writer.submit(wait)
    yield server, go
    free.set()


def waiting(server: StillServer) -> int:
    server.host.process()
    return server.engine.feed.vhost.queues["q"].backlog.count


def test_publishers_go_on_whatever_was_the_last_in_their_way(
    slow_disk: tuple[StillServer, Callable[[], None]],
) -> None:
    server, go = slow_disk
    port = server.host.ports["broker"]
    port.routes.append("a route that is full")
    port.room = False
    client = server.connect()
    for body in (b"x" * 2000, b"waits"):
        client.connection.publish(1, run(body, key="q", persistent=True))
        client.write()
        assert waiting(server) == 1
    go()
    assert waiting(server) == 1
    port.room = True
    server.engine.on_writable()
    assert waiting(server) == 2


def test_who_waits_for_the_disk_hears_heartbeats(slow_disk: tuple[StillServer, Callable[[], None]]) -> None:
    server, go = slow_disk
    client = server.connect(heartbeat=2)
    client.send(queue.Declare(queue="new", durable=True))
    server.host.process()
    client.read()
    for _ in range(10):
        client.wire.send(HEARTBEAT_FRAME)
        server.host.pass_time(2)
        assert client.wire.recv(100) in [count * HEARTBEAT_FRAME for count in (1, 2, 3)]
    go()
    assert isinstance(client.wait_for(MethodReceived).method, queue.DeclareOk)
    assert client.hosted.is_open


def test_what_was_on_its_way_before_somebody_waits_for_the_disk_arrives(
    slow_disk: tuple[StillServer, Callable[[], None]],
) -> None:
    server, go = slow_disk
    client = server.connect()
    body = b"x" * 4_000_000
    client.connection.publish(1, run(body, key="q"))
    client.flush()
    client.send(basic.Consume(queue="q", no_ack=True))
    server.host.process()
    assert client.hosted.unwritten
    client.send(queue.Declare(queue="new", durable=True))
    events = client.read()
    for _ in range(1000):
        server.host.turn()
        events += client.read()
    assert [event.batch.bodies[0] for event in events if isinstance(event, Delivered)] == [body]
    assert not server.host.turn()
    go()
    assert isinstance(client.wait_for(MethodReceived).method, queue.DeclareOk)


def test_routes_wait_for_the_disk_like_publishers(
    slow_disk: tuple[StillServer, Callable[[], None]],
) -> None:
    server, go = slow_disk
    port = server.host.ports["broker"]
    for body in (b"x" * 2000, b"waits"):
        port.waiting.append(run(body, key="q", persistent=True))
        server.engine.on_output()
        assert waiting(server) == 1
    go()
    assert waiting(server) == 2


def test_a_confirm_that_waits_for_the_disk_alone_waits_for_no_later_message_on_a_route(
    slow_disk: tuple[StillServer, Callable[[], None]],
) -> None:
    server, go = slow_disk
    port = server.host.ports["broker"]
    port.routes.append("feed -> journal")
    port.confirms = True
    client = server.connect()
    client.ask(confirm.Select(), confirm.SelectOk)
    client.connection.publish(1, run(b"for the disk", key="q", persistent=True))
    client.connection.publish(1, run(b"for the route", key="elsewhere"))
    client.write()
    server.host.process()
    server.engine.on_confirmed(1)
    assert not [event for event in client.read() if isinstance(event, Acknowledged)]
    go()
    assert [event.last_delivery_tag for event in client.read() if isinstance(event, Acknowledged)] == [1]


@pytest.mark.parametrize("before", [False, True])
def test_what_came_before_anybody_waited_for_confirmation_is_none(
    slow_disk: tuple[StillServer, Callable[[], None]], before: bool
) -> None:
    server, go = slow_disk
    port = server.host.ports["broker"]
    port.wants_confirm = before
    port.waiting.append(run(b"1", b"2", b"3", key="q", persistent=True))
    server.engine.on_output()
    port.nobody_waits()
    port.wants_confirm = True  # a route that confirms has been added
    port.waiting.append(run(b"4", key="q", persistent=True))
    server.engine.on_output()
    assert port.confirmed_in == 0
    go()
    assert port.confirmed_in == 1


def test_what_the_options_declare_is_there_once(serve: Serve, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "data_dir": str(tmp_path),
        "exchanges": (ExchangeOptions(name="x", type="fanout"),),
        "queues": (QueueOptions(name="q", arguments={"x-max-length": 5}),),
        "bindings": (BindingOptions(exchange="x", queue="q"),),
    }
    for start in range(3):
        server = serve(**options)
        with server.connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("x", "", b"%d" % start, PERSISTENT)
            assert channel.queue_declare("q", passive=True).method.message_count == start + 1
        server.host.call(server.engine.stop)
    written = b"".join(path.read_bytes() for path in sorted(tmp_path.glob("*.log")))
    # Twice when it was made, and once at the head of each of three segments.
    assert written.count(b"x-max-length") == 2 + 3
