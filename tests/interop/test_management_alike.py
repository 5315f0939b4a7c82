"""The management API of RabbitMQ and ours: the same requests to both have the same answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.managed_brokers import managed_rabbitmq, watched_broker
from tests.interop.management_requests import REQUESTS, ask, differences
from tests.plugins.engines.amqp_client.rabbitmq import VERSION

pytestmark = [
    pytest.mark.peer("rabbitmq"),
    pytest.mark.peer("prometheus-client"),
    pytest.mark.slow,
    pytest.mark.xdist_group("rabbitmq-alike"),  # it has one of its own
    pytest.mark.skipif(
        VERSION >= (4, 0), reason="our API answers as that of 3.10; that of 4 has other answers"
    ),
]


def test_both_answer_the_same(tmp_path: Path) -> None:
    # Neither has anything of other tests.
    with watched_broker() as ours, managed_rabbitmq(tmp_path) as theirs:
        found = [
            f"{asked.login} {asked.method} {asked.path} {asked.body or ''}: {difference}"
            for asked in REQUESTS
            for difference in differences(ask(ours.web, asked), ask(theirs.web, asked))
        ]
    assert not found, "\n".join(found)
