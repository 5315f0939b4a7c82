"""Login, versions, subscriptions, heart-beats and errors, frame by frame."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plugins.engines.stomp_client.options import StompClientOptions
from tests.notes import for_each
from tests.plugins.engines.stomp_client.in_memory import InMemory

ONE: tuple[dict[str, Any], ...] = ({"destination": "/queue/a"},)
TWO: tuple[dict[str, Any], ...] = (
    *ONE,
    {"destination": "/queue/b", "prefetch": 7, "ack": "client-individual"},
)


def test_connect_has_everything() -> None:
    world = InMemory(login="me", passcode="secret:1", host="shop", heartbeat=2.5, versions=("1.2", "1.1"))
    ((headers, _),) = world.dial().take("CONNECT")
    assert headers == {
        "accept-version": "1.1,1.2",
        "host": "shop",
        "login": "me",
        "passcode": "secret:1",
        "heart-beat": "2500,2500",
    }


def test_without_login_none_is_sent() -> None:
    ((headers, _),) = InMemory().dial().take("CONNECT")
    assert "login" not in headers
    assert "passcode" not in headers


@pytest.mark.parametrize(
    "connected, works",
    [({"version": "1.2"}, True), ({"version": "1.1"}, True), ({}, True), ({"version": "1.3"}, False)],
)
def test_the_broker_chooses_among_the_versions(connected: dict[str, str], works: bool) -> None:
    world = InMemory()
    broker = world.dial()
    broker.answer("CONNECTED", **connected)
    assert broker.ended is not works
    if not works:
        assert "chooses STOMP 1.3" in world.engine.link_statistics()["links"][0]["last_error"]


def test_a_version_that_was_not_offered_is_not_spoken() -> None:
    world = InMemory(versions=("1.2",))
    broker = world.dial()
    broker.answer("CONNECTED")
    assert broker.ended
    assert "see versions" in world.engine.link_statistics()["links"][0]["last_error"]


def test_subscriptions_are_asked_for_one_after_the_other() -> None:
    world = InMemory(subscriptions=TWO)
    broker = world.dial()
    world.feed(b"x")
    broker.answer("CONNECTED", version="1.2")
    ((first, _),) = broker.take("SUBSCRIBE")
    assert first == {
        "id": "/queue/a",
        "destination": "/queue/a",
        "ack": "client",
        "receipt": "subscribe-1",
        "prefetch-count": "1000",
    }
    broker.receipts("subscribe-1")
    ((second, _),) = broker.take("SUBSCRIBE")
    assert (second["id"], second["ack"], second["prefetch-count"]) == ("/queue/b", "client-individual", "7")
    assert broker.sent() == []
    assert world.engine.state == "connecting"
    broker.receipts("subscribe-2")
    assert world.engine.state == "connected"
    assert [body for body, _ in broker.sent()] == [b"x"]


@pytest.mark.parametrize("named", [True, False])
def test_a_refused_subscription_is_left_out_and_tried_again(named: bool) -> None:
    world = InMemory(subscriptions=TWO, reconnect={"first": 5.0, "most": 5.0, "jitter": 0})
    broker = world.dial()
    broker.answer("CONNECTED", version="1.2")
    broker.take("SUBSCRIBE")
    broker.answer("ERROR", message="no queue", **({"receipt_id": "subscribe-1"} if named else {}))
    assert broker.ended
    assert "subscribing to '/queue/a': no queue" in world.host.events[0].detail
    broker = world.dial()
    broker.answer("CONNECTED", version="1.2")
    ((asked, _),) = broker.take("SUBSCRIBE")
    assert asked["id"] == "/queue/b"
    broker.receipts(asked["receipt"])
    assert world.engine.state == "refused"
    world.feed(b"x")
    assert [body for body, _ in broker.sent()] == [b"x"], "the rest works"
    broker.receipts(1)
    world.run(4.0)
    assert broker.take("SUBSCRIBE") == []
    world.run(2.0)
    ((asked, _),) = broker.take("SUBSCRIBE")
    assert asked["id"] == "/queue/a"
    world.feed(b"y")
    assert broker.sent() == [], "an ERROR frame should have one possible cause"
    broker.receipts(asked["receipt"])
    assert world.engine.state == "connected"
    assert [body for body, _ in broker.sent()] == [b"y"]
    assert world.engine.counters.refusals == 1


def test_the_end_of_a_broker_refuses_no_subscription() -> None:
    world = InMemory(subscriptions=ONE)
    broker = world.dial()
    broker.answer("CONNECTED", version="1.2")
    assert len(broker.take("SUBSCRIBE")) == 1
    broker.answer("ERROR", b"CONNECTION_FORCED - the broker is shut down\n", message="connection_forced")
    assert world.engine.counters.refusals == 0
    broker = world.dial()
    broker.answer("CONNECTED", version="1.2")
    assert len(broker.take("SUBSCRIBE")) == 1


@pytest.mark.parametrize("body", ["Access refused\n", "Bad CONNECT\nAccess refused\n"])
def test_a_refused_login_is_told_with_what_to_do(body: str) -> None:
    """The body may repeat what the header says, as CoilMQ's does."""
    world = InMemory(login="me", passcode="wrong")
    broker = world.dial()
    broker.answer("ERROR", body.encode(), message="Bad CONNECT")
    assert broker.ended
    (event,) = world.host.events
    assert event.what == "refused"
    assert "refuses the connection: Bad CONNECT Access refused; check login 'me', passcode" in event.detail
    assert world.engine.state == "refused"
    assert world.engine.counters.refusals == 1


@pytest.mark.parametrize("answered", ["CONNECT", "SUBSCRIBE"])
def test_a_broker_that_does_not_answer_is_given_up(answered: str) -> None:
    world = InMemory(subscriptions=ONE, connect_timeout=3.0, heartbeat=0)
    broker = world.dial()
    if answered == "SUBSCRIBE":
        broker.answer("CONNECTED", version="1.2")
    world.run(2.0)
    assert not broker.ended
    world.run(2.0)
    assert broker.ended
    error = world.engine.link_statistics()["links"][0]["last_error"]
    assert f"has not answered {answered}" in error


def test_heart_beats_go_both_ways() -> None:
    world = InMemory(heartbeat=2.0)
    broker = world.connect(heart_beat="1000,4000")
    for _ in range(10):
        world.run(3.9)
        broker.say(b"\n")
        assert not broker.ended
    assert broker.beats >= 9
    world.run(4.1)
    assert broker.ended, "two intervals of silence"
    assert "no heart-beat" in world.host.events[-1].detail


@pytest.mark.parametrize("ours, theirs", [(0, "1000,1000"), (2.0, "0,0"), (2.0, None)])
def test_no_heart_beats_if_one_side_wants_none(ours: float, theirs: str | None) -> None:
    world = InMemory(heartbeat=ours)
    broker = world.connect(**({"heart_beat": theirs} if theirs else {}))
    world.run(1000.0)
    assert not broker.ended
    assert broker.beats == 0


@for_each(
    "said",
    [
        b"NONSENSE\n\n\0",
        b"CONNECTED\nversion:1.2\n\n\0",
        b"MESSAGE\nsubscription:other\nmessage-id:1\nack:1\n\n\0",
        b"MESSAGE\nsubscription:/queue/a\nmessage-id:1\n\n\0",
        b"MESSAGE\nno colon\n\n\0",
        b"MESSAGE\ncontent-length:1\n\nxx\0",
    ],
)
def test_what_is_not_allowed_ends_the_connection(said: bytes) -> None:
    world = InMemory(subscriptions=ONE)
    broker = world.connect()
    broker.say(said)
    assert broker.ended
    assert "has sent what STOMP does not allow" in world.host.events[-1].detail


def test_messages_before_login_are_not_allowed() -> None:
    world = InMemory()
    broker = world.dial()
    broker.answer("RECEIPT", receipt_id=1)
    assert broker.ended


def test_disconnect_is_said_at_the_end() -> None:
    world = InMemory()
    broker = world.connect()
    assert world.engine.connection is not None
    world.engine.connection.hang_up("over")
    world.run()
    world.feed(b"later")
    assert broker.take("DISCONNECT") == [({}, b"")]
    assert broker.sent() == [], "nothing follows DISCONNECT"
    assert broker.ended


@for_each(
    "options, message",
    [
        ({"address": "mqtt+tcp://h:1"}, "address"),
        ({"versions": ()}, "versions: name one"),
        ({"passcode": "x"}, "set login"),
        ({"login": "a\nb"}, "login: CONNECT cannot carry"),
        ({"destination": ""}, "name where to publish"),
        ({"send_headers": {"receipt": "1"}}, "'receipt' is set by the engine"),
        ({"send_headers": {"": "1"}}, "send_headers"),
        ({"subscriptions": [{"destination": ""}]}, "name what to subscribe to"),
        ({"subscriptions": [*ONE, *ONE]}, "is there twice"),
        ({"subscriptions": [{"destination": "q", "headers": {"ack": "auto"}}]}, "'ack' is set by the engine"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(options, StompClientOptions)
