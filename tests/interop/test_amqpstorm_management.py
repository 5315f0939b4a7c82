"""AMQPStorm's tests of its management client, unchanged: our API passes what RabbitMQ passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.client_suites import Suite, check_results, own_environment, run_suite
from tests.interop.managed_brokers import Managed
from tests.interop.management_requests import Asked, ask

pytestmark = [
    pytest.mark.peer("client-suites"),
    pytest.mark.peer("amqpstorm"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

SUITE = Suite(
    "amqpstorm",
    ("amqpstorm/tests/functional/management", "amqpstorm/tests/functional/test_web_based.py"),
    50,
    {"test_api_with_inaccessible": "talks to an address of another network"},
    ("-p", "tests.interop.suites.amqpstorm_ports"),
)
EXPECTED_NAME = "rabbit@rmq.eandersson.net"
"""The suite asks for the name of its author's own cluster."""


def test_the_suite_passes(managed: Managed, tmp_path: Path) -> None:
    assert ask(managed.web, Asked("PUT", "cluster-name", {"name": EXPECTED_NAME})).status == 204
    environment = own_environment() | {
        "AMQP_HOST": "127.0.0.1",
        "AMQP_USERNAME": "guest",
        "AMQP_PASSWORD": "guest",
        "AMQP_HTTP_URL": f"http://127.0.0.1:{managed.web}",
        "SUITE_PORT": str(managed.amqp),
        "SUITE_TLS_PORT": "1",
    }
    check_results(SUITE, run_suite(SUITE, tmp_path, environment))
