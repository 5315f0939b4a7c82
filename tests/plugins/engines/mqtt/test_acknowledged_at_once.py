"""What a client sends and the broker does not answer is acknowledged by the system at once.

With Nagle's algorithm a client sends nothing more before that.  By itself the system acknowledges after 40 ms.
In that time the broker answers some hundred questions of another client.
"""

from __future__ import annotations

import pytest

from tests.plugins.engines.mqtt.conftest import Shared
from tests.plugins.engines.mqtt.raw_client import PUBACK, RawClient, publish, subscription
from tests.systems import linux_only
from tests.tcp import looks_until_acknowledged

pytestmark = linux_only

FEW = 20


@pytest.fixture
def other(broker: Shared) -> RawClient:
    """Another client."""
    return broker.connect(client_id="other")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name of the test's own: the broker is shared."""
    return str(request.node.name)


@pytest.fixture
def client(broker: Shared, name: str) -> RawClient:
    """A client of whom the system expects that all it sends is answered."""
    client = broker.connect(client_id=f"{name}-client")
    client.subscribe(subscription(f"{name}/in", 1))
    client.publish(f"{name}/out", b"x", 1)
    for _ in range(20):
        client.sync()
    return client


@pytest.mark.parametrize("size", [1, 1000])
def test_a_message_without_an_answer(client: RawClient, other: RawClient, name: str, size: int) -> None:
    # Longer ones are no packets of full size either, so the next one may wait behind them.
    client.send(publish(f"{name}/out", bytes(size)))
    assert looks_until_acknowledged(client.wire, other.sync) < FEW


def test_the_acknowledgement_of_a_message(client: RawClient, other: RawClient, name: str) -> None:
    other.publish(f"{name}/in", b"x", 1)
    client.ack(PUBACK, client.expect_message(f"{name}/in", b"x", 1))
    assert looks_until_acknowledged(client.wire, other.sync) < FEW


def test_several_messages_that_are_acknowledged_one_by_one(
    client: RawClient, other: RawClient, name: str
) -> None:
    for _ in range(3):
        other.publish(f"{name}/in", b"x", 1)
    for number in [client.expect_message(f"{name}/in", b"x", 1) for _ in range(3)]:
        client.ack(PUBACK, number)
        assert looks_until_acknowledged(client.wire, other.sync) < FEW


def test_a_client_that_only_receives(broker: Shared, other: RawClient, name: str) -> None:
    """It may subscribe to what a message names."""
    client = broker.connect(client_id=f"{name}-client")
    client.subscribe(subscription(f"{name}/in", 1))
    for _ in range(20):
        client.sync()
    other.publish(f"{name}/in", b"x", 1)
    client.ack(PUBACK, client.expect_message(f"{name}/in", b"x", 1))
    assert looks_until_acknowledged(client.wire, other.sync) < FEW
