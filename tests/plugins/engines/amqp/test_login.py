"""Who gets in: users, mechanisms, virtual hosts, permissions."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pika.exceptions
import pytest

from kernel.hosting.loopback import is_loopback
from plugins.engines.amqp.sasl import log_in
from plugins.engines.broker.host.options import QueueOptions, User
from plugins.engines.broker.host.passwords import Password
from plugins.engines.broker.host.users import Account, Permissions, Users
from plugins.protocols.amqp091.field_tables import encode_table
from plugins.protocols.amqp091.methods import basic, connection, queue
from tests.plugins.engines.amqp.conftest import Server
from tests.plugins.engines.amqp.raw_client import RawClient

pytestmark = [pytest.mark.peer("pika"), pytest.mark.usefixtures("short_login_delay")]


def test_guest_logs_in_from_this_machine(server: Server) -> None:
    assert server.connect().is_open


def test_a_wrong_password_is_refused_with_403(server: Server) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError) as refused:
        server.connect(password="wrong")
    assert "(403) 'ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. " in str(
        refused.value
    )
    assert "For details see the broker logfile.'" in str(refused.value)


def test_a_missing_virtual_host_is_refused_with_530(server: Server) -> None:
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError) as refused:
        server.connect(virtual_host="nope")
    assert "(530) 'NOT_ALLOWED - vhost nope not found'" in str(refused.value)


def test_virtual_hosts_have_queues_of_their_own(serve: Callable[..., Server]) -> None:
    server = serve(vhosts=("/", "other"))
    server.connect(virtual_host="other").channel().queue_declare("q")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        server.channel().queue_declare("q", passive=True)


def test_a_user_may_do_what_the_patterns_say(serve: Callable[..., Server]) -> None:
    server = serve(
        users={"eve": User(password="p", configure="^eve-", write="^eve-|amq.default", read="^eve-")}
    )
    connection = server.connect("eve", "p")
    connection.channel().queue_declare("eve-queue")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        connection.channel().queue_declare("adams")
    assert refused.value.reply_code == 403
    assert (
        refused.value.reply_text
        == "ACCESS_REFUSED - access to queue 'adams' in vhost '/' refused for user 'eve'"
    )


def test_a_user_may_open_the_virtual_hosts_that_are_listed(serve: Callable[..., Server]) -> None:
    server = serve(vhosts=("/", "other"), users={"eve": User(password="p", vhosts=("other",))})
    assert server.connect("eve", "p", virtual_host="other").is_open
    with pytest.raises(
        pika.exceptions.ProbableAccessDeniedError, match="access to vhost '/' refused for user 'eve'"
    ):
        server.connect("eve", "p")


@pytest.mark.parametrize(
    "mechanism, response, name",
    [
        ("PLAIN", b"\0guest\0guest", "guest"),
        ("PLAIN", b"admin\0guest\0guest", "guest"),
        ("PLAIN", b"\0guest\0wrong", None),
        ("PLAIN", b"\0guest", None),
        ("PLAIN", b"\0gu\xffest\0guest", None),
        ("PLAIN", b"", None),
        ("AMQPLAIN", encode_table({"LOGIN": "guest", "PASSWORD": "guest"})[4:], "guest"),
        ("AMQPLAIN", encode_table({"LOGIN": "guest"})[4:], None),
        ("AMQPLAIN", b"\xff\xff", None),
        ("EXTERNAL", b"guest", None),
    ],
)
def test_credentials_are_read_as_the_mechanism_says(
    mechanism: str, response: bytes, name: str | None
) -> None:
    login = log_in(Users({"guest": User(password="guest")}), mechanism, response, loopback=True)
    assert (login.name if login else None) == name


def test_guest_is_refused_from_elsewhere() -> None:
    users = Users({"guest": User(password="guest", from_anywhere=False)})
    assert log_in(users, "PLAIN", b"\0guest\0guest", loopback=False) is None


@pytest.mark.parametrize(
    "address, expected",
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("192.0.2.1", False),
        ("::ffff:192.0.2.1", False),
        ("fe80::1%lo", False),
        ("0.0.0.0", False),
    ],
)
def test_what_this_machine_is(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


@pytest.mark.parametrize("place", ["tcp://[::1]:0", "tcp://[::]:0", "unix://{}/broker.sock"])
def test_guest_logs_in_over_ipv6_and_unix_sockets(
    serve: Callable[..., Server], tmp_path: Path, place: str
) -> None:
    server = serve(address="amqp+" + place.format(tmp_path))
    if "unix" in place:
        wire = socket.socket(socket.AF_UNIX)
        wire.connect(str(tmp_path / "broker.sock"))
    else:
        wire = socket.create_connection(("::1", server.port))
    wire.settimeout(60)
    with RawClient(wire=wire) as guest:
        guest.ask(queue.Declare(queue="q"), queue.DeclareOk)


def test_nobody_is_anonymous_unless_that_is_wanted(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as wire:
        wire.sendall(b"AMQP\0\0\x09\1")
        assert b"\0\0\0\x0ePLAIN AMQPLAIN\0" in wire.recv(4096)


def test_a_client_without_a_name_is_the_user_that_the_options_say(serve: Callable[..., Server]) -> None:
    users = {"visitor": User(read="^public$", write="^$", configure="^$")}
    server = serve(users=users, anonymous="visitor", queues=(QueueOptions(name="public"),))
    with RawClient(server.port, mechanism="ANONYMOUS", response=b"trace@example.org") as client:
        client.ask(queue.Declare(queue="public", passive=True), queue.DeclareOk)
        client.send(queue.Declare(queue="mine"))
        assert client.refusal()[1] == 403
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        server.connect("visitor", "")


def test_a_user_with_a_hash_logs_in(serve: Callable[..., Server]) -> None:
    user = User(password_hash="kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR")
    server = serve(users={"eve": user})
    assert server.connect("eve", "test12").is_open
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        server.connect("eve", "test13")


def test_a_new_secret_is_checked_and_brings_what_the_user_may_do_by_now(server: Server) -> None:
    def change() -> None:
        account = Account(
            Password.from_plain("new", b"salt"), from_anywhere=True, everywhere=Permissions(read="^$")
        )
        server.engine.users.accounts["guest"] = account

    with RawClient(server.port) as client:
        client.ask(queue.Declare(queue="q"), queue.DeclareOk)
        client.ask(connection.UpdateSecret(new_secret=b"guest"), connection.UpdateSecretOk, 0)
        server.host.call(change)
        client.send(basic.Get(queue="q"))
        client.answer(basic.GetEmpty)
        client.ask(connection.UpdateSecret(new_secret=b"new"), connection.UpdateSecretOk, 0)
        client.send(basic.Get(queue="q"))
        assert client.refusal()[:2] == ("channel", 403)


def test_any_new_secret_is_taken_and_none_of_a_user_who_is_gone(server: Server) -> None:
    """As in RabbitMQ, whose own users have passwords, which do not run out."""
    with RawClient(server.port) as client:
        client.ask(connection.UpdateSecret(new_secret=b"another"), connection.UpdateSecretOk, 0)
        server.host.call(lambda: server.engine.users.accounts.pop("guest"))
        client.send(connection.UpdateSecret(new_secret=b"guest"), 0)
        text = "NOT_ALLOWED - New secret was refused by one of the backends"
        assert client.refusal() == ("connection", 530, text)


@pytest.mark.parametrize(
    "header", [b"AMQP\0\1\0\0", b"AMQP\3\1\0\0", b"GET / HT"], ids=["1.0", "1.0 with SASL", "HTTP"]
)
def test_another_protocol_is_answered_with_ours(server: Server, header: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as wire:
        wire.sendall(header)
        assert wire.recv(100) == b"AMQP\0\0\x09\1"
        assert wire.recv(100) == b""


def test_a_connection_too_many_is_hung_up_on(serve: Callable[..., Server]) -> None:
    server = serve(max_connections=1)
    server.connect()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as wire:
        assert wire.recv(100) == b""
    assert server.engine.statistics()["refused"] == 1
