"""``kernel policy`` and ``kernel user``: changes of a running broker, as an operator types them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel.topology.control import ControlServer, ask
from kernel.topology.plan import EnginePlan, Plan
from kernel.topology.system import Kernel
from plugins.protocols.amqp091.events import ChannelClosed, ConnectionClosed, MethodReceived
from plugins.protocols.amqp091.methods import basic, exchange, queue
from tests.kernel.cli.test_commands import Command, kernel
from tests.plugins.engines.amqp.raw_client import RawClient

__all__ = ["kernel"]

OPTIONS: dict[str, Any] = {
    "address": "127.0.0.1:0",
    "queues": [{"name": "orders"}],
    "policies": {"bounded": {"pattern": "^order", "definition": {"max-length": 5}}},
    "users": {"guest": {"password": "guest"}, "old": {"password": "old"}},
}


class System:
    """A system with one broker, and the commands for it."""

    def __init__(self, kernel: Command, folder: Path) -> None:
        self._kernel = kernel
        self.folder = folder
        self._socket = folder / "c.sock"

    def do(self, *arguments: str) -> tuple[int, str]:
        """Return the exit status of a command and what it has said on standard error."""
        status, shown, errors = self._kernel(*arguments, "--control", self._socket)
        assert shown == ""
        return status, errors

    def rows(self, what: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = ask(self._socket, what)["rows"]
        return rows

    def row(self, what: str, name: str) -> dict[str, Any]:
        (row,) = [row for row in self.rows(what) if row["name"] == name]
        return row

    def client(self, name: str, password: str) -> RawClient:
        (engine,) = ask(self._socket, "status")["status"]["engines"]
        return RawClient(int(engine["address"].rpartition(":")[2]), response=f"\0{name}\0{password}".encode())

    def password(self, text: str) -> str:
        """Write a file with a password; return its name."""
        file = self.folder / "password"
        file.write_text(f"{text}\n")
        return str(file)


@pytest.fixture
def start(kernel: Command, tmp_path: Path) -> Iterator[Callable[[], System]]:
    """Start a broker with a data directory; called again, instead of the one before."""
    running: list[Any] = []

    def stop() -> None:
        while running:
            running.pop().__exit__(None, None, None)

    def start() -> System:
        stop()
        engine = EnginePlan(
            name="broker", kind="amqp", options=OPTIONS | {"data_dir": str(tmp_path / "data")}
        )
        for part in (system := Kernel(Plan(engines=(engine,))), ControlServer(system, tmp_path / "c.sock")):
            running.append(part.__enter__())
        system.wait_running()
        return System(kernel, tmp_path)

    yield start
    stop()


@pytest.fixture
def system(start: Callable[[], System]) -> System:
    return start()


def applied(system: System) -> str:
    """Which policy a queue has."""
    name: str = system.row("queues", "orders")["policy"]
    return name


def test_a_policy_is_set_replaced_and_deleted(system: System, start: Callable[[], System]) -> None:
    assert system.do("policy", "set", "more", "^ord", '{"max-length": 7}', "--priority", "2") == (0, "")
    assert applied(system) == "more"
    wanted = '{"message-ttl": 1000}'
    assert system.do("policy", "set", "more", "", wanted, "--apply-to", "queues", "--priority", "3") == (
        0,
        "",
    )
    assert system.row("policies", "more") == {
        "engine": "broker",
        "vhost": "/",
        "name": "more",
        "pattern": "",
        "apply-to": "queues",
        "definition": {"message-ttl": 1000},
        "priority": 3,
    }
    system = start()
    assert applied(system) == "more"
    assert system.do("policy", "delete", "more") == (0, "")
    assert applied(system) == "bounded"
    system = start()
    assert applied(system) == "bounded"


def test_a_policy_of_the_file_counts_again(system: System) -> None:
    assert system.do("policy", "set", "bounded", "^order", '{"max-length": 1}') == (0, "")
    assert system.row("policies", "bounded")["definition"] == {"max-length": 1}
    assert system.do("policy", "delete", "bounded") == (0, "")
    assert system.row("policies", "bounded")["definition"] == {"max-length": 5}
    assert system.do("policy", "delete", "bounded") == (
        1,
        "kernel: policy 'bounded' is in the topology file: remove it there, and send SIGHUP\n",
    )


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (("set", "p", "", "{"), "the definition is no JSON: "),
        (("set", "p", "", "[]"), "the definition is no JSON object with keys"),
        (
            ("set", "p", "", '{"max-lenght": 1}'),
            "max-lenght: no such key has an effect here; those that have: ",
        ),
        (("set", "p", "", '{"max-length": -1}'), "max-length = -1: "),
        (("set", "p", "(", '{"max-length": 1}'), "pattern = '(' is no regular expression: "),
        (("set", "p", "", '{"max-length": 1}', "--vhost", "no"), "vhost no not found"),
        (("delete", "p"), "there is no policy 'p' in vhost '/'"),
        (("delete", "p", "--engine", "no"), "there is no engine 'no'"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(
    system: System, arguments: tuple[str, ...], complaint: str
) -> None:
    before = system.rows("policies")
    status, said = system.do("policy", *arguments)
    assert status == 1
    assert complaint in said
    assert "$" not in said
    assert system.rows("policies") == before


def test_a_user_comes_and_goes(system: System, start: Callable[[], System]) -> None:
    given = ("--password-file", system.password("first"), "--tag", "monitoring", "--max-connections", "2")
    assert system.do("user", "add", "eve", *given) == (0, "")
    with pytest.raises(AssertionError, match="access to vhost '/' refused"):
        system.client("eve", "first").__enter__()
    allowed = ("--configure", "^eve", "--write", "^eve|^amq\\.default$", "--read", ".*")
    assert system.do("user", "permit", "eve", *allowed) == (0, "")
    system = start()
    with system.client("eve", "first") as client:
        client.ask(queue.Declare(queue="eve.1"), queue.DeclareOk)
        assert system.row("users", "eve") == {
            "engine": "broker",
            "name": "eve",
            "tags": ["monitoring"],
            "connections": 1,
            "max_connections": 2,
            "changed_at_run_time": True,
        }
        changed = ("--password-file", system.password("second"), "--no-tags", "--max-connections", "-1")
        assert system.do("user", "change", "eve", *changed) == (0, "")
        row = system.row("users", "eve")
        assert (row["tags"], row["max_connections"]) == ([], None)
        assert system.do("user", "forbid", "eve") == (0, "")
        client.send(exchange.Declare(exchange="eve.x"))
        assert client.refusal()[1] == 403
        assert system.do("user", "permit", "eve", "--read", ".*") == (0, "")
        with system.client("eve", "second") as other:
            assert system.do("user", "delete", "eve") == (0, "")
            closed = other.next_of(ConnectionClosed)
            assert isinstance(closed, ConnectionClosed)
            assert closed.reply_text == "CONNECTION_FORCED - user 'eve' is deleted"
    system = start()
    for what in ("users", "accounts", "permissions"):
        assert all("eve" not in row.values() for row in system.rows(what))


def test_a_user_of_the_file_becomes_what_the_file_says(system: System) -> None:
    assert system.do("user", "change", "old", "--password-file", system.password("new")) == (0, "")
    with system.client("old", "new"):
        assert system.do("user", "delete", "old") == (0, "")
    with system.client("old", "old"):
        pass
    assert system.do("user", "delete", "old") == (
        1,
        "kernel: user 'old' is in the topology file: remove the user there, and send SIGHUP\n",
    )


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (("add", "old", "--password-file"), "there is a user 'old' already: kernel user change old"),
        (("change", "eve", "--no-tags"), "there is no user 'eve'"),
        (("delete", "eve"), "there is no user 'eve'"),
        (("permit", "eve"), "there is no user 'eve'"),
        (("permit", "old", "--write", "("), "'(' is no regular expression"),
        (("permit", "old", "--vhost", "no"), "vhost no not found"),
        (("forbid", "eve"), "there is no user 'eve'"),
        (("forbid", "old"), "user 'old' is in the topology file: change the permissions there"),
    ],
)
def test_what_cannot_be_done_with_a_user(system: System, arguments: tuple[str, ...], complaint: str) -> None:
    before = [system.rows(what) for what in ("accounts", "permissions")]
    if arguments[-1] == "--password-file":
        arguments += (system.password("p"),)
    status, said = system.do("user", *arguments)
    assert status == 1
    assert complaint in said
    assert [system.rows(what) for what in ("accounts", "permissions")] == before


def test_an_empty_password_is_refused(system: System) -> None:
    file = system.password("")
    assert system.do("user", "add", "eve", "--password-file", file) == (
        1,
        f"kernel: {file}: its first line is to be the password, and it is empty\n",
    )


def test_nothing_to_change_is_a_wrong_usage(system: System) -> None:
    status, said = system.do("user", "change", "old")
    assert status == 2
    assert "nothing to change" in said


def test_a_broker_without_a_directory_says_that_it_will_forget(kernel: Command, tmp_path: Path) -> None:
    engine = EnginePlan(name="broker", kind="amqp", options=OPTIONS)
    with Kernel(Plan(engines=(engine,))) as running, ControlServer(running, tmp_path / "c.sock"):
        running.wait_running()
        system = System(kernel, tmp_path)
        said = system.do("user", "add", "eve", "--password-file", system.password("p"))
        assert said == (0, "kernel: the broker has no data_dir: this change ends when it stops\n")


def test_a_connection_is_closed_with_a_reason(system: System) -> None:
    with system.client("guest", "guest") as client, system.client("guest", "guest") as other:
        first, second = (row["name"] for row in system.rows("connections"))
        assert system.do("connection", "close", first, "--reason", "for repairs") == (0, "")
        closed = client.next_of(ConnectionClosed)
        assert isinstance(closed, ConnectionClosed)
        assert (closed.reply_code, closed.reply_text) == (320, "CONNECTION_FORCED - for repairs")
        other.ask(queue.Declare(queue="orders", passive=True), queue.DeclareOk)
        assert second in [row["name"] for row in system.rows("connections")]
    status, said = system.do("connection", "close", "nobody")
    assert status == 1
    assert said.endswith("engine 'broker': there is no connection 'nobody'\n")


DELETED = "queue 'orders' deleted; it had 0 ready messages\n"


def test_a_queue_is_purged_and_deleted(kernel: Command, system: System) -> None:
    control = ("--control", str(system.folder / "c.sock"))
    with system.client("guest", "guest") as client:
        for _ in range(4):
            client.publish(b"x", "orders")
        client.get("orders")
        assert kernel("queue", "purge", "orders", *control) == (0, "queue 'orders': 3 messages dropped\n", "")
        assert system.row("queues", "orders")["messages"] == 1, "a client has it"
        client.publish(b"x", "orders")
        client.ask(basic.Qos(), basic.QosOk)
        assert system.do("queue", "delete", "orders", "--if-empty") == (
            1,
            "kernel: nothing was changed: queue 'orders' in vhost '/' not empty\n",
        )
        done = (0, "queue 'orders' deleted; it had 1 ready message\n", "")
        assert kernel("queue", "delete", "orders", "--if-unused", *control) == done
    assert system.rows("queues") == []


def test_a_queue_in_use_is_not_deleted_if_that_is_asked_for(kernel: Command, system: System) -> None:
    with system.client("guest", "guest") as client:
        client.ask(basic.Consume(queue="orders"), basic.ConsumeOk)
        status, said = system.do("queue", "delete", "orders", "--if-unused")
        assert (status, said) == (1, "kernel: nothing was changed: queue 'orders' in vhost '/' in use\n")
        control = ("--control", str(system.folder / "c.sock"))
        assert kernel("queue", "delete", "orders", *control) == (0, DELETED, "")
        cancelled = client.next_of(MethodReceived)
        assert isinstance(cancelled, MethodReceived)
        assert isinstance(cancelled.method, basic.Cancel)


@pytest.mark.parametrize("action", ["purge", "delete"])
def test_a_queue_that_cannot_be_changed(system: System, action: str) -> None:
    with system.client("guest", "guest") as client:
        client.ask(queue.Declare(queue="mine", exclusive=True), queue.DeclareOk)
        for arguments, complaint in (
            (("none",), "no queue 'none' in vhost '/'; `kernel queues` lists all\n"),
            (("order",), "no queue 'order' in vhost '/'; did you mean 'orders'?\n"),
            (("orders", "--vhost", "no"), "vhost no not found"),
            (("mine",), "cannot obtain exclusive access to locked queue 'mine' in vhost '/'"),
            (("orders", "--engine", "no"), "there is no engine 'no'"),
        ):
            status, said = system.do("queue", action, *arguments)
            assert status == 1
            assert complaint in said
        assert len(system.rows("queues")) == 2


def test_rights_of_users_do_not_concern_the_operator(kernel: Command, system: System) -> None:
    """A user who asks, over the management API, has to have them."""
    for name in ("guest", "old"):
        assert system.do("user", "permit", name)[0] == 0
    for what in ("purge-queue", "delete-queue"):
        asked = {"vhost": "/", "name": "orders", "user": "old"}
        answer = ask(system.folder / "c.sock", what, engine="broker", argument=asked)["done"]
        assert answer["refused"]["name"] == "ACCESS_REFUSED"
    control = ("--control", str(system.folder / "c.sock"))
    assert kernel("queue", "delete", "orders", *control) == (0, DELETED, "")


@pytest.mark.parametrize("table", ["users", "permissions", "policies"])
def test_lists_show_no_hash(kernel: Command, system: System, table: str) -> None:
    (account, *_) = system.rows("accounts")
    status, shown, _ = kernel(table, "--json", "--control", system.folder / "c.sock")
    assert status == 0
    assert json.loads(shown)
    assert account["password_hash"] not in shown


def test_topics_are_limited_and_free_again(system: System, start: Callable[[], System]) -> None:
    assert system.do("user", "add", "eve", "--password-file", system.password("x"))[0] == 0
    assert system.do("user", "permit", "eve", "--write", ".*", "--read", ".*", "--configure", ".*")[0] == 0
    for name, pattern in (("amq.topic", "^a[.]{username}$"), ("other", "")):
        done = system.do(
            "user", "permit-topics", "eve", "--exchange", name, "--write", pattern, "--read", ".*"
        )
        assert done == (0, "")
    row = {"engine": "broker", "user": "eve", "vhost": "/", "exchange": "amq.topic"}
    limited = row | {"write": "^a[.]{username}$", "read": ".*"}
    assert limited in system.rows("topic-permissions")
    with system.client("eve", "x") as client:
        client.publish(b"", "a.eve", "amq.topic")
        client.ask(basic.Qos(), basic.QosOk)
        client.publish(b"", "a.adam", "amq.topic")
        assert client.next_of(ChannelClosed).reply_code == 403
    system = start()
    assert len(system.rows("topic-permissions")) == 2
    assert system.do("user", "free-topics", "eve", "--exchange", "amq.topic") == (0, "")
    assert system.do("user", "free-topics", "eve", "--exchange", "amq.topic") == (
        1,
        "kernel: user 'eve' has no permissions for topics of exchange 'amq.topic' in vhost '/'\n",
    )
    with system.client("eve", "x") as client:
        client.publish(b"", "a.adam", "amq.topic")
        client.ask(basic.Qos(), basic.QosOk)
    assert system.do("user", "free-topics", "eve") == (0, "")
    assert start().rows("topic-permissions") == []
