"""The management API of RabbitMQ and ours: the same requests to both have the same answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.management_requests import REQUESTS, Asked, ask, differences
from tests.interop.until import until
from tests.interop.watched_broker import watched_broker
from tests.plugins.engines.amqp_client.rabbitmq import RabbitMq
from tests.ports import free_port

pytestmark = [pytest.mark.peer("rabbitmq"), pytest.mark.peer("prometheus-client"), pytest.mark.slow]


@pytest.fixture(scope="module")
def rabbitmq_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port = free_port()
    settings = ["management.tcp.ip = 127.0.0.1", f"management.tcp.port = {port}"]
    node = RabbitMq(tmp_path_factory.mktemp("rabbitmq-management"), ["rabbitmq_management"], settings)
    node.start()
    # It gathers figures every five seconds, and has a node without any before.
    until(lambda: "applications" in ask(port, Asked("GET", "nodes")).content[0])
    yield port
    node.close()


def test_both_answer_the_same(rabbitmq_port: int) -> None:
    with watched_broker() as ours:
        found = [
            f"{asked.login} {asked.method} {asked.path} {asked.body or ''}: {difference}"
            for asked in REQUESTS
            for difference in differences(ask(ours.web, asked), ask(rabbitmq_port, asked))
        ]
    assert not found, "\n".join(found)
