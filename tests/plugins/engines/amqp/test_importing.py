"""Definitions in RabbitMQ's form become what the broker has, or complaints with their place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel.contracts.errors import KernelError
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.errors import AccessRefused, NotAllowed
from plugins.engines.broker.host.definition_forms import read_definitions
from plugins.engines.broker.host.importing import PIECE, Imported, Importer
from plugins.engines.broker.host.options import GUEST
from plugins.engines.broker.host.users import Permissions, Users
from plugins.protocols.amqp091.methods import queue
from tests.plugins.engines.amqp.conftest import Server
from tests.plugins.engines.amqp.still_host import StillServer

GUEST_HASH = "6zwgSD4J9Kvjf6CdiphBs6rDEmexpE8T+No5o07TOtUV2Wlo"
"""A RabbitMQ 3.10.8 has exported its guest like this."""
TEST12_HASH = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"

EXPORTED: dict[str, Any] = {
    "rabbit_version": "3.10.8",
    "users": [
        {
            "name": "eve",
            "password_hash": TEST12_HASH,
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["administrator"],
            "limits": {"max-connections": 5},
        }
    ],
    "vhosts": [{"name": "/", "limits": [], "metadata": {"tags": []}}, {"name": "other"}],
    "permissions": [{"user": "eve", "vhost": "other", "configure": "^eve-", "write": "", "read": ".*"}],
    "topic_permissions": [
        {"user": "eve", "vhost": "other", "exchange": "from", "write": "^a[.]", "read": ""}
    ],
    "parameters": [],
    "global_parameters": [],
    "policies": [],
    "queues": [
        {
            "name": "q",
            "vhost": "other",
            "durable": True,
            "auto_delete": False,
            "type": "classic",
            "arguments": {"x-max-length": 7},
        }
    ],
    "exchanges": [
        {
            "name": name,
            "vhost": "other",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        }
        for name in ("from", "to")
    ],
    "bindings": [
        {
            "source": "from",
            "vhost": "other",
            "destination": destination,
            "destination_type": kind,
            "routing_key": "a.#",
            "arguments": {},
        }
        for destination, kind in (("q", "queue"), ("to", "exchange"))
    ],
}


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def users() -> Users:
    return Users({"guest": GUEST})


@pytest.fixture
def run(broker: Broker, users: Users) -> Callable[..., Imported]:
    def run(**document: Any) -> Imported:
        return Importer(broker, users, 0.0).run(read_definitions(document))

    return run


def test_everything_is_made(run: Callable[..., Imported], broker: Broker, users: Users) -> None:
    imported = run(**EXPORTED)
    assert (imported.complaints, imported.ignored) == ([], [])
    assert imported.counts == {
        "users": 1, "vhosts": 2, "permissions": 1, "topic_permissions": 1, "policies": 0,
        "global_parameters": 0, "exchanges": 2, "queues": 1, "bindings": 2,
    }  # fmt: skip
    vhost = broker.vhost("other")
    assert vhost.queues["q"].policy.max_length == 7
    assert {binding.destination.name for binding in vhost.exchanges["from"].bindings.values()} == {"q", "to"}
    login = users.log_in_by_password("eve", "test12", loopback=False)
    assert login is not None
    with pytest.raises(NotAllowed):
        login.enter("/")
    login.enter("other")
    login.require("configure", "queue", "eve-1", "other")
    for operation, name in (("configure", "adam-1"), ("write", "")):
        with pytest.raises(AccessRefused):
            login.require(operation, "queue", name, "other")
    source = vhost.exchanges["from"]
    login.require_topic("write", source, "a.b", "other")
    login.require_topic("write", vhost.exchanges["to"], "b", "other")
    with pytest.raises(
        AccessRefused, match="access to topic 'b' in exchange 'from' in vhost 'other' refused"
    ):
        login.require_topic("write", source, "b", "other")
    with pytest.raises(AccessRefused):
        login.require_topic("read", source, "#", "other")
    assert users.accounts["eve"].max_connections == 5
    assert users.accounts["eve"].tags == ("administrator",)


def test_what_is_there_already_stays(run: Callable[..., Imported], broker: Broker) -> None:
    run(**EXPORTED)
    queue = broker.vhost("other").queues["q"]
    assert run(**EXPORTED).complaints == []
    assert broker.vhost("other").queues["q"] is queue


def test_guest_becomes_what_the_definitions_say_and_stays_on_this_machine(
    run: Callable[..., Imported], users: Users
) -> None:
    hashed = {"name": "guest", "password_hash": TEST12_HASH, "tags": "administrator,monitoring"}
    run(users=[hashed], vhosts=[{"name": "new"}])
    assert users.log_in_by_password("guest", "guest", loopback=True) is None
    assert users.log_in_by_password("guest", "test12", loopback=False) is None
    login = users.log_in_by_password("guest", "test12", loopback=True)
    assert login is not None
    login.enter("/")
    with pytest.raises(NotAllowed):
        login.enter("new")
    assert login.account.tags == ("administrator", "monitoring")
    assert login.account.allowed_in("/") == Permissions()


@pytest.mark.parametrize(
    "document, complaint",
    [
        ({"users": [{"name": "a", "password_hash": "AAAA"}]}, "$.users[0]: a sha256 password hash has 36 octets"),
        ({"users": [{"name": "a", "password_hash": "?"}]}, "$.users[0]: "),
        ({"users": [{"name": "a", "limits": {"max-connections": "x"}}]}, "$.users[0]: max-connections is 'x', not a"),
        ({"users": [{"name": "a", "hashing_algorithm": "rot13"}]}, "$.users[0]: hashing_algorithm 'rot13' is none"),
        (
            {"permissions": [{"user": "no", "vhost": "/", "configure": "", "write": "", "read": ""}]},
            "$.permissions[0]: there is no user 'no'",
        ),
        (
            {"topic_permissions": [{"user": "guest", "vhost": "/", "exchange": "x", "write": "", "read": "("}]},
            "$.topic_permissions[0]: '(' is no regular expression: ",
        ),
        (
            {"topic_permissions": [{"user": "no", "vhost": "/", "exchange": "x", "write": "", "read": ""}]},
            "$.topic_permissions[0]: there is no user 'no'",
        ),
        (
            {"permissions": [{"user": "guest", "vhost": "no", "configure": "", "write": "", "read": ""}]},
            "$.permissions[0]: NOT_ALLOWED - vhost no not found",
        ),
        (
            {"permissions": [{"user": "guest", "vhost": "/", "configure": "(", "write": "", "read": ""}]},
            "$.permissions[0]: '(' is no regular expression",
        ),
        (
            {"exchanges": [{"name": "x", "vhost": "/", "type": "direct"}, {"name": "y", "vhost": "/", "type": "z"}]},
            "$.exchanges[1]: COMMAND_INVALID - unknown exchange type 'z'",
        ),
        (
            {"queues": [{"name": "q", "vhost": "/", "arguments": {"x-max-length": "many"}}]},
            "$.queues[0]: PRECONDITION_FAILED - invalid arg 'x-max-length'",
        ),
        (
            {"bindings": [{"source": "amq.topic", "vhost": "/", "destination": "q", "destination_type": "queue"}]},
            "$.bindings[0]: NOT_FOUND - no queue 'q' in vhost '/'",
        ),
        (
            {"bindings": [{"source": "amq.topic", "vhost": "/", "destination": "q", "destination_type": "shelf"}]},
            "$.bindings[0]: destination_type is 'shelf', not queue or exchange",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_made_is_named_with_its_place(
    run: Callable[..., Imported], broker: Broker, document: dict[str, Any], complaint: str
) -> None:
    imported = run(**{"queues": [{"name": "good", "vhost": "/"}], **document})
    assert len(imported.complaints) == 1
    assert imported.complaints[0].startswith(complaint)
    assert "queues" in document or "good" in broker.vhost("/").queues, "the rest is made all the same"


def test_a_user_of_whom_something_is_complained_is_left_as_it_was(
    run: Callable[..., Imported], users: Users
) -> None:
    wrong = {"password_hash": TEST12_HASH, "limits": {"max-connections": "few"}}
    imported = run(users=[{"name": "guest", **wrong}, {"name": "new", **wrong}])
    assert len(imported.complaints) == 2
    assert "new" not in users.accounts
    login = users.log_in_by_password("guest", "guest", loopback=True)
    assert login is not None
    assert login.account.everywhere == Permissions()


@pytest.mark.parametrize("what", ["parameters"])
def test_what_there_is_not_is_said(run: Callable[..., Imported], what: str) -> None:
    imported = run(**{what: [{"name": "a"}, {"name": "b"}]})
    words = what.replace("_", " ")
    assert imported.ignored == [f"$.{what}[{index}]: {words} are not supported" for index in (0, 1)]
    assert imported.complaints == []


@pytest.mark.parametrize(
    "document, complaint",
    [
        ({"queues": [{"name": 5, "vhost": "/"}]}, r"Expected `str`, got `int` - at `\$.queues\[0\].name`"),
        ({"queues": [{"name": "q"}]}, r"missing required field `vhost` - at `\$.queues\[0\]`"),
        ([], "Expected `object`, got `array`"),
        (b"{", "these are no definitions: Input data was truncated"),
    ],
)
def test_another_form_is_refused_with_its_place(document: object, complaint: str) -> None:
    with pytest.raises(KernelError, match=complaint):
        read_definitions(document)


def test_the_default_exchange_leads_to_every_queue_by_itself(run: Callable[..., Imported]) -> None:
    binding = {
        "source": "",
        "vhost": "/",
        "destination": "q",
        "destination_type": "queue",
        "routing_key": "q",
    }
    assert run(bindings=[binding]).complaints == []


def test_a_file_is_imported_at_the_start(serve: Callable[..., Server], tmp_path: Path) -> None:
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps(EXPORTED | {"parameters": [{"name": "p"}]}))
    server = serve(definitions=str(path))
    assert server.connect("eve", "test12", virtual_host="other").is_open
    said = [event.detail for event in server.host.events if event.what == "ignored"]
    assert said == ["$.parameters[0]: parameters are not supported"]


@pytest.mark.parametrize(
    "text, complaint",
    [
        (None, "No such file or directory"),
        ("{", "line 1, column 2: these are no definitions: Input data was truncated"),
        (
            '{"queues": [{"name": "amq.x", "vhost": "/"}, {"name": "q", "vhost": "none"}]}',
            r"\$.queues\[0\]: ACCESS_REFUSED.*; \$.queues\[1\]: NOT_ALLOWED - vhost none not found",
        ),
    ],
)
def test_a_file_with_mistakes_prevents_the_start_and_is_named(
    still: Callable[..., Any], tmp_path: Path, text: str | None, complaint: str
) -> None:
    path = tmp_path / "definitions.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(KernelError, match=f"definitions = '.*definitions.json': {complaint}"):
        still(definitions=str(path))


def test_a_long_import_leaves_turns_to_others(still: Callable[..., StillServer]) -> None:
    server = still()
    engine, client = server.engine, server.connect()
    queues = [{"name": f"q{number}", "vhost": "/"} for number in range(3 * PIECE)]
    document = {
        "queues": queues,
        "policies": [{"name": "p", "vhost": "/", "pattern": "^q", "definition": {"max-length": 1}}],
    }
    steps = engine.operate("import-definitions", document)
    there = engine.broker.vhost("/").queues
    grown = []
    while True:
        before = len(there)
        try:
            next(steps)
        except StopIteration as done:
            answer = done.value
            break
        grown.append(len(there) - before)
        # A client is served between two pieces.
        client.ask(queue.Declare(queue="q0", passive=True), queue.DeclareOk)
    assert max(grown) <= PIECE
    assert (answer["counts"]["queues"], answer["complaints"]) == (3 * PIECE, [])
    assert {each.operator_policy.name for each in there.values()} == {"p"}


def test_a_long_import_that_is_not_finished_does_no_harm(still: Callable[..., StillServer]) -> None:
    server = still()
    queues = [{"name": f"q{number}", "vhost": "/"} for number in range(3 * PIECE)]
    steps = server.engine.operate("import-definitions", {"queues": queues})
    server.engine.stop()
    steps.close()
