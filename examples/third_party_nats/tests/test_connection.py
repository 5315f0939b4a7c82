"""The protocol without a socket: bytes in, bytes out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from client import Client
from kernel_nats.connection import NatsConnection
from kernel_nats.options import NatsOptions

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Envelope, batch_of
from kernel.contracts.protocol import (
    Answering,
    Authenticating,
    ConnectionFacts,
    Named,
    Refusing,
    StreamProtocol,
    Told,
    ToldOfSubscriptions,
    UpgradesToTls,
)
from kernel.testing.protocol_checks import PROTOCOL_CHECKS, ProtocolSubject

FACTS = ConnectionFacts(
    peer="127.0.0.1:50000",
    local="127.0.0.1:4222",
    encrypted=False,
    certificate=None,
    subject="",
    seed=7,
    shared={},
)


def written(connection: NatsConnection) -> bytes:
    return b"".join(connection.data_to_send())


def begun(**options: Any) -> NatsConnection:
    connection = NatsConnection(NatsOptions(**options))
    connection.on_connection(FACTS)
    connection.handle_timeout(0.0)
    return connection


def connected(connect: bytes = b"{}", **options: Any) -> NatsConnection:
    connection = begun(**options)
    written(connection)
    assert connection.receive_data(b"CONNECT " + connect + b"\r\n", 0.0) == []
    return connection


def received(connection: NatsConnection, data: bytes) -> list[tuple[str, str, bytes]]:
    return [
        (batch.envelope.key, batch.envelope.reply_to, body)
        for batch in connection.receive_data(data, 0.0)
        for body in batch.bodies
    ]


@pytest.mark.parametrize("check", PROTOCOL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("tls", [False, True])
def test_it_passes_the_checks_that_every_protocol_has_to(
    check: Callable[[ProtocolSubject], Any], tls: bool
) -> None:
    one, other = Envelope(key="orders.new"), Envelope(key="orders.paid")
    batches = [
        batch_of([b"", b"1", b"x" * 300], one),
        batch_of([b"of one size"] * 500, other),
        batch_of([b"PUB a 1\r\n", b"\r\n"], one),
        batch_of([b"large" * 20_000, b"after"], other),
    ]
    options = NatsOptions(tls=tls)
    check(ProtocolSubject(make=lambda: (Client(tls=tls), NatsConnection(options)), batches=batches))


@pytest.mark.parametrize(
    "interface",
    [
        StreamProtocol,
        Answering,
        Authenticating,
        Named,
        Refusing,
        Told,
        ToldOfSubscriptions,
        UpgradesToTls,
    ],
)
def test_it_has_what_the_contracts_ask_for(interface: type) -> None:
    assert isinstance(NatsConnection(NatsOptions()), interface)


def test_it_greets_with_info() -> None:
    name, _, arguments = written(begun(max_payload=5, token="t", tls=True)).partition(b" ")
    info = json.loads(arguments)
    assert name == b"INFO"
    assert {key: info[key] for key in ("host", "port", "client_ip", "max_payload", "headers", "proto")} == {
        "host": "127.0.0.1",
        "port": 4222,
        "client_ip": "127.0.0.1",
        "max_payload": 5,
        "headers": True,
        "proto": 1,
    }
    assert info["auth_required"]
    assert info["tls_required"]


# The examples of https://docs.nats.io/reference/reference-protocols/nats-protocol


@pytest.mark.parametrize(
    "data, message",
    [
        (b"PUB FOO 11\r\nHello NATS!\r\n", ("FOO", "", b"Hello NATS!")),
        (b"PUB FRONT.DOOR JOKE.22 11\r\nKnock Knock\r\n", ("FRONT.DOOR", "JOKE.22", b"Knock Knock")),
        (b"PUB NOTIFY 0\r\n\r\n", ("NOTIFY", "", b"")),
        (b"pub\tFOO  2\r\nhi\r\n", ("FOO", "", b"hi")),
        (b"HPUB FOO 22 33\r\nNATS/1.0\r\nBar: Baz\r\n\r\nHello NATS!\r\n", ("FOO", "", b"Hello NATS!")),
        (
            b"HPUB FRONT.DOOR JOKE.22 45 56\r\nNATS/1.0\r\nBREAKFAST: donut\r\nLUNCH: burger\r\n\r\nKnock Knock\r\n",
            ("FRONT.DOOR", "JOKE.22", b"Knock Knock"),
        ),
    ],
)
def test_what_is_published(data: bytes, message: tuple[str, str, bytes]) -> None:
    assert received(connected(), data) == [message]


def test_headers_are_a_dict_and_a_name_that_repeats_has_a_list() -> None:
    data = b"HPUB MORNING.MENU 47 51\r\nNATS/1.0\r\nBREAKFAST: donut\r\nBREAKFAST: eggs\r\n\r\nYum!\r\n"
    (batch,) = connected().receive_data(data, 0.0)
    assert batch.envelope.properties["headers"] == {"BREAKFAST": ["donut", "eggs"]}


@pytest.mark.parametrize(
    "envelope, body, expected",
    [
        (Envelope(key="FOO.BAR"), b"Hello World", b"MSG FOO.BAR 9 11\r\nHello World\r\n"),
        (
            Envelope(key="FOO.BAR", reply_to="GREETING.34"),
            b"Hello World",
            b"MSG FOO.BAR 9 GREETING.34 11\r\nHello World\r\n",
        ),
        (
            Envelope(key="FOO.BAR", properties={"headers": {"FoodGroup": "vegetable"}}),
            b"Hello World",
            b"HMSG FOO.BAR 9 34 45\r\nNATS/1.0\r\nFoodGroup: vegetable\r\n\r\nHello World\r\n",
        ),
    ],
)
def test_what_is_delivered(envelope: Envelope, body: bytes, expected: bytes) -> None:
    connection = connected(b'{"headers":true}')
    connection.receive_data(b"SUB FOO.BAR 9\r\n", 0.0)
    connection.send_batches([batch_of([body], envelope)], 0.0)
    assert written(connection) == expected


def test_a_header_of_another_protocol_cannot_put_in_a_message() -> None:
    connection = connected(b'{"headers":true}')
    connection.receive_data(b"SUB k 1\r\n", 0.0)
    bad = {"a": "x\r\n\r\nMSG k 1 0", "b\r\nc": "y", "table": {"no": "text"}, "n": 3}
    connection.send_batches([batch_of([b"."], Envelope(key="k", properties={"headers": bad}))], 0.0)
    assert written(connection) == b"HMSG k 1 18 19\r\nNATS/1.0\r\nn: 3\r\n\r\n.\r\n"


@pytest.mark.parametrize(
    "subject, asked",
    [
        ("a.b", "a.b"),
        ("a.*.c", "a.*.c"),
        ("a.>", "a.*.#"),
        (">", "*.#"),
    ],
)
def test_subjects_become_patterns_of_routes(subject: str, asked: str) -> None:
    connection = connected()
    connection.receive_data(b"SUB %b 1\r\nSUB %b workers 2\r\n" % ((subject.encode(),) * 2), 0.0)
    assert connection.subscriptions == [("subscribe", asked), ("subscribe", f"group:workers:{asked}")]


@pytest.mark.parametrize("subject", ["a..b", ".a", "a.", "a.>.b", "a.#", "group:a:b", "prefix:a"])
def test_a_subject_that_routes_cannot_say_is_refused_and_the_connection_goes_on(subject: str) -> None:
    connection = connected()
    connection.receive_data(b"SUB %b 1\r\nPING\r\n" % subject.encode(), 0.0)
    assert written(connection) == b"-ERR 'Invalid Subject'\r\nPONG\r\n"
    assert connection.subscriptions == []


def test_the_routes_hear_of_the_first_and_of_the_last_of_like_subscriptions() -> None:
    connection = connected()
    connection.receive_data(b"SUB a 1\r\nSUB a 2\r\nUNSUB 1\r\n", 0.0)
    assert connection.subscriptions == [("subscribe", "a")]
    connection.receive_data(b"UNSUB 2\r\nUNSUB 2\r\n", 0.0)
    assert connection.subscriptions == [("subscribe", "a"), ("unsubscribe", "a")]


def test_a_ping_is_answered_when_the_subscriptions_before_it_are_in_effect() -> None:
    connection = connected(subscribe_timeout=0.5)
    connection.receive_data(b"PING\r\nSUB a 1\r\nPING\r\n", 1.0)
    assert written(connection) == b"PONG\r\n"
    connection.subscribed(1.1)
    assert written(connection) == b"PONG\r\n"
    connection.subscriptions.clear()  # the host has taken them out
    connection.receive_data(b"PING\r\nSUB b 2\r\nPING\r\n", 2.0)
    assert written(connection) == b"PONG\r\n"
    assert connection.next_deadline() == 2.5
    connection.handle_timeout(2.5)
    assert written(connection) == b"PONG\r\n"


def _sids(connection: NatsConnection, bodies: Iterable[bytes], group: str = "") -> list[bytes]:
    connection.send_batches([batch_of(list(bodies), Envelope(key="a")).chosen_for(group)], 0.0)
    return [line.split()[2] for line in written(connection).split(b"\r\n") if line.startswith(b"MSG")]


def test_what_came_for_a_queue_group_goes_to_one_of_its_members_and_to_nobody_else() -> None:
    connection = connected()
    connection.receive_data(b"SUB a 1\r\nSUB a q 2\r\nSUB a q 3\r\nSUB * q 4\r\nSUB a r 5\r\n", 0.0)
    assert sorted(_sids(connection, [b"x"] * 4, "group:q:a")) == [b"2", b"2", b"3", b"3"]
    assert _sids(connection, [b"x"], "group:r:a") == [b"5"]
    assert _sids(connection, [b"x"], "group:q:gone") == []
    assert _sids(connection, [b"x"]) == [b"1"]


def test_a_subscription_ends_with_the_last_message_that_it_asked_for() -> None:
    connection = connected()
    connection.receive_data(b"SUB a 1\r\nUNSUB 1 3\r\n", 0.0)
    assert _sids(connection, [b"x", b"x"]) == [b"1", b"1"]
    assert connection.subscriptions == [("subscribe", "a")]
    assert _sids(connection, [b"x", b"x"]) == [b"1"]
    assert connection.subscriptions == [("subscribe", "a"), ("unsubscribe", "a")]


def test_one_that_has_had_them_already_ends_at_once() -> None:
    connection = connected()
    connection.receive_data(b"SUB a 1\r\n", 0.0)
    assert _sids(connection, [b"x", b"x"]) == [b"1", b"1"]
    connection.receive_data(b"UNSUB 1 2\r\n", 0.0)
    assert connection.subscriptions[-1] == ("unsubscribe", "a")


def test_verbose_clients_are_told_that_each_command_was_done() -> None:
    connection = connected(b'{"verbose":true}')
    connection.receive_data(b"SUB a 1\r\nPUB b 1\r\nx\r\nUNSUB 1\r\n", 0.0)
    assert written(connection) == b"+OK\r\n" * 4


@pytest.mark.parametrize("asked", [True, False])
def test_a_client_that_asked_for_it_is_told_that_nobody_answers(asked: bool) -> None:
    connection = connected(b'{"headers":true,"no_responders":%b}' % (b"true" if asked else b"false"))
    (batch,) = connection.receive_data(b"SUB inbox.* 1\r\nPUB service inbox.7 2\r\nhi\r\n", 0.0)
    connection.unrouted([batch], 0.0)
    answer = b"HMSG inbox.7 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"
    assert written(connection) == (answer if asked else b"")


def test_a_key_that_is_no_subject_is_refused_and_the_rest_is_delivered() -> None:
    connection = connected()
    connection.receive_data(b"SUB > 1\r\n", 0.0)
    batches = [
        batch_of([b"1"], Envelope(key="a")),
        batch_of([b"2", b"3"], Envelope(key="two words")),
        batch_of([b"4"], Envelope(key="b")),
    ]
    connection.send_batches(batches, 0.0)
    assert [refusal.number for refusal in connection.refused] == [2, 3]
    assert written(connection) == b"MSG a 1 1\r\n1\r\nMSG b 1 1\r\n4\r\n"


@pytest.mark.parametrize(
    "data, error",
    [
        (b"HELLO\r\n", b"Unknown Protocol Operation"),
        (b"PUB a\r\n", b"Parser Error"),
        (b"PUB a 1\r\nxyz\r\n", b"Parser Error"),
        (b"PUB a -1\r\n", b"Parser Error"),
        (b"PUB a 101\r\n", b"Maximum Payload Violation"),
        (b"HPUB a 9 3\r\nxyz\r\n", b"Parser Error"),
        (b"PUB \xff 1\r\nx\r\n", b"Parser Error"),
        (b"SUB a\r\n", b"Parser Error"),
        (b"CONNECT {}\r\n", b"Parser Error"),
        (b"SUB " + b"a" * 5000, b"Maximum Control Line Exceeded"),
        (b"SUB " + b"a" * 5000 + b"\r\n", b"Maximum Control Line Exceeded"),
    ],
)
def test_faults_end_the_connection_with_a_reason_and_what_came_before_counts(
    data: bytes, error: bytes
) -> None:
    connection = connected(max_payload=100)
    with pytest.raises(RemoteProtocolError) as caught:
        connection.receive_data(b"PUB first 1\r\n1\r\n" + data, 0.0)
    assert [batch.envelope.key for batch in caught.value.batches] == ["first"]
    assert written(connection) == b"-ERR '" + error + b"'\r\n"
    assert connection.closed()


@pytest.mark.parametrize(
    "connect, let_in",
    [
        (b'{"user":"anna","pass":"secret"}', True),
        (b'{"auth_token":"t0ken"}', True),
        (b'{"user":"anna","pass":"other"}', False),
        (b'{"user":"nobody","pass":""}', False),
        (b'{"auth_token":"other"}', False),
        (b"{}", False),
    ],
)
def test_who_is_let_in(connect: bytes, let_in: bool) -> None:
    options = {"users": {"anna": "secret"}, "token": "t0ken"}
    if let_in:
        assert connected(connect, **options).ready_to_send()
        return
    connection = begun(**options)
    written(connection)
    with pytest.raises(RemoteProtocolError):
        connection.receive_data(b"CONNECT " + connect + b"\r\nPING\r\n", 0.0)
    assert written(connection) == b"-ERR 'Authorization Violation'\r\n"


@pytest.mark.parametrize("data", [b"SUB > 1\r\n", b"PUB a 1\r\nx\r\n"])
def test_nothing_goes_before_the_login(data: bytes) -> None:
    connection = begun(token="t")
    with pytest.raises(RemoteProtocolError, match="Authorization Violation"):
        connection.receive_data(data, 0.0)
    assert connection.subscriptions == []


@pytest.mark.parametrize("reason", [None, "no"])
def test_another_engine_may_decide_and_nothing_is_answered_before(reason: str | None) -> None:
    connection = begun(authenticate=True)
    written(connection)
    connection.receive_data(b'CONNECT {"user":"anna","pass":"secret"}\r\nPING\r\n', 0.0)
    login = connection.login()
    assert login is not None
    assert (login.mechanism, login.user, login.secret) == ("PLAIN", "anna", b"secret")
    assert connection.login() is None
    assert written(connection) == b""
    assert not connection.ready_to_send()
    connection.decide(reason, 0.0)
    assert written(connection) == (b"PONG\r\n" if reason is None else b"-ERR 'Authorization Violation'\r\n")
    assert connection.ready_to_send() == (reason is None)
    assert connection.closed() == (reason is not None)


def test_who_does_not_log_in_in_time_is_given_up() -> None:
    connection = begun(token="t", login_timeout=2.0)
    written(connection)
    assert connection.next_deadline() == 2.0
    with pytest.raises(RemoteProtocolError):
        connection.handle_timeout(2.0)
    assert written(connection) == b"-ERR 'Authentication Timeout'\r\n"


def test_a_silent_client_is_asked_and_then_given_up() -> None:
    connection = connected(ping_interval=10.0, max_pings=1)
    connection.handle_timeout(10.0)
    assert written(connection) == b"PING\r\n"
    connection.receive_data(b"PONG\r\n", 11.0)
    assert connection.next_deadline() == 21.0
    connection.handle_timeout(21.0)
    with pytest.raises(RemoteProtocolError):
        connection.handle_timeout(31.0)
    assert written(connection) == b"PING\r\n-ERR 'Stale Connection'\r\n"


def test_bytes_in_the_clear_behind_info_are_not_believed() -> None:
    connection = begun(tls=True)
    assert connection.wants_tls()
    with pytest.raises(RemoteProtocolError):
        connection.receive_data(b"CONNECT {}\r\n", 0.0)


def test_a_client_that_wants_no_echo_has_a_port_without() -> None:
    assert connected(b'{"echo":false}').peer_options == {"echo": False}
    assert connected().peer_options == {}
