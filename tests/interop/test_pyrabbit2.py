"""pyrabbit2, a client of the management API: the same with ours and with RabbitMQ's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.conftest import Connect
from tests.interop.managed_brokers import Managed
from tests.interop.until import until
from tests.peers import optional

pytestmark = pytest.mark.peer("pyrabbit2")

PYRABBIT: Any = optional("pyrabbit2")
HTTP: Any = optional("pyrabbit2.http")


@pytest.fixture
def client(managed: Managed) -> Any:
    return PYRABBIT.Client(f"127.0.0.1:{managed.web}", "guest", "guest", timeout=60)


def test_the_broker_is_well(client: Any) -> None:
    assert client.is_alive()
    assert client.get_whoami()["name"] == "guest"
    [node] = client.get_nodes()
    assert client.get_overview()["node"] == node["name"]
    assert isinstance(client.get_cluster_name()["name"], str)
    assert isinstance(client.get_extensions(), list)
    with pytest.raises(PYRABBIT.api.APIError, match="No vhost named"):
        client.is_alive("nope")


def test_queues_exchanges_and_bindings(client: Any, managed: Managed, name: str) -> None:
    assert client.create_exchange("/", name, "topic")
    assert client.create_queue("/", name, durable=True, arguments={"x-max-length": 5}) == 201
    assert client.create_queue("/", name, durable=True, arguments={"x-max-length": 5}) == 204
    assert client.create_binding("/", name, name, "order.#") == 201
    keys = {row["routing_key"] for row in client.get_queue_bindings("/", name)}
    assert keys == {name, "order.#"}
    assert client.delete_binding("/", name, name, "order.%23") == 204
    assert client.get_exchange("/", name)["type"] == "topic"
    assert name in {row["name"] for row in client.get_exchanges("/")}
    # RabbitMQ 4 adds the type of the queue.
    arguments = client.get_queue("/", name)["arguments"]
    assert arguments == {"x-max-length": 5} | (
        {"x-queue-type": "classic"} if managed.is_rabbitmq(4, 0) else {}
    )
    assert [row["name"] for row in client.get_queues("/", pattern=f"^{name}$", regex=True)] == [name]
    assert client.delete_queue("/", name) == 204
    assert client.delete_exchange("/", name)
    with pytest.raises(HTTP.HTTPError, match="404"):
        client.get_queue("/", name)


def test_messages(client: Any, name: str) -> None:
    client.create_queue("/", name)
    assert client.publish("/", "amq.default", name, "hello", properties={"content_type": "text/plain"})
    assert not client.publish("/", "amq.default", "nobody's", "hello")
    for _ in range(2):
        [message] = client.get_messages("/", name, requeue=True)
    assert (message["payload"], message["redelivered"]) == ("hello", True)
    assert message["properties"]["content_type"] == "text/plain"
    # RabbitMQ counts its messages every five seconds.
    assert until(lambda: client.get_queue("/", name).get("messages") == 1)
    assert client.get_queue_depth("/", name) == 1
    assert client.purge_queues([(name, "/")])
    assert client.get_messages("/", name) == []
    client.delete_queue("/", name)


def test_users_virtual_hosts_and_permissions(client: Any, name: str) -> None:
    assert client.create_vhost(name) == 201
    assert name in client.get_vhost_names()
    assert client.create_user(name, "secret", tags="monitoring") == 201
    assert client.set_vhost_permissions(name, name, ".*", "^read", "^write") == 201
    permission = client.get_permission(name, name)
    assert (permission["read"], permission["write"]) == ("^read", "^write")
    assert client.get_user_permissions(name) == client.get_vhost_permissions(name)[-1:]
    assert client.delete_permission(name, name) == 204
    assert client.delete_user(name) == 204
    assert client.delete_vhost(name) == 204
    assert name not in client.get_vhost_names()


def test_policies_and_definitions(client: Any, name: str) -> None:
    bound = {"pattern": f"^{name}", "definition": {"max-length": 5}, "priority": 1, "apply-to": "queues"}
    assert client.create_policy("/", name, **bound) == 201
    assert client.get_policy("/", name)["definition"] == {"max-length": 5}
    assert name in {row["name"] for row in client.get_all_policies()}
    client.create_queue("/", name, durable=True)
    definitions = client.get_definitions()
    assert name in {row["name"] for row in definitions["queues"]}
    assert name in {row["name"] for row in definitions["policies"]}
    assert client.delete_policy("/", name) == 204
    client.delete_queue("/", name)


def test_a_connection_is_closed(client: Any, name: str, managed: Managed, connect_to: Connect) -> None:
    connect_to(managed.amqp, client_properties={"connection_name": name}).channel()

    def mine() -> list[dict[str, Any]]:
        found = client.get_connections()
        return [row for row in found if row.get("client_properties", {}).get("connection_name") == name]

    # RabbitMQ shows connections, and then channels, some time after they are there.
    [row] = until(mine)
    assert client.get_connection(row["name"])["user"] == "guest"

    def channels() -> list[str]:
        return [
            each["name"]
            for each in client.get_channels()
            if each.get("connection_details", {}).get("name") == row["name"]
        ]

    [channel] = until(channels)
    assert client.get_channel(channel)["number"] == 1
    assert client.delete_connection(row["name"])
    until(lambda: not mine())


def test_shovels_are_of_a_plugin_that_is_not_there(client: Any, name: str) -> None:
    assert client.get_all_shovels() == []
    with pytest.raises(HTTP.HTTPError, match="component shovel not found"):
        client.create_shovel("/", name, value={"src-uri": "amqp://", "dest-uri": "amqp://"})
