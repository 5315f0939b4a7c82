"""Tools of RabbitMQ, as they are, against ``examples/watched_broker.toml``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from amqpstorm.management import ApiError, ManagementApi

from tests.interop.watched_broker import Watched, watched_broker

pytestmark = pytest.mark.peer("prometheus-client")

RABBITMQADMIN = next(
    iter(Path("/usr/lib/rabbitmq/lib").glob("*/plugins/rabbitmq_management-*/priv/www/cli/rabbitmqadmin")),
    Path(),
)
TIMEOUT = 60.0


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    with watched_broker() as ports:
        yield ports


# rabbitmqadmin


def _admin(watched: Watched, *arguments: str) -> str:
    command = [sys.executable, str(RABBITMQADMIN), "--port", str(watched.web), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _rows(watched: Watched, *arguments: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(_admin(watched, "--format=raw_json", *arguments))
    return found


@pytest.mark.peer("rabbitmq")
def test_rabbitmqadmin_declares_lists_and_deletes(watched: Watched) -> None:
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


@pytest.mark.peer("rabbitmq")
def test_rabbitmqadmin_publishes_gets_and_purges(watched: Watched) -> None:
    _admin(watched, "declare", "queue", "name=work")
    said = _admin(watched, "publish", "routing_key=work", "payload=hello", 'properties={"delivery_mode":2}')
    assert said == "Message published\n"
    for _ in range(2):
        [message] = _rows(watched, "get", "queue=work")
        assert message["payload"] == "hello"
    _admin(watched, "purge", "queue", "name=work")
    assert _rows(watched, "get", "queue=work") == []
    _admin(watched, "delete", "queue", "name=work")


@pytest.mark.peer("rabbitmq")
def test_rabbitmqadmin_has_tables_of_everything(watched: Watched) -> None:
    for what in ["connections", "channels", "consumers", "exchanges", "queues", "bindings", "users", "vhosts", "permissions", "nodes", "parameters", "policies", "operator_policies", "vhost_limits"]:  # fmt: skip
        _admin(watched, "list", what)
    assert "rabbitmq_version" in _admin(watched, "show", "overview")


@pytest.mark.peer("rabbitmq")
def test_rabbitmqadmin_takes_definitions_from_a_broker_and_back(watched: Watched, tmp_path: Path) -> None:
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


@pytest.mark.peer("rabbitmq")
def test_rabbitmqadmin_closes_a_connection(watched: Watched) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", watched.amqp))
    connection.channel()
    [row] = _rows(watched, "list", "connections")
    _admin(watched, "close", "connection", f"name={row['name']}")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="CONNECTION_FORCED"):
        connection.process_data_events(TIMEOUT)


# AMQPStorm


@pytest.fixture
def amqpstorm(watched: Watched) -> ManagementApi:
    return ManagementApi(f"http://127.0.0.1:{watched.web}", "guest", "guest", timeout=TIMEOUT)


def test_amqpstorm_manages_queues_exchanges_and_messages(amqpstorm: ManagementApi) -> None:
    amqpstorm.queue.declare("storm", durable=True)
    amqpstorm.exchange.declare("sky", "direct")
    amqpstorm.queue.bind("storm", "sky", "key")
    assert amqpstorm.basic.publish("body", "key", "sky", properties={"app_id": "me"}) == {"routed": True}
    [message] = amqpstorm.basic.get("storm", requeue=True)
    assert (message.body, message.app_id) == ("body", "me")
    assert [row["name"] for row in amqpstorm.queue.list(show_all=True, name="st")] == ["storm"]
    assert len(amqpstorm.queue.bindings("storm")) == 2
    amqpstorm.queue.unbind("storm", "sky", "key")
    assert len(amqpstorm.queue.bindings("storm")) == 1
    amqpstorm.queue.purge("storm")
    assert amqpstorm.basic.get("storm") == []
    amqpstorm.exchange.delete("sky")
    amqpstorm.queue.delete("storm")
    with pytest.raises(ApiError, match="NOT-FOUND"):
        amqpstorm.queue.get("storm")


def test_amqpstorm_manages_users_and_virtual_hosts(amqpstorm: ManagementApi) -> None:
    amqpstorm.virtual_host.create("other")
    amqpstorm.user.create("somebody", "secret", tags="monitoring")
    amqpstorm.user.set_permission("somebody", "other")
    assert amqpstorm.user.get_permission("somebody", "other")["configure"] == ".*"
    assert amqpstorm.user.get("somebody")["tags"] == ["monitoring"]
    amqpstorm.user.delete_permission("somebody", "other")
    amqpstorm.user.delete("somebody")
    amqpstorm.virtual_host.delete("other")
    assert [row["name"] for row in amqpstorm.virtual_host.list()] == ["/"]


def test_amqpstorm_finds_the_broker_well(amqpstorm: ManagementApi) -> None:
    assert amqpstorm.aliveness_test() == {"status": "ok"}
    assert amqpstorm.healthchecks.get() == {"status": "ok"}
    assert amqpstorm.whoami()["name"] == "guest"
    assert amqpstorm.overview()["object_totals"]["queues"] >= 0
    [node] = amqpstorm.nodes()
    assert amqpstorm.node(node["name"])["running"] is True
