"""The broker's status under ``$SYS/broker/``."""

from __future__ import annotations

from collections.abc import Callable

from tests.plugins.engines.mqtt.raw_client import RawClient, subscription
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
