"""Sessions, retained messages and packet identifiers are there again after the broker was started anew."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kernel.contracts.message import Envelope, batch_of_one
from plugins.engines.broker.host.clock_watch import IDLE_PERIOD
from plugins.engines.mqtt.durable import Description, Descriptions
from plugins.protocols.mqtt.packets import Suback, Subscribe, Subscription
from plugins.protocols.mqtt.reason_codes import ReasonCode
from tests.plugins.engines.mqtt.raw_client import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Message,
    RawClient,
    publish,
    subscription,
    will,
)
from tests.plugins.engines.mqtt.still_server import StillServer

pytestmark = pytest.mark.slow  # each starts a broker two or more times, on disk

Still = Callable[..., StillServer]
YEAR = 365 * 86400.0
LASTING: dict[str, Any] = {"client_id": "lasting", "clean_start": False}
FIVE: dict[str, Any] = {**LASTING, "session_expiry_interval": 1000}


@pytest.fixture
def restart(still: Still, tmp_path: Path) -> Callable[..., StillServer]:
    """Start a broker on one directory; end the one before it, if there is one."""
    servers: list[StillServer] = []

    def start(**listener: Any) -> StillServer:
        for server in servers:
            server.close()
        servers.append(still(listener, data_dir=str(tmp_path)))
        return servers[-1]

    return start


def lasting(version: int) -> dict[str, Any]:
    return FIVE if version == 5 else LASTING


def test_a_session_is_there_with_its_subscriptions_and_messages(
    restart: Callable[..., StillServer], version: int
) -> None:
    server = restart()
    first = server.connect(version, **lasting(version))
    assert not first.connack.session_present
    assert first.subscribe("a/#", qos=1) == (1,)
    first.close()
    server.connect(version, client_id="other").publish("a/b", b"one", qos=1)
    server = restart()
    server.connect(version, client_id="other").publish("a/c", b"two", qos=1)
    again = server.connect(version, **lasting(version))
    assert again.connack.session_present
    # What was there before may have been sent before.
    for topic, payload, dup in (("a/b", b"one", True), ("a/c", b"two", False)):
        again.ack(PUBACK, again.expect_message(topic, payload, qos=1, dup=dup))
    again.expect_nothing()


def test_options_of_subscriptions_are_there(restart: Callable[..., StillServer]) -> None:
    server = restart()
    first = server.connect(**FIVE)
    wanted = subscription("own", 1, no_local=True, retain_as_published=True)
    first.subscribe(wanted, identifier=77)
    first.close()
    server = restart()
    again = server.connect(**FIVE)
    again.publish("own", b"mine", qos=1)
    again.expect_nothing()
    server.connect(client_id="other").publish("own", b"theirs", qos=1, retain=True)
    again.expect_message("own", b"theirs", qos=1, retain=True, subscription_identifiers=(77,))


def test_a_shared_subscription_is_there(restart: Callable[..., StillServer]) -> None:
    first = restart().connect(**FIVE)
    first.subscribe("$share/group/a", qos=1)
    first.close()
    server = restart()
    server.connect(client_id="other").publish("a", b"x", qos=1)
    again = server.connect(**FIVE)
    again.expect_message("a", qos=1)


def test_what_was_received_of_a_shared_subscription_is_not_sent_again(
    restart: Callable[..., StillServer], version: int
) -> None:
    """From PUBREC on: its identifier is in use until PUBCOMP, and no other message gets it."""
    server = restart()
    first = server.connect(version, **lasting(version))
    first.subscribe("$share/group/a", "b", qos=2)
    other = server.connect(version, client_id="other")
    for topic in ("a", "b"):
        other.publish(topic, b"one", qos=2)
    shared, own = (first.expect_message(topic, b"one", qos=2) for topic in ("a", "b"))
    first.ack(PUBREC, shared, own)
    first.expect_acks(PUBREL, shared, own)
    first.close()
    server = restart()
    again = server.connect(version, **lasting(version))
    came = {again.next(), again.next()}
    assert came == {Ack(PUBREL, shared), Ack(PUBREL, own)}
    server.connect(version, client_id="other").publish("a", b"two", qos=2)
    number = again.expect_message("a", b"two", qos=2)
    assert number != shared
    again.ack(PUBREC, number)
    again.expect_acks(PUBREL, number)
    again.ack(PUBCOMP, shared, own, number)
    again.close()
    again = restart().connect(version, **lasting(version))
    again.expect_nothing()


def test_what_was_sent_of_a_shared_subscription_waits_for_its_member(
    still: Still, tmp_path: Path, version: int
) -> None:
    """With QoS 2, and also if the broker is killed: another member would be a second receiver [MQTT-4.8.2-4]."""
    server = still({}, data_dir=str(tmp_path / "before"))
    first = server.connect(version, **lasting(version))
    first.subscribe("$share/group/a", qos=2)
    publisher = server.connect(version, client_id="publisher")
    for body in (b"one", b"two"):
        publisher.publish("a", body, qos=2)
    one, two = (first.expect_message("a", body, qos=2) for body in (b"one", b"two"))
    second = {**lasting(version), "client_id": "second"}
    server.connect(version, **second).subscribe("$share/group/a", qos=2)
    first.ack(PUBREC, two)
    first.expect_acks(PUBREL, two)
    shutil.copytree(tmp_path / "before", tmp_path / "killed")
    killed = still({}, data_dir=str(tmp_path / "killed"))
    other = killed.connect(version, **second)
    other.expect_nothing()
    killed.connect(version, client_id="publisher").publish("a", b"three", qos=2)
    other.expect_message("a", b"three", qos=2)
    again = killed.connect(version, **lasting(version))
    assert again.expect_message("a", b"one", qos=2, dup=True) == one
    again.expect_acks(PUBREL, two)
    again.ack(PUBREC, one)
    again.expect_acks(PUBREL, one)
    again.ack(PUBCOMP, one, two)
    again.expect_nothing()
    assert killed.row("mqtt.share.group.a")["messages"] == 1


def test_one_member_has_a_shared_message_whenever_the_broker_is_killed(still: Still, tmp_path: Path) -> None:
    before = tmp_path / "before"
    server = still({}, data_dir=str(before))
    first, publisher = server.connect(**FIVE), server.connect(client_id="publisher")
    second = {**FIVE, "client_id": "second"}
    server.connect(**second).disconnect(session_expiry_interval=1000)
    first.subscribe("$share/group/a", qos=2)
    (segment,) = before.glob("*.log")
    # The records of the second message do not end with zeros, as the room behind them does.
    for body in (b"zero", b"one"):
        publisher.publish("a", body, qos=2)
        number = first.expect_message("a", body, qos=2)
        if body == b"zero":
            first.ack(PUBREC, number)
            first.expect_acks(PUBREL, number)
            first.ack(PUBCOMP, number)
    start = len(segment.read_bytes().rstrip(b"\0"))
    first.ack(PUBREC, number)
    first.expect_acks(PUBREL, number)
    octets = segment.read_bytes()
    seen = set()
    for cut in range(start, len(octets.rstrip(b"\0")) + 8, 4):
        path = tmp_path / f"killed at {cut}"
        shutil.copytree(before, path)
        (path / segment.name).write_bytes(octets[:cut])
        killed = still({}, data_dir=str(path))
        other = killed.connect(**second)
        other.subscribe("$share/group/a", qos=2)
        other.expect_nothing()
        came = killed.connect(**FIVE).next()
        assert isinstance(came, Message | Ack)
        assert came.id == number
        seen.add(type(came))
        killed.close()
    assert seen == {Message, Ack}


def test_a_message_of_a_shared_queue_that_is_gone_is_released(still: Still, tmp_path: Path) -> None:
    """Otherwise the client would take the next message with this identifier for the same one."""
    server = still({}, data_dir=str(tmp_path / "before"))
    first = server.connect(**FIVE)
    first.subscribe("$share/group/a", qos=2)
    server.connect(client_id="publisher").publish("a", b"one", qos=2)
    number = first.expect_message("a", b"one", qos=2)
    first.unsubscribe("$share/group/a")
    # Another queue of the same name, with other messages at the same positions.
    first.subscribe("$share/group/a", qos=1)
    shutil.copytree(tmp_path / "before", tmp_path / "killed")
    killed = still({}, data_dir=str(tmp_path / "killed"))
    killed.connect(client_id="publisher").publish("a", b"two", qos=2)
    again = killed.connect(**FIVE)
    came = {type(each): each for each in (again.next(), again.next())}
    assert came[Ack] == Ack(PUBREL, number)
    two = came[Message]
    assert isinstance(two, Message)
    assert (two.payload, two.id != number) == (b"two", True)
    again.ack(PUBCOMP, number)
    again.ack(PUBACK, two.id)
    again.expect_nothing()


@pytest.mark.parametrize("qos", [0, 1])
def test_a_shared_message_that_waits_for_the_disk_has_the_qos_of_its_subscription(
    still: Still, tmp_path: Path, qos: int
) -> None:
    """The subscription changes while identifiers of QoS 2 are written."""
    server = still({}, data_dir=str(tmp_path / "before"))
    first = server.connect(**FIVE)
    first.subscribe("$share/group/a", qos=2)
    server.hold_disk()
    server.publish("a", b"one", persistent=True)
    first.send(Subscribe(7, (subscription("$share/group/a", qos),)))
    server.free_disk()
    came = [first.next(), first.next()]
    (message,) = [each for each in came if isinstance(each, Message)]
    assert (message.payload, message.qos) == (b"one", qos)
    if qos:
        first.ack(PUBACK, message.id)
    shutil.copytree(tmp_path / "before", tmp_path / "killed")
    killed = still({}, data_dir=str(tmp_path / "killed"))
    killed.connect(**FIVE).expect_nothing()


def test_a_session_that_has_expired_meanwhile_is_gone(restart: Callable[..., StillServer]) -> None:
    server = restart()
    first = server.connect(**FIVE)
    first.subscribe("a", qos=1)
    first.close()
    server.pass_time(999)
    assert server.session("lasting") is not None
    server = restart()
    assert server.session("lasting") is not None
    server.pass_time(1001)
    assert server.session("lasting") is None
    again = restart().connect(**FIVE)
    assert not again.connack.session_present


def test_a_clean_start_forgets_what_the_disk_has(restart: Callable[..., StillServer], version: int) -> None:
    first = restart().connect(version, **lasting(version))
    first.subscribe("a", qos=2)
    first.close()
    restart().connect(version, client_id="lasting", clean_start=True).close()
    server = restart()
    assert server.session("lasting") is None
    names = [row["name"] for row in server.engine.inspect("queues")]
    assert "mqtt.session.lasting" not in names


def test_what_was_not_acknowledged_has_the_same_identifier(
    restart: Callable[..., StillServer], version: int
) -> None:
    server = restart()
    first = server.connect(version, **lasting(version))
    first.subscribe("a", qos=2)
    other = server.connect(version, client_id="other")
    for payload in (b"one", b"two"):
        other.publish("a", payload, qos=2)
    numbers = [first.expect_message("a", payload, qos=2) for payload in (b"one", b"two")]
    # The first is received, the second is not.
    first.ack(PUBREC, numbers[0])
    first.expect_acks(PUBREL, numbers[0])
    first.close()
    again = restart().connect(version, **lasting(version))
    came = [again.next(), again.next()]
    assert Ack(PUBREL, numbers[0]) in came
    (message,) = [one for one in came if one != Ack(PUBREL, numbers[0])]
    assert (message.payload, message.id, message.dup) == (b"two", numbers[1], True)  # type: ignore[union-attr]
    again.ack(PUBCOMP, numbers[0])
    again.ack(PUBREC, numbers[1])
    again.expect_acks(PUBREL, numbers[1])
    again.ack(PUBCOMP, numbers[1])
    again.close()
    restart().connect(version, **lasting(version)).expect_nothing()


def test_what_was_begun_with_qos_2_goes_on_with_it(restart: Callable[..., StillServer]) -> None:
    """[MQTT-4.4.0-1], [MQTT-4.3.3-1]: with QoS 1 the client could not know it for the same message."""
    server = restart()
    client = server.connect(5, **FIVE)
    client.subscribe("a", qos=2)
    for body in (b"one", b"two"):
        server.publish("a", body, persistent=True)
    ids = [client.expect_message("a", body, 2) for body in (b"one", b"two")]
    client.subscribe("a", qos=1)
    server.publish("a", b"three", persistent=True)
    client.expect_message("a", b"three", 1)
    for _ in range(2):
        client = restart().connect(5, **FIVE)
        assert [client.expect_message("a", body, 2, dup=True) for body in (b"one", b"two")] == ids
        client.expect_message("a", b"three", 1, dup=True)
    client.ack(PUBREC, *ids)
    client.expect_acks(PUBREL, *ids)


def test_an_identifier_that_was_received_is_known(restart: Callable[..., StillServer], version: int) -> None:
    server = restart()
    first = server.connect(version, **lasting(version))
    reader = {**lasting(version), "client_id": "reader"}
    server.connect(version, **reader).subscribe("a", qos=1)
    first.send(publish("a", b"once", 2, 5))
    first.expect_acks(PUBREC, 5)
    first.close()
    server = restart()
    again = server.connect(version, **lasting(version))
    again.send(publish("a", b"once", 2, 5, dup=True))
    again.expect_acks(PUBREC, 5)
    again.ack(PUBREL, 5)
    again.expect_acks(PUBCOMP, 5)
    # It is free now, also after another start.
    again.close()
    server = restart()
    again = server.connect(version, **lasting(version))
    again.publish("a", b"again", qos=2, number=5)
    there = server.connect(version, **reader)
    assert [there.next().payload, there.next().payload] == [b"once", b"again"]  # type: ignore[union-attr]
    there.expect_nothing()


def test_a_release_of_an_unknown_identifier_is_told(restart: Callable[..., StillServer]) -> None:
    client = restart().connect(**FIVE)
    client.ack(PUBREL, 5)
    client.expect_acks(PUBCOMP, 5, code=ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)


def test_retained_messages_are_there(restart: Callable[..., StillServer], version: int) -> None:
    client = restart().connect(version, client_id="other")
    client.publish("kept/a", b"old", qos=1, retain=True)
    client.publish("kept/a", b"new", qos=0, retain=True)
    client.publish("kept/b", b"gone", qos=1, retain=True)
    client.publish("kept/b", b"", qos=1, retain=True)
    for _ in range(2):
        again = restart().connect(version, client_id="reader")
        again.subscribe("kept/#", qos=1)
        again.expect_message("kept/a", b"new", retain=True)
        again.expect_nothing()


def test_a_retained_message_expires_by_the_time_of_day(restart: Callable[..., StillServer]) -> None:
    server = restart()
    server.connect().publish("kept", b"x", retain=True, message_expiry_interval=100)
    server = restart()
    server.pass_time(40)
    reader = server.connect()
    reader.subscribe("kept")
    reader.expect_message("kept", retain=True, message_expiry_interval=60)
    server.pass_time(61)
    reader.subscribe("kept")
    reader.expect_nothing()


def test_subscriptions_in_one_write_are_described_once_a_turn(
    restart: Callable[..., StillServer],
) -> None:
    server = restart(max_subscriptions=2000)
    client = server.connect(**FIVE)
    descriptions = server.engine.broker.vhost("/").stored_set("mqtt.sessions")
    before = descriptions.next_number
    client.send(*[Subscribe(1, (Subscription(f"a/{number}", 1),)) for number in range(2000)])
    for _ in range(2000):
        client.expect(Suback)
    # A few reads, and not one for each subscription.
    assert descriptions.next_number - before < 50
    client.close()
    server = restart(max_subscriptions=2000)
    again = server.connect(**FIVE)
    server.connect(client_id="other").publish("a/1999", b"there", qos=1)
    again.expect_message("a/1999", b"there", qos=1)


def test_of_many_subscriptions_only_those_that_change_are_written(
    restart: Callable[..., StillServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = 0
    keep = Descriptions.keep

    def counted(descriptions: Descriptions, description: Description) -> None:
        nonlocal written
        written += len(description.subscriptions)
        keep(descriptions, description)

    monkeypatch.setattr(Descriptions, "keep", counted)
    client = restart().connect(**FIVE)
    for number in range(1000):
        client.subscribe(subscription(f"a/{number}", 1))
    # The first hundred are written as a whole each time. As a whole always, it would be 500,500.
    assert written < 10_000
    written = 0
    client.subscribe(subscription("a/7", 2), subscription("a/8", 1))
    client.disconnect()
    assert written < 5


def test_changes_of_many_subscriptions_are_there_again(restart: Callable[..., StillServer]) -> None:
    random, wanted = Random(1), {f"a/{number}": 1 for number in range(150)}
    client = restart().connect(**FIVE)
    client.subscribe(*[subscription(name, qos) for name, qos in wanted.items()])
    for _ in range(8):
        for _ in range(random.randrange(60)):
            name, qos = f"a/{random.randrange(200)}", random.randrange(3)
            if random.randrange(3) or name not in wanted:
                client.subscribe(subscription(name, qos))
                wanted[name] = qos
            else:
                client.unsubscribe(name)
                del wanted[name]
        if random.randrange(2):
            client.close()
        server = restart()
        session = server.session("lasting")
        assert session is not None
        assert {name: each.qos for name, each in session.subscriptions.items()} == wanted
        client = server.connect(**FIVE)
        assert client.connack.session_present


def test_changes_whose_beginning_a_crash_has_taken_are_ignored(restart: Callable[..., StillServer]) -> None:
    server = restart()
    client = server.connect(**FIVE)
    client.subscribe(*[subscription(f"a/{number}", 1) for number in range(150)])
    client.subscribe(subscription("a/0", 2))
    descriptions = server.engine.broker.vhost("/").stored_set("mqtt.sessions")
    *_, (first, _) = descriptions.numbers()
    # The whole one before the change.
    descriptions.drop(first, first + 1)
    server = restart()
    assert server.session("lasting") is None
    assert not server.engine.broker.vhost("/").stored_set("mqtt.sessions").numbers()


@pytest.mark.parametrize("limit", [{"x-max-length": 3}, {"x-max-length-bytes": 3}])
def test_messages_and_identifiers_are_on_disk_together_where_a_full_queue_refuses_some(
    still: Still, tmp_path: Path, limit: dict[str, Any]
) -> None:
    """Whenever the broker is killed: otherwise a message would come twice, or not at all."""
    before = tmp_path / "before"
    full = {"name": "full", "durable": True, "arguments": {**limit, "x-overflow": "reject-publish"}}
    options = {"queues": [full], "bindings": [{"queue": "full", "exchange": "amq.topic", "key": "t"}]}
    server = still({}, data_dir=str(before), **options)
    client = server.connect(**FIVE)
    (segment,) = before.glob("*.log")
    start = len(segment.read_bytes().rstrip(b"\0"))  # behind that, the file has room
    client.send(*[publish("t", b"x", 2, number) for number in range(1, 6)])
    client.expect_acks(PUBREC, 1, 2, 3)
    client.expect_acks(PUBREC, 4, 5, code=ReasonCode.QUOTA_EXCEEDED)
    octets = segment.read_bytes()
    seen = set()
    for cut in range(start, len(octets.rstrip(b"\0")) + 8, 4):
        path = tmp_path / f"killed at {cut}"
        shutil.copytree(before, path)
        (path / segment.name).write_bytes(octets[:cut])
        killed = still({}, data_dir=str(path), **options)
        session = killed.session("lasting")
        assert session is not None
        count = killed.row("full")["messages"]
        assert [number for number in range(1, 6) if number in session.received] == list(range(1, count + 1))
        seen.add(count)
        killed.close()
    assert {0, 3} <= seen


# Wills

WATCHER: dict[str, Any] = {**FIVE, "client_id": "watcher"}


@pytest.fixture(params=["stopped", "killed"])
def end(request: pytest.FixtureRequest, still: Still, tmp_path: Path) -> Callable[[StillServer], StillServer]:
    """End a broker while its clients are connected, and start it anew."""

    def end_and_start(server: StillServer, **options: Any) -> StillServer:
        path = tmp_path / "after"
        if request.param == "killed":
            # What is on disk at this moment.
            shutil.copytree(tmp_path / "before", path)
            return still({}, data_dir=str(path), **options)
        server.engine.stop()
        return still({}, data_dir=str(tmp_path / "before"), **options)

    return end_and_start


End = Callable[..., StillServer]


@pytest.fixture
def watched(still: Still, tmp_path: Path) -> StillServer:
    """A broker with a session that gets all wills."""
    server = still({}, data_dir=str(tmp_path / "before"), users=USERS)
    server.connect(**WATCHER).subscribe("w/#", qos=2)
    return server


USERS: dict[str, Any] = {"guest": {"password": "guest"}, "u": {"password": "p"}}


def watcher(server: StillServer) -> RawClient:
    return server.connect(**WATCHER)


def test_a_will_outlives_the_broker(watched: StillServer, end: End, version: int) -> None:
    """MQTT 5.0, 3.1.2.5: it may be published after a restart.  It has all that it had."""
    more: dict[str, Any] = {"content_type": "text/plain", "user_properties": (("a", "1"), ("a", "2"))}
    if version == 4:
        more = {}
    watched.connect(version, **lasting(version), will=will("w/1", b"gone", 1, retain=True, **more))
    server = end(watched)
    reader = watcher(server)
    reader.ack(PUBACK, reader.expect_message("w/1", b"gone", 1, **more))
    reader.expect_nothing()
    late = server.connect(client_id="late")
    late.subscribe("w/1")
    late.expect_message("w/1", b"gone", retain=True, **more)


def test_a_will_that_waits_for_its_delay_outlives_the_broker(watched: StillServer, end: End) -> None:
    watched.connect(**FIVE, will=will("w/1", qos=1, will_delay_interval=10))
    server = end(watched)
    reader = watcher(server)
    server.pass_time(9)
    reader.expect_nothing()
    server.pass_time(1.1)
    reader.expect_message("w/1", b"will", 1)


def test_a_client_that_comes_back_after_the_restart_cancels_its_will(watched: StillServer, end: End) -> None:
    """[MQTT-3.1.3-9]"""
    watched.connect(**FIVE, will=will("w/1", qos=1, will_delay_interval=10))
    server = end(watched)
    server.connect(**FIVE)
    server.pass_time(20)
    watcher(server).expect_nothing()


def test_a_will_is_published_when_its_session_ends_after_the_restart(watched: StillServer, end: End) -> None:
    brief = {**FIVE, "session_expiry_interval": 5}
    watched.connect(**brief, will=will("w/1", qos=1, will_delay_interval=10))
    server = end(watched)
    server.pass_time(5.1)
    watcher(server).expect_message("w/1", b"will", 1)


def test_a_will_is_not_published_twice_nor_after_disconnect(watched: StillServer, end: End) -> None:
    """Neither one whose delay was over before the broker ended."""
    for number, delay in enumerate((0, 10)):
        lost = {**FIVE, "client_id": f"lost {number}"}
        watched.connect(**lost, will=will(f"w/{number}", qos=1, will_delay_interval=delay)).close()
    watched.pass_time(11)
    watched.connect(**FIVE, will=will("w/2", qos=1)).disconnect()
    server = end(watched)
    reader = watcher(server)
    for number in range(2):
        reader.ack(PUBACK, reader.expect_message(f"w/{number}", b"will", 1, dup=True))
    server.pass_time(20)
    reader.expect_nothing()


@pytest.mark.parametrize("down, is_due", [(4, False), (7, True)])
@pytest.mark.parametrize("expiry", [1000, 9])
def test_the_delay_of_a_will_goes_on_while_the_broker_is_down(
    watched: StillServer, end: End, down: float, is_due: bool, expiry: int
) -> None:
    """So does the expiry of its session."""
    clock = watched.vhost.broker.clock(watched.host.now())
    lost = {**FIVE, "session_expiry_interval": expiry}
    watched.connect(**lost, will=will("w/1", qos=1, will_delay_interval=9)).close()
    watched.pass_time(3)
    server = end(watched, day=clock + 3 + down)
    reader = watcher(server)
    if not is_due:
        reader.expect_nothing()
        server.pass_time(2.1)
    reader.expect_message("w/1", b"will", 1)
    server.pass_time(20)
    reader.expect_nothing()


@pytest.mark.parametrize("set_by, left", [(10 * YEAR, 19), (-10 * YEAR, 29)])
def test_nothing_expires_because_the_clock_was_set(
    watched: StillServer, end: End, set_by: float, left: float
) -> None:
    """A session and a message were there before that, and one of each after it.

    If it was set back, the time between two starts does not count.
    """
    brief = {**FIVE, "session_expiry_interval": 30}
    watched.vhost.declare_queue("q", None, watched.host.now(), durable=True)

    def leave_behind(name: str) -> None:
        watched.connect(**{**brief, "client_id": name}).close()
        message = batch_of_one(
            name.encode(), Envelope(key="q", exchange="", persistent=True, expiration=30_000)
        )
        watched.vhost.publish(message, watched.host.now())
        watched.engine.finish_turn(watched.host.now())

    def there(server: StillServer) -> tuple[list[str], int]:
        sessions = [name for name in ("early", "late") if server.session(name) is not None]
        return sessions, server.row("q")["messages"]

    clock = watched.vhost.broker.clock(watched.host.now())
    leave_behind("early")
    watched.set_time_of_day(clock + set_by)
    watched.pass_time(1)
    leave_behind("late")
    watched.process()  # until it is written
    assert watched.vhost.broker.clock(watched.host.now()) == pytest.approx(clock + set_by + 1)
    server = end(watched, day=clock + set_by + 11)
    server.pass_time(left - 0.5)
    assert there(server) == (["early", "late"], 2)
    server.pass_time(1)
    assert there(server) == (["late"], 1)
    server.pass_time(1)
    assert there(server) == ([], 0)


def test_a_broker_without_clients_sees_that_the_clock_was_set(still: Still, tmp_path: Path) -> None:
    server = still({}, data_dir=str(tmp_path))
    server.set_time_of_day(time.time() + YEAR)
    server.pass_time(IDLE_PERIOD)
    (event,) = [event for event in server.host.events if event.what == "clock set"]
    assert event.detail.startswith("by +31,536,000 s")
    server.process()
    assert (tmp_path / "clock").exists()


def test_the_last_look_is_at_the_end(still: Still, tmp_path: Path) -> None:
    server = still({}, data_dir=str(tmp_path))
    server.set_time_of_day(time.time() + YEAR)
    server.engine.stop()
    assert [event.what for event in server.host.events if event.what.startswith("clock")] == ["clock set"]
    assert (tmp_path / "clock").exists()


def test_a_will_is_published_with_the_rights_that_its_user_has_then(watched: StillServer, end: End) -> None:
    for user, number in (("u", 1), ("guest", 2)):
        login = {"user_name": user, "password": USERS[user]["password"].encode()}
        watched.connect(**{**FIVE, "client_id": user}, **login, will=will(f"w/{number}", qos=1))
    server = end(watched, users={"guest": {"password": "guest"}})
    watcher(server).expect_message("w/2", b"will", 1)
    (event,) = [event for event in server.host.events if event.what == "refused"]
    assert "the will of MQTT client 'u'" in event.detail
