"""Users that change while clients are connected: our broker reads its file again, RabbitMQ obeys rabbitmqctl."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from plugins.protocols.amqp091.events import ConnectionClosed, Delivered
from plugins.protocols.amqp091.methods import basic, queue
from tests.interop.brokers import KernelProcess, in_words_of_3_10
from tests.interop.conftest import KINDS
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.ports import free_port

Put = Callable[..., None]
"""``put(name, password, pattern)`` makes or changes a user; without a password the user is deleted."""


class Users:
    """The users of a broker, and how to change them."""

    def __init__(self, port: int, put: Put) -> None:
        self.port = port
        self.put = put
        self.clients = ExitStack()

    def log_in(self, name: str, password: str) -> RawClient:
        """Return a client, which is closed after the test."""
        response = f"\0{name}\0{password}".encode()
        return self.clients.enter_context(RawClient(self.port, response=response))


def _ours(folder: Path) -> Iterator[Users]:
    users = {"guest": ("guest", ".*")}

    def options() -> str:
        return "".join(
            f'[engines.broker.users.{name}]\npassword = "{password}"\n'
            + "".join(f'{right} = "{pattern}"\n' for right in ("configure", "write", "read"))
            for name, (password, pattern) in users.items()
        )

    with KernelProcess(folder, options(), port=free_port()) as process:

        def put(name: str, password: str = "", pattern: str = ".*") -> None:
            if password:
                users[name] = password, pattern
            else:
                del users[name]
            process.reload(options())

        users_of_ours = Users(process.broker.port, put)
        with users_of_ours.clients:
            yield users_of_ours


@pytest.fixture(params=KINDS)
def users(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Users]:
    if request.param == "kernel":
        yield from _ours(tmp_path)
        return
    rabbitmq = request.getfixturevalue("rabbitmq")
    made: set[str] = set()

    def put(name: str, password: str = "", pattern: str = ".*") -> None:
        if not password:
            made.remove(name)
            rabbitmq.control("delete_user", name)
            return
        rabbitmq.control("change_password" if name in made else "add_user", name, password)
        made.add(name)
        rabbitmq.control("set_permissions", name, pattern, pattern, pattern)

    theirs = Users(rabbitmq.port, put)
    with theirs.clients:
        yield theirs
    for name in list(made):
        put(name)


@pytest.fixture
def witness(users: Users) -> RawClient:
    return users.log_in("guest", "guest")


@pytest.mark.slow
def test_users_change_and_connections_stay(users: Users, witness: RawClient, name: str) -> None:
    witness.ask(queue.Declare(queue=name), queue.DeclareOk)
    users.put("al", "secret")
    client = users.log_in("al", "secret")
    client.ask(basic.Consume(queue=name, no_ack=True), basic.ConsumeOk)
    client.open_channel(2)

    # Other permissions, and another password, for whoever is connected.
    users.put("al", "another", "^something else$")
    client.send(queue.Purge(queue=name), channel=2)
    text = f"ACCESS_REFUSED - access to queue '{name}' in vhost '/' refused for user 'al'"
    level, code, said = client.refusal()
    assert (level, code, in_words_of_3_10(said)) == ("channel", 403, text)
    witness.publish(b"x", name)
    client.wait_for(Delivered)
    with pytest.raises(AssertionError, match="refused"):
        users.log_in("al", "secret")
    users.log_in("al", "another").open_channel(2)

    users.put("bo", "secret")
    other = users.log_in("bo", "secret")
    users.put("al")
    assert client.refusal() == ("connection", 320, "CONNECTION_FORCED - user 'al' is deleted")
    for each in (witness, other):
        each.ask(queue.Declare(queue=name, passive=True), queue.DeclareOk)


@pytest.mark.slow
def test_what_a_deleted_user_had_is_given_back(users: Users, witness: RawClient, name: str) -> None:
    witness.ask(queue.Declare(queue=name), queue.DeclareOk)
    users.put("al", "secret")
    client = users.log_in("al", "secret")
    client.publish(b"x", name)
    assert not client.get(name).redelivered
    users.put("al")
    client.next_of(ConnectionClosed)
    assert witness.get(name).redelivered
