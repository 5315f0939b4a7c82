"""rabbitmqadmin, as it is, against ``examples/watched_broker.toml``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from tests.interop.managed_brokers import Managed, watched_broker
from tests.peers import RABBITMQADMIN

pytestmark = [pytest.mark.peer("prometheus-client"), pytest.mark.peer("rabbitmqadmin")]

TIMEOUT = 60.0


@pytest.fixture(scope="module")
def watched() -> Iterator[Managed]:
    """A broker without queues of others."""
    with watched_broker() as managed:
        yield managed


def _admin(managed: Managed, *arguments: str) -> str:
    command = [sys.executable, str(RABBITMQADMIN), "--port", str(managed.web), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _rows(managed: Managed, *arguments: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(_admin(managed, "--format=raw_json", *arguments))
    return found


def test_it_declares_lists_and_deletes(watched: Managed) -> None:
    assert _admin(watched, "declare", "queue", "name=orders", "durable=true") == "queue declared\n"
    assert _admin(watched, "declare", "exchange", "name=events", "type=topic") == "exchange declared\n"
    _admin(watched, "declare", "binding", "source=events", "destination=orders", "routing_key=order.#")
    assert [row["name"] for row in _rows(watched, "list", "queues")] == ["orders"]
    keys = [row["routing_key"] for row in _rows(watched, "list", "bindings") if row["source"] == "events"]
    assert keys == ["order.#"]
    _admin(watched, "delete", "binding", "source=events", "destination_type=queue", "destination=orders",
           "properties_key=order.%23")  # fmt: skip
    assert all(not row["source"] for row in _rows(watched, "list", "bindings"))
    _admin(watched, "delete", "exchange", "name=events")
    _admin(watched, "delete", "queue", "name=orders")
    assert _rows(watched, "list", "queues") == []


def test_it_publishes_gets_and_purges(watched: Managed) -> None:
    _admin(watched, "declare", "queue", "name=work")
    said = _admin(watched, "publish", "routing_key=work", "payload=hello", 'properties={"delivery_mode":2}')
    assert said == "Message published\n"
    for _ in range(2):
        [message] = _rows(watched, "get", "queue=work")
        assert message["payload"] == "hello"
    _admin(watched, "purge", "queue", "name=work")
    assert _rows(watched, "get", "queue=work") == []
    _admin(watched, "delete", "queue", "name=work")


def test_it_has_tables_of_everything(watched: Managed) -> None:
    for what in ["connections", "channels", "consumers", "exchanges", "queues", "bindings", "users", "vhosts", "permissions", "nodes", "parameters", "policies", "operator_policies", "vhost_limits"]:  # fmt: skip
        _admin(watched, "list", what)
    assert "rabbitmq_version" in _admin(watched, "show", "overview")


def test_it_takes_definitions_from_a_broker_and_back(watched: Managed, tmp_path: Path) -> None:
    file = str(tmp_path / "definitions.json")
    _admin(watched, "declare", "queue", "name=kept", "durable=true")
    _admin(watched, "declare", "policy", "name=short", "pattern=^k", 'definition={"max-length":5}')
    _admin(watched, "export", file)
    _admin(watched, "delete", "policy", "name=short")
    _admin(watched, "delete", "queue", "name=kept")
    assert _rows(watched, "list", "policies") == []
    _admin(watched, "import", file)
    [queue] = _rows(watched, "list", "queues")
    assert (queue["name"], queue["policy"]) == ("kept", "short")
    _admin(watched, "delete", "policy", "name=short")
    _admin(watched, "delete", "queue", "name=kept")


def test_it_closes_a_connection(watched: Managed) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", watched.amqp))
    connection.channel()
    [row] = _rows(watched, "list", "connections")
    _admin(watched, "close", "connection", f"name={row['name']}")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="CONNECTION_FORCED"):
        connection.process_data_events(TIMEOUT)
