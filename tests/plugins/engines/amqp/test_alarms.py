"""Alarms as clients and operators notice them.  What is read of memory and disk is the test's choice."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from struct import pack

import msgspec
import pytest

from kernel.contracts.message import Batch, Envelope
from plugins.engines.amqp.options import AmqpOptions
from plugins.engines.broker.alarms import PERIOD, DiskAlarm, QueuedAlarm
from plugins.engines.broker.backlog import PER_MESSAGE
from plugins.engines.broker.host.alarm_watch import MEMORY_SECONDS
from plugins.engines.broker.host.options import QueueOptions
from plugins.engines.broker.host.resources import (
    give_memory_back,
    machine_memory,
    octets,
    resident_memory,
)
from plugins.engines.broker.host.status import status
from plugins.protocols.amqp091.connection import CLIENT_CAPABILITIES
from plugins.protocols.amqp091.events import Acknowledged, ConnectionClosed, Delivered, MethodReceived
from plugins.protocols.amqp091.frames import BODY, HEADER, METHOD
from plugins.protocols.amqp091.methods import basic, confirm, connection, queue, tx
from tests.notes import for_each
from tests.plugins.engines.amqp.conftest import Server
from tests.plugins.engines.amqp.raw_client import frame
from tests.plugins.engines.amqp.still_host import StillClient, StillServer
from tests.systems import linux_only


class Low:
    """Memory and disk in the test's hand: 100 is the limit, and all is well to begin with."""

    def __init__(self, server: StillServer | Server) -> None:
        self.memory, self.disk = 0, 1000
        alarms = server.engine.alarm_watch.alarms
        alarms.alarms = (QueuedAlarm(100, lambda: self.memory), DiskAlarm(100, lambda: self.disk))
        alarms.next_check = 0.0


def publish(client: StillClient, body: bytes = b"x", key: str = "q") -> None:
    client.connection.publish(1, Batch([body], len(body), Envelope(key=key)))
    client.write()


def ready(server: StillServer) -> int:
    return server.engine.broker.vhost("/").queues["q"].backlog.count


def told(client: StillClient) -> list[str]:
    """Return what of alarms a client was told, and forget it."""
    methods = [event.method for event in client.read() if isinstance(event, MethodReceived)]
    return [
        method.reason if isinstance(method, connection.Blocked) else "unblocked"
        for method in methods
        if isinstance(method, connection.Blocked | connection.Unblocked)
    ]


@pytest.fixture
def server(still: Callable[..., StillServer]) -> StillServer:
    """With heartbeats that nobody has to send, and a queue."""
    return still(heartbeat=10, queues=(QueueOptions(name="q"),))


def test_a_publisher_is_told_and_read_no_more_until_there_is_enough(server: StillServer) -> None:
    publisher = server.connect()
    low = Low(server)
    low.memory = 101
    publish(publisher, b"this is still taken")
    server.host.process()
    assert told(publisher) == ["low on memory"]
    publish(publisher, b"this waits in the wire")
    server.host.process()
    assert ready(server) == 1
    low.memory = 95  # less than the limit, but not a tenth less
    server.host.pass_time(PERIOD)
    assert (told(publisher), ready(server)) == ([], 1)
    low.memory = 90
    server.host.pass_time(PERIOD)
    assert (told(publisher), ready(server)) == (["unblocked"], 2)


def test_a_publisher_of_amqp_0_8_is_blocked_and_not_told(server: StillServer) -> None:
    """It would take connection.blocked for connection.close, which has this number there."""
    publisher = server.connect()
    publisher.hosted.session.connection.speaks_0_8 = True
    Low(server).memory = 101
    publish(publisher)
    server.host.process()
    assert publisher.hosted.blocked
    assert told(publisher) == []


def test_both_can_be_low_and_each_alone_holds_publishers_back(server: StillServer) -> None:
    publisher = server.connect()
    low = Low(server)
    low.memory, low.disk = 200, 99
    publish(publisher)
    server.host.process()
    assert told(publisher) == ["low on disk & memory"]
    low.memory = 0
    server.host.pass_time(PERIOD)
    assert told(publisher) == []
    low.disk = 109
    server.host.pass_time(PERIOD)
    assert told(publisher) == []
    low.disk = 110
    server.host.pass_time(PERIOD)
    assert told(publisher) == ["unblocked"]


def test_who_only_consumes_goes_on(server: StillServer) -> None:
    publisher, consumer = server.connect(), server.connect()
    for number in range(3):
        publish(publisher, b"%d" % number)
    server.host.process()
    low = Low(server)
    low.memory = 1000
    publish(publisher)
    server.host.process()
    consumer.ask(basic.Qos(prefetch_count=1), basic.QosOk)
    consumer.send(basic.Consume(queue="q"))
    for tag in range(1, 5):
        assert consumer.wait_for(Delivered).first_delivery_tag == tag
        consumer.send(basic.Ack(delivery_tag=tag))
    assert told(consumer) == []
    assert publisher.hosted.blocked
    assert not consumer.hosted.blocked


def test_a_publisher_gets_its_confirms_while_it_waits(server: StillServer) -> None:
    publisher = server.connect()
    publisher.ask(confirm.Select(), confirm.SelectOk)
    Low(server).memory = 1000
    publish(publisher)
    server.host.process()
    assert publisher.hosted.blocked
    assert [event.last_delivery_tag for event in publisher.read() if isinstance(event, Acknowledged)] == [1]


def test_who_does_not_know_the_extension_is_not_told_but_held_back(server: StillServer) -> None:
    capabilities = {
        name: value for name, value in CLIENT_CAPABILITIES.items() if name != "connection.blocked"
    }
    publisher = server.connect(properties={"capabilities": capabilities})
    low = Low(server)
    low.memory = 1000
    publish(publisher)
    server.host.process()
    assert publisher.hosted.blocked
    low.memory = 0
    server.host.pass_time(PERIOD)
    assert not publisher.hosted.blocked
    assert [event for event in publisher.read() if isinstance(event, MethodReceived)] == []


def test_a_blocked_publisher_is_not_taken_for_dead(server: StillServer) -> None:
    publisher = server.connect(heartbeat=10)
    low = Low(server)
    low.memory = 1000
    publish(publisher)
    server.host.pass_time(100)
    assert publisher.hosted.blocked
    low.memory = 0
    server.host.pass_time(PERIOD)
    events = publisher.read()
    assert not any(isinstance(event, ConnectionClosed) for event in events)
    server.host.pass_time(29)
    assert publisher.hosted.is_open
    server.host.pass_time(10)
    assert not publisher.hosted.is_open, "silent for three heartbeats since it was read again"


def test_what_comes_over_routes_waits_as_well(server: StillServer) -> None:
    client = server.connect()
    low = Low(server)
    low.memory = 1000
    port = server.host.ports["broker"]
    client.ask(queue.Declare(queue="q", passive=True), queue.DeclareOk)
    port.waiting.append(Batch([b"x"], 1, Envelope(key="q")))
    server.engine.on_output()
    assert ready(server) == 0
    low.memory = 0
    server.host.pass_time(PERIOD)
    assert ready(server) == 1


def test_what_is_outstanding_counts_as_well(still: Callable[..., StillServer]) -> None:
    """Otherwise a consumer that never acknowledges could have everything."""
    server = still(queued_limit=1_000_000, queues=(QueueOptions(name="q"),))
    publisher, consumer = server.connect(), server.connect()
    consumer.ask(basic.Consume(queue="q"), basic.ConsumeOk)
    for _ in range(20):
        publish(publisher, bytes(100_000))
        server.host.process()
        consumer.read()
        server.host.pass_time(PERIOD)
    assert ready(server) < 3
    assert told(publisher) == ["low on memory"]
    consumer.connection.send_acknowledgement(1, 0, multiple=True)
    while not (events := told(publisher)):
        consumer.flush()
        consumer.read()
        server.host.pass_time(PERIOD)
        consumer.connection.send_acknowledgement(1, 0, multiple=True)
    assert events == ["unblocked"]


def test_an_operator_sees_it(server: StillServer) -> None:
    publisher = server.connect()
    low = Low(server)
    low.memory = 123
    publish(publisher)
    server.host.process()
    assert server.engine.statistics()["alarms"] == "memory"
    assert [row["state"] for row in server.engine.inspect("connections")] == ["blocked"]
    low.memory = 0
    server.host.pass_time(PERIOD)
    assert server.engine.statistics()["alarms"] == ""
    said = [(event.what, event.detail) for event in server.host.events if "blocked" in event.what]
    limits = "queued_limit 100, disk_free 1,000, disk_free_limit 100 bytes"
    assert said == [
        ("blocked", f"low on memory; queued 123, {limits}"),
        ("unblocked", f"enough again; queued 0, {limits}"),
    ]


@pytest.mark.peer("pika")
def test_pika_hears_of_it(serve: Callable[..., Server]) -> None:
    server = serve(queued_limit=10_000)
    publisher, consumer = server.connect(), server.connect()
    heard: list[str] = []
    publisher.add_on_connection_blocked_callback(lambda _, frame: heard.append(frame.method.reason))
    publisher.add_on_connection_unblocked_callback(lambda *_: heard.append("unblocked"))
    channel, other = publisher.channel(), consumer.channel()
    channel.queue_declare("q")
    while not heard:
        channel.basic_publish("", "q", bytes(2000))
        publisher.process_data_events()
    while len(heard) < 2:
        other.queue_purge("q")
        publisher.process_data_events(time_limit=0.1)
    assert heard[:2] == ["low on memory", "unblocked"]  # and what was on its way may be too much again


@pytest.mark.parametrize("limit, expected", [(0, 0), (5, 5), ("0%", 0), ("40%", 400), ("100%", 1000)])
def test_a_limit_is_a_number_of_bytes_or_a_share(limit: int | str, expected: int) -> None:
    assert octets(limit, 1000) == expected


@for_each("limit", [-1, "101%", "-1%", "4.5%", "lots", "", "40"])
def test_other_limits_are_refused_with_their_name(limit: int | str) -> None:
    with pytest.raises(msgspec.ValidationError, match="queued_limit: "):
        msgspec.convert({"queued_limit": limit}, AmqpOptions)


def test_the_system_is_asked() -> None:
    body = os.urandom(1) * (64 << 20)
    before = resident_memory()
    assert len(body) < before < machine_memory()
    del body
    give_memory_back()
    assert resident_memory() < before - (32 << 20)


@linux_only
def test_a_system_without_proc_does_not_tell_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The alarm reports that, and the broker serves."""

    def not_there(path: str) -> None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    monkeypatch.setattr("builtins.open", not_there)
    with pytest.raises(FileNotFoundError, match="/proc/self/statm"):
        resident_memory()


def test_a_folder_that_is_not_there_is_said_at_the_start(still: Callable[..., StillServer]) -> None:
    with pytest.raises(FileNotFoundError, match="/nowhere"):
        still(disk_watched="/nowhere")


def test_an_alarm_whose_figure_cannot_be_read_stays_as_it_is_and_ends_nothing(server: StillServer) -> None:
    """As when the process has no file descriptor left for /proc."""
    publisher = server.connect()
    low = Low(server)
    low.memory = 101
    publish(publisher)
    server.host.process()
    assert told(publisher) == ["low on memory"]
    alarms = server.engine.alarm_watch.alarms
    readable = alarms.alarms

    def unreadable() -> int:
        raise OSError(24, "Too many open files")

    alarms.alarms = (QueuedAlarm(100, unreadable), *readable[1:])
    alarms.alarms[0].raised = True
    server.host.pass_time(3 * PERIOD)
    assert alarms.raised == ("memory",)
    assert [event.detail for event in server.host.events if event.what == "alarm unread"] == [
        "the memory alarm stays as it is, since its figure cannot be read: [Errno 24] Too many open files"
    ]
    alarms.alarms = readable
    low.memory = 0
    server.host.pass_time(2 * PERIOD)
    assert told(publisher) == ["unblocked"]


def test_figures_are_read_at_the_start_and_when_a_tool_asks(server: StillServer) -> None:
    """In an idle broker no turn reads them, and a tool would see no memory and a full disk."""
    assert server.engine.alarm_watch.alarms.statistics()["memory"] > 1_000_000
    low = Low(server)
    low.memory = 50
    assert status(server.engine)["figures"]["queued"] == 50
    low.memory = 60
    assert status(server.engine)["figures"]["queued"] == 50, "read within the last half second"
    server.host.pass_time(PERIOD)
    assert status(server.engine)["figures"]["queued"] == 60


def begin_message(client: StillClient, size: int, part: bytes) -> None:
    """Send a message of which only a part of the body comes."""
    method = basic.Publish(routing_key="q").encode()
    client.send_octets(frame(METHOD, 1, method) + frame(HEADER, 1, pack(">HHQH", 60, 0, size, 0)))
    go_on_with_message(client, part)


def go_on_with_message(client: StillClient, part: bytes) -> None:
    for start in range(0, len(part), 100_000):
        client.send_octets(frame(BODY, 1, part[start : start + 100_000]))
    client.flush()


def begin_transaction(client: StillClient, size: int, part: bytes) -> None:
    client.ask(tx.Select(), tx.SelectOk)
    go_on_with_transaction(client, part)


def go_on_with_transaction(client: StillClient, part: bytes) -> None:
    publish(client, part)
    client.flush()


Send = Callable[[StillClient, bytes], None]
UNPUBLISHED = pytest.mark.parametrize(
    "begin, go_on", [(begin_message, go_on_with_message), (begin_transaction, go_on_with_transaction)]
)
MEGABYTE = bytes(1_000_000)


@pytest.fixture
def small(still: Callable[..., StillServer]) -> StillServer:
    """Messages may take a megabyte; heartbeats are far away."""
    return still(heartbeat=600, memory_limit=0, queued_limit=len(MEGABYTE), queues=(QueueOptions(name="q"),))


@UNPUBLISHED
def test_who_holds_messages_back_is_blocked_and_then_closed(
    small: StillServer, begin: Callable[[StillClient, int, bytes], None], go_on: Send
) -> None:
    """It cannot finish what it has begun, since it is not read, and nobody else can free the memory."""
    culprit, victim = small.connect(), small.connect()
    begin(culprit, 2_000_000, MEGABYTE)
    begin(victim, 2_000, b"x" * 1_000)
    small.host.pass_time(PERIOD)
    for client in (culprit, victim):
        go_on(client, b"this is still taken")
        assert told(client) == ["low on memory"]
    small.host.pass_time(MEMORY_SECONDS - PERIOD)
    assert (culprit.hosted.is_open, victim.hosted.is_open) == (True, True)
    small.host.pass_time(2 * PERIOD)
    (closed,) = [event for event in culprit.read() if isinstance(event, ConnectionClosed)]
    assert closed.reply_code == 320
    assert "low on memory: 1,000," in closed.reply_text
    assert (culprit.hosted.is_open, victim.hosted.is_open) == (False, True)
    assert told(victim) == ["unblocked"]


@UNPUBLISHED
def test_who_holds_messages_back_stays_while_queues_have_more(
    small: StillServer, begin: Callable[[StillClient, int, bytes], None], go_on: Send
) -> None:
    """Consumers may empty them, and then it can finish."""
    publisher, other = small.connect(), small.connect()
    publish(other, MEGABYTE)
    other.flush()
    begin(publisher, 2_000_000, MEGABYTE[:500_000])
    small.host.pass_time(PERIOD)
    go_on(publisher, b"this is still taken")
    small.host.pass_time(3 * MEMORY_SECONDS)
    assert told(publisher) == ["low on memory"]
    assert publisher.hosted.is_open
    small.engine.broker.vhost("/").queues["q"].purge(small.host.now())
    small.host.pass_time(PERIOD)
    assert told(publisher) == ["unblocked"]


def test_what_is_committed_or_rolled_back_does_not_count_any_more(small: StillServer) -> None:
    client = small.connect()
    for end, answer in ((tx.Commit(), tx.CommitOk), (tx.Rollback(), tx.RollbackOk)):
        begin_transaction(client, 0, b"x" * 1000)
        assert client.hosted.unpublished_bytes >= 1000
        client.ask(end, answer)
        assert client.hosted.unpublished_bytes == 0
    begin_message(client, 2000, b"x" * 1000)
    assert client.hosted.unpublished_bytes == 1000
    go_on_with_message(client, b"x" * 1000)
    assert client.hosted.unpublished_bytes == 2000 + PER_MESSAGE  # in the transaction
