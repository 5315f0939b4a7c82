"""Frames that are not answered are acknowledged by the system at once, as with MQTT (test_acknowledged_at_once.py)."""

from __future__ import annotations

import pytest

from kernel.hosting.connection import Connection
from plugins.engines.broker.host.stream_client import GATHERED
from tests.plugins.engines.stomp.conftest import ServeStomp
from tests.systems import linux_only
from tests.tcp import looks_until_acknowledged

FEW = 20


@linux_only
@pytest.mark.parametrize("size", [1, 1000])
def test_frames_that_are_not_answered(serve: ServeStomp, size: int) -> None:
    broker = serve()
    client, other = broker.connect(), broker.connect()
    for number in range(20):
        client.ask("SEND", destination="/queue/elsewhere")
        # It is sent to, so that the system expects answers.
        client.ask("SUBSCRIBE", destination=f"/queue/{number}", id=number, ack="client-individual")

    def look() -> None:
        other.ask("SEND", destination="/queue/elsewhere")

    client.send("SEND", b"x" * size, destination="/queue/elsewhere")
    assert looks_until_acknowledged(client.socket, look) < FEW
    for _ in range(3):
        other.send("SEND", destination="/queue/0")
    for message in [client.next() for _ in range(3)]:
        client.send("ACK", id=message.headers["ack"])
        assert looks_until_acknowledged(client.socket, look) < FEW


@linux_only
def test_a_client_that_only_receives(serve: ServeStomp) -> None:
    """It may commit, subscribe to another queue, or say good-bye, and wait for the receipt."""
    broker = serve()
    client, other = broker.connect(), broker.connect()
    for number in range(20):
        client.ask("SUBSCRIBE", destination=f"/queue/{number}", id=number, ack="client-individual")
    other.send("SEND", destination="/queue/0")
    client.send("ACK", id=client.next().headers["ack"])

    def look() -> None:
        other.ask("SEND", destination="/queue/elsewhere")

    assert looks_until_acknowledged(client.socket, look) < FEW


def test_who_has_more_to_acknowledge(serve: ServeStomp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its acknowledgements may be gathered, unless a transaction is open: it waits for the end of that."""
    calls = 0

    def acknowledge(self: Connection) -> None:
        nonlocal calls
        calls += 1

    broker = serve()
    client, other = broker.connect(), broker.connect()
    client.ask("SUBSCRIBE", destination="/queue/a", id=0, ack="client-individual")
    for _ in range(GATHERED + 2):
        other.ask("SEND", destination="/queue/a")
    received = [client.next().headers["ack"] for _ in range(GATHERED + 2)]
    monkeypatch.setattr(Connection, "acknowledge", acknowledge)
    for ack in received[:2]:
        client.send("ACK", id=ack)
    broker.wait(lambda: broker.queue("a")["messages_unacknowledged"] == GATHERED)
    assert calls == 0
    client.send("BEGIN", transaction="t")
    broker.wait(lambda: calls == 1)
    client.send("ACK", id=received[2], transaction="t")
    broker.wait(lambda: calls == 2)
    client.ask("COMMIT", transaction="t")
    client.send("ACK", id=received[3])
    broker.wait(lambda: calls == 3)


def test_who_has_many_subscriptions(serve: ServeStomp, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not looked at one by one, in each turn: it counts as one who has much to acknowledge."""
    broker = serve()
    client, other = broker.connect(), broker.connect()
    for number in range(GATHERED + 1):
        client.ask("SUBSCRIBE", destination=f"/queue/{number}", id=number, ack="client-individual")
    other.ask("SEND", destination="/queue/0")
    ack = client.next().headers["ack"]
    monkeypatch.setattr(Connection, "acknowledge", lambda self: pytest.fail("acknowledged at once"))
    client.send("ACK", id=ack)
    broker.wait(lambda: broker.queue("0")["messages_unacknowledged"] == 0)
    assert client.ask("UNSUBSCRIBE", id=0).command == "RECEIPT"
