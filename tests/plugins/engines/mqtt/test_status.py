"""The broker's status under ``$SYS/broker/``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plugins.engines.broker.public import VirtualHost
from plugins.engines.mqtt.sessions import Sessions
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.packets import Subscribe
from tests.plugins.engines.mqtt.raw_client import RawClient, connect_packet, subscription
from tests.plugins.engines.mqtt.still_server import StillServer
from tests.plugins.engines.mqtt.test_retained import everything

Still = Callable[..., StillServer]


def values(client: RawClient) -> dict[str, str]:
    """Return what has come, by topic."""
    return {each.topic: bytes(each.payload).decode() for each in everything(client)}


def test_a_new_subscriber_gets_the_present_values_at_once(quiet: StillServer, version: int) -> None:
    other = quiet.connect(version, client_id="other")
    other.subscribe(subscription("a/#", 1), subscription("b", 0))
    other.publish("c", b"kept", 1, retain=True)
    client = quiet.connect(version, client_id="watcher")
    client.subscribe(subscription("$SYS/#", 2))
    messages = everything(client)
    assert all(each.retain and not each.qos for each in messages)
    found = {each.topic.removeprefix("$SYS/broker/"): bytes(each.payload).decode() for each in messages}
    assert found.pop("version").startswith("messaging-kernel version ")
    assert found["uptime"] == "0 seconds"
    assert int(found.pop("bytes/received")) > 0
    assert (found["clients/connected"], found["clients/disconnected"]) == ("2", "0")
    assert found["subscriptions/count"] == "3"
    assert found["retained messages/count"] == "1"
    assert found["messages/received"] == found["publish/messages/received"] == "1"


def test_values_come_again_while_somebody_has_subscribed(still: Still) -> None:
    server = still({"status_seconds": 10})
    client = server.connect(client_id="watcher")
    client.subscribe(subscription("$SYS/broker/uptime"))
    assert values(client) == {"$SYS/broker/uptime": "0 seconds"}
    for seconds in (10, 20):
        server.pass_time(10)
        (message,) = everything(client)
        assert (bytes(message.payload), message.retain) == (b"%d seconds" % seconds, False)
    client.unsubscribe("$SYS/broker/uptime")
    everything(client)
    server.pass_time(30)
    assert everything(client) == []
    # Whoever comes later is served again.
    client.subscribe(subscription("$SYS/broker/+"))
    assert set(values(client)) == {"$SYS/broker/uptime", "$SYS/broker/version"}
    server.pass_time(10)
    assert values(client)["$SYS/broker/uptime"] == "60 seconds"


def test_nothing_is_due_while_nobody_has_subscribed(quiet: StillServer) -> None:
    client = quiet.connect(client_id="watcher")
    before = quiet.engine.broker.next_deadline()
    client.subscribe(subscription("$SYS/broker/uptime"))
    assert quiet.engine.broker.next_deadline() is not None
    client.disconnect()
    quiet.pass_time(60)
    assert quiet.engine.broker.next_deadline() == before


def test_sessions_without_a_connection_are_counted(quiet: StillServer) -> None:
    quiet.connect(client_id="lasting", session_expiry_interval=100).disconnect()
    client = quiet.connect(client_id="watcher")
    client.subscribe(subscription("$SYS/broker/clients/+"))
    assert values(client) == {
        "$SYS/broker/clients/total": "2",
        "$SYS/broker/clients/connected": "1",
        "$SYS/broker/clients/disconnected": "1",
    }


def test_a_virtual_host_does_not_see_what_there_is_in_another(still: Still) -> None:
    server = still(vhosts=["/", "other"])
    names = ["client", "lasting"]
    for name in names:
        client = server.connect(client_id=name, user_name="other:guest", session_expiry_interval=100)
        client.subscribe("a", f"$share/g/{name}", qos=1)
        client.publish(f"kept/{name}", b"x" * 500, 1, retain=True)
    client.disconnect()
    publisher = server.connect(client_id="publisher", user_name="other:guest")
    publisher.publish("a", b"y" * 500, 1)
    publisher.disconnect()
    watcher = server.connect(client_id="watcher")
    watcher.subscribe(subscription("$SYS/#"))
    found = {topic.removeprefix("$SYS/broker/"): value for topic, value in values(watcher).items()}
    server_wide = {name: found.pop(name) for name in ("version", "uptime")}
    own = {name: value for name, value in found.items() if value != "0"}
    # The watcher itself.
    subscribe = encode(Subscribe(9, (subscription("$SYS/#"),)), 5)
    size = len(encode(connect_packet(5, client_id="watcher"), 5)) + len(subscribe)
    assert own == {
        "clients/total": "1",
        "clients/connected": "1",
        "subscriptions/count": "1",
        "bytes/received": str(size),
        "bytes/sent": str(len(encode(watcher.connack, 5))),
    }
    there = server.connect(client_id="there", user_name="other:guest")
    there.subscribe(subscription("$SYS/#"))
    found = {topic.removeprefix("$SYS/broker/"): value for topic, value in values(there).items()}
    assert {name: found[name] for name in server_wide} == server_wide
    assert found["clients/total"] == "3"
    assert found["clients/disconnected"] == "1"
    assert found["subscriptions/count"] == "5"
    assert found["shared_subscriptions/count"] == "2"
    assert found["retained messages/count"] == "2"
    assert found["messages/stored"] == "1"
    assert found["store/messages/bytes"] == "500"
    # Also what has come from clients that are gone.
    assert found["messages/received"] == "3"
    assert int(found["bytes/received"]) > 1500


def test_what_comes_again_is_of_the_own_virtual_host(still: Still) -> None:
    server = still({"status_seconds": 10}, vhosts=["/", "other"])
    here = server.connect(client_id="here")
    there = [server.connect(client_id=name, user_name="other:guest") for name in ("one", "two")]
    for client in (here, *there):
        client.subscribe(subscription("$SYS/broker/clients/total"))
        everything(client)
    server.pass_time(10)
    assert values(here) == {"$SYS/broker/clients/total": "1"}
    assert values(there[0]) == {"$SYS/broker/clients/total": "2"}


def test_many_new_subscribers_have_the_broker_count_once(
    quiet: StillServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = 0
    counts = Sessions.counts

    def count(sessions: Sessions, vhost: VirtualHost) -> dict[str, int]:
        nonlocal counted
        counted += 1
        return counts(sessions, vhost)

    monkeypatch.setattr(Sessions, "counts", count)
    client = quiet.connect(client_id="watcher")
    for number in range(100):
        client.subscribe(subscription(f"$SYS/{number}"))
    assert values(client) == {}
    assert counted == 1
    # They are of this second.
    quiet.pass_time(1)
    client.subscribe(subscription("$SYS/broker/uptime"))
    assert values(client) == {"$SYS/broker/uptime": "1 seconds"}


def test_a_filter_that_begins_with_a_wildcard_does_not_match(quiet: StillServer) -> None:
    """[MQTT-4.7.2-1]"""
    client = quiet.connect(client_id="watcher")
    client.subscribe(subscription("#"), subscription("+/broker/uptime"), subscription("$SYSTEM/#"))
    quiet.pass_time(30)
    assert everything(client) == []


def test_a_period_of_zero_says_nothing(still: Still) -> None:
    server = still({"status_seconds": 0})
    client = server.connect(client_id="watcher")
    client.subscribe(subscription("$SYS/#"))
    server.pass_time(60)
    assert everything(client) == []
