"""Who gets in: users, mechanisms, virtual hosts, permissions."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pika.exceptions
import pytest

from plugins.engines.amqp.options import User
from plugins.engines.amqp.users import Users
from plugins.protocols.amqp091.field_tables import encode_table
from tests.plugins.engines.amqp.conftest import Server

pytestmark = pytest.mark.peer("pika")


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
    login = Users({"guest": User(password="guest")}).log_in(mechanism, response, loopback=True)
    assert (login.name if login else None) == name


def test_guest_is_refused_from_elsewhere() -> None:
    users = Users({"guest": User(password="guest", from_anywhere=False)})
    assert users.log_in("PLAIN", b"\0guest\0guest", loopback=False) is None


@pytest.mark.parametrize(
    "header", [b"AMQP\0\1\0\0", b"AMQP\3\1\0\0", b"GET / HT"], ids=["1.0", "1.0 with SASL", "HTTP"]
)
def test_another_protocol_is_answered_with_ours(server: Server, header: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as wire:
        wire.sendall(header)
        assert wire.recv(100) == b"AMQP\0\0\x09\1"
        assert wire.recv(100) == b""


def test_a_connection_too_many_is_hung_up_on(serve: Callable[..., Server]) -> None:
    server = serve(max_connections=1)
    server.connect()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as wire:
        assert wire.recv(100) == b""
    assert server.engine.statistics()["refused"] == 1
