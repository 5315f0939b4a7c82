"""Transactions of a session with several receivers, such as a STOMP connection with its subscriptions."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kernel.contracts.message import Batch
from plugins.engines.broker.host.transaction import Transaction
from plugins.engines.broker.routes import Route
from plugins.engines.broker.virtual_host import VirtualHost
from tests.plugins.engines.broker.client import Client, make_vhost, run


class Connection:
    """A session whose subscriptions have a receiver each, and that publishes in transactions."""

    def __init__(self, vhost: VirtualHost) -> None:
        self.vhost = vhost

    def publish(self, batch: Batch, now: float, *, mandatory: bool, route: Route | None = None) -> None:
        self.vhost.publish(batch, now, route)


@pytest.fixture
def vhost() -> VirtualHost:
    return make_vhost()


@pytest.fixture
def subscriptions(vhost: VirtualHost) -> Mapping[str, Client]:
    """Return two receivers; each has one unacknowledged message, and its prefetch is used up."""
    found = {}
    for name in ("a", "b"):
        found[name] = Client(vhost)
        found[name].consume(vhost.declare_queue(name, None, 0.0), name, prefetch=1)
        vhost.publish(run(b"1", b"2", key=name), 0.0)
        assert found[name].received() == [(1, b"1")]
    return found


def test_a_commit_acknowledges_at_the_receiver_of_each_delivery(
    vhost: VirtualHost, subscriptions: Mapping[str, Client]
) -> None:
    transaction = Transaction(routes_at_once=True)
    for client in subscriptions.values():
        transaction.acknowledge(client.receiver, 1, 1, multiple=False, accepted=True)
    transaction.commit(Connection(vhost), 0.0)
    assert [client.receiver.outstanding for client in subscriptions.values()] == [0, 0]
    for client in subscriptions.values():
        assert client.received() == [(2, b"2")]


def test_a_roll_back_restores_the_deliveries_of_each_receiver(
    vhost: VirtualHost, subscriptions: Mapping[str, Client]
) -> None:
    transaction = Transaction(routes_at_once=True)
    for client in subscriptions.values():
        transaction.acknowledge(client.receiver, 1, 1, multiple=False, accepted=False, requeue=True)
        assert len(client.receiver.unacked) == 0
    transaction.roll_back()
    for client in subscriptions.values():
        assert [handed.first_tag for handed in client.receiver.unacked] == [1]
