"""Frames that are not answered are acknowledged by the system at once, as with MQTT (test_acknowledged_at_once.py)."""

from __future__ import annotations

import pytest

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
