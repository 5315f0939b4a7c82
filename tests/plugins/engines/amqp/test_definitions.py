"""``kernel definitions``: what RabbitMQ would read, and what it has written."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel.topology.control import ControlServer, ask
from kernel.topology.plan import EnginePlan, Plan
from kernel.topology.system import Kernel
from plugins.engines.broker.commands.definitions import as_definitions
from plugins.engines.broker.host.passwords import Password
from plugins.protocols.amqp091.methods import exchange, queue
from tests.kernel.cli.test_commands import Command, kernel
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.plugins.engines.amqp_client.rabbitmq import ControlError, RabbitMq

__all__ = ["kernel"]

OPTIONS = {
    "address": "127.0.0.1:0",
    "exchanges": [{"name": "events", "type": "topic"}],
    "queues": [{"name": "orders", "arguments": {"x-max-length": 9}}],
    "bindings": [{"exchange": "events", "queue": "orders", "key": "order.#"}],
    "policies": {"bounded": {"pattern": "^order", "definition": {"max-length": 5}, "priority": 2}},
}
DEFINITIONS: dict[str, list[dict[str, object]]] = {
    "vhosts": [{"name": "/"}],
    "exchanges": [
        {
            "name": "events",
            "vhost": "/",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        }
    ],
    "queues": [
        {
            "name": "orders",
            "vhost": "/",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-max-length": 9},
        }
    ],
    "bindings": [
        {
            "source": "events",
            "vhost": "/",
            "destination": "orders",
            "destination_type": "queue",
            "routing_key": "order.#",
            "arguments": {},
        }
    ],
    "policies": [
        {
            "vhost": "/",
            "name": "bounded",
            "pattern": "^order",
            "apply-to": "queues",
            "definition": {"max-length": 5},
            "priority": 2,
        }
    ],
}


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A system with two brokers, the second of which has nothing of its own."""
    brokers = (
        EnginePlan(name="one", kind="amqp", options=OPTIONS),
        EnginePlan(name="two", kind="amqp", options={"address": "127.0.0.1:0"}),
    )
    with Kernel(Plan(engines=brokers)) as system, ControlServer(system, tmp_path / "c.sock"):
        system.wait_running()
        with RawClient(int(system.address_of("one").rpartition(":")[2])) as client:
            client.ask(queue.Declare(queue="mine", exclusive=True), queue.DeclareOk)
            client.ask(queue.Bind(queue="mine", exchange="events", routing_key="x"), queue.BindOk)
            yield tmp_path / "c.sock"


def test_export(kernel: Command, path: Path) -> None:
    status, shown, errors = kernel("definitions", "export", "--control", path, "--engine", "one")
    assert (status, errors) == (0, "")
    assert json.loads(shown) == DEFINITIONS


def test_bindings_of_what_has_come_during_the_export_are_left_out() -> None:
    exchanges = [DEFINITIONS["exchanges"][0]]
    queues = [DEFINITIONS["queues"][0] | {"exclusive": False}]
    binding = {"vhost": "/", "source_kind": "exchange", "routing_key": "k", "arguments": {}}
    ends = [
        ("events", "orders", "queue"),
        ("events", "new and exclusive", "queue"),
        ("events", "new", "exchange"),
        ("new", "orders", "queue"),
    ]
    bindings = [
        binding | {"source_name": source, "destination_name": name, "destination_kind": kind}
        for source, name, kind in ends
    ]
    shown = as_definitions(exchanges, queues, bindings)
    assert [(each["source"], each["destination"]) for each in shown["bindings"]] == [("events", "orders")]


def test_one_of_several_brokers_must_be_named(kernel: Command, path: Path) -> None:
    status, _, errors = kernel("definitions", "export", "--control", path)
    assert (status, errors) == (
        1,
        "kernel: several engines have exchanges; say which: --engine one | two\n",
    )


def test_a_broker_that_is_not_there_is_named(kernel: Command, path: Path) -> None:
    _, _, errors = kernel("definitions", "export", "--control", path, "--engine", "three")
    assert errors == "kernel: no engine 'three' has exchanges; those that have: one, two\n"


def _port(path: Path) -> int:
    (row,) = [each for each in ask(path, "status")["status"]["engines"] if each["name"] == "one"]
    return int(row["address"].rpartition(":")[2])


def test_import(kernel: Command, path: Path, tmp_path: Path) -> None:
    more = {"name": "more", "vhost": "/", "arguments": {"x-max-length": 3}}
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(DEFINITIONS | {"queues": [*DEFINITIONS["queues"], more]}))
    status, shown, errors = kernel("definitions", "import", file, "--control", path, "--engine", "one")
    assert (status, shown, errors) == (0, "1 vhost, 1 policy, 1 exchange, 2 queues, 1 binding\n", "")
    exported = json.loads(kernel("definitions", "export", "--control", path, "--engine", "one")[1])
    assert [each["name"] for each in exported["queues"]] == ["orders", "more"]
    with RawClient(_port(path)) as client:
        assert client.ask(queue.Declare(queue="more", passive=True), queue.DeclareOk).message_count == 0


def test_global_parameters_are_exported_and_imported(kernel: Command, path: Path, tmp_path: Path) -> None:
    parameters = [{"name": "owner", "value": {"team": "shop"}}]
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps({"global_parameters": parameters}))
    kernel("definitions", "import", file, "--control", path, "--engine", "one")
    exported = json.loads(kernel("definitions", "export", "--control", path, "--engine", "one")[1])
    assert exported["global_parameters"] == parameters


def test_complaints_name_the_file_and_the_place(kernel: Command, path: Path, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(
        json.dumps(
            {"vhosts": [{"name": "/"}], "queues": [{"name": "q", "vhost": "nowhere"}], "parameters": [{}]}
        )
    )
    status, shown, errors = kernel("definitions", "import", file, "--control", path, "--engine", "two")
    assert (status, shown) == (1, "1 vhost\n")
    assert errors.splitlines() == [
        f"{file}: $.parameters[0]: parameters are not supported",
        f"{file}: $.queues[0]: NOT_ALLOWED - vhost nowhere not found",
    ]


@pytest.mark.parametrize(
    "text, engine, complaint",
    [
        ("{", "one", " is no JSON: "),
        pytest.param("[" * 100_000 + "]" * 100_000, "one", " is no JSON: ", id="too deep"),
        ('{"queues": [{"name": "\\ud800", "vhost": "/"}]}', "one", " is no JSON: "),
        ("[]", "one", "kernel: FILE: these are no definitions: Expected `object`, got `array`\n"),
        (
            '{"queues": [{"name": 1}]}',
            "one",
            "kernel: FILE: these are no definitions: Expected `str`, got `int` - at `$.queues[0].name`\n",
        ),
        ("{}", "three", "there is no engine 'three'"),
        ("{}", None, "several engines have exchanges; say which: --engine one | two"),
    ],
)
def test_what_cannot_be_imported_at_all(
    kernel: Command, path: Path, tmp_path: Path, text: str, engine: str | None, complaint: str
) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(text)
    named = ("--engine", engine) if engine else ()
    status, shown, errors = kernel("definitions", "import", file, "--control", path, *named)
    assert (status, shown) == (1, "")
    assert complaint in errors.replace(str(file), "FILE")


def test_users_are_exported_when_asked_for(kernel: Command, path: Path) -> None:
    shown = kernel("definitions", "export", "--users", "--control", path, "--engine", "one")[1]
    exported = json.loads(shown)
    (guest,) = exported["users"]
    assert (guest["name"], guest["hashing_algorithm"]) == ("guest", "rabbit_password_hashing_sha256")
    assert Password.from_hash(guest["password_hash"], "sha256").is_given_by("guest")
    assert exported["permissions"] == [
        {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    ]


@pytest.mark.slow
@pytest.mark.peer("rabbitmq")
def test_from_rabbitmq_and_back(kernel: Command, path: Path, tmp_path: Path, rabbitmq: RabbitMq) -> None:
    theirs, ours, again = (tmp_path / f"{name}.json" for name in ("theirs", "ours", "again"))
    with RawClient(rabbitmq.port) as client:
        arguments = {"x-message-ttl": 5000, "x-max-priority": 5, "x-dead-letter-exchange": "moved.x"}
        client.ask(queue.Declare(queue="moved.q", durable=True, arguments=arguments), queue.DeclareOk)
        client.ask(exchange.Declare(exchange="moved.x", type="topic", durable=True), exchange.DeclareOk)
        client.ask(queue.Bind(queue="moved.q", exchange="moved.x", routing_key="a.#"), queue.BindOk)
        client.ask(
            exchange.Bind(destination="amq.fanout", source="moved.x", routing_key="b"), exchange.BindOk
        )
    rabbitmq.control("add_vhost", "moved")
    rabbitmq.control("add_user", "mover", "secret")
    rabbitmq.control("set_user_limits", "mover", '{"max-connections": 3}')
    rabbitmq.control("set_permissions", "-p", "moved", "mover", "^m", "", ".*")
    try:
        before = _exported(rabbitmq, theirs)
        theirs.write_text(json.dumps(before))
        where = ("--control", path, "--engine", "two")
        assert kernel("definitions", "import", theirs, *where)[0] == 0
        ours.write_text(kernel("definitions", "export", "--users", *where)[1])
        _clean(rabbitmq)
        rabbitmq.control("import_definitions", str(ours))
        rabbitmq.control("authenticate_user", "mover", "secret")
        after = _exported(rabbitmq, again)
    finally:
        _clean(rabbitmq)
    for what, count in (("users", 2), ("permissions", 2), ("exchanges", 1), ("queues", 1), ("bindings", 2)):
        assert len(before[what]) == count, what
        assert sorted(before[what], key=str) == sorted(after[what], key=str), what


def _exported(rabbitmq: RabbitMq, file: Path) -> dict[str, list[dict[str, str]]]:
    """All that the node exports, but no other test's queues: some expire meanwhile, some come back with an import."""
    rabbitmq.control("export_definitions", str(file))
    exported: dict[str, list[dict[str, str]]] = json.loads(file.read_text())
    for what in ("exchanges", "queues", "bindings"):
        exported[what] = [each for each in exported[what] if "'moved." in str(each)]
    return exported


def _clean(rabbitmq: RabbitMq) -> None:
    with RawClient(rabbitmq.port) as client:
        client.ask(queue.Delete(queue="moved.q"), queue.DeleteOk)
        client.ask(exchange.Delete(exchange="moved.x"), exchange.DeleteOk)
    for command, name in (("delete_vhost", "moved"), ("delete_user", "mover")):
        with contextlib.suppress(ControlError):  # it is not there yet
            rabbitmq.control(command, name)
