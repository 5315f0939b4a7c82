"""Clients that do not wait for answers: what they asked is answered in their order, as RabbitMQ answers it."""

from __future__ import annotations

import socket
from struct import pack

import pytest

from plugins.protocols.amqp091.credentials import plain_response
from plugins.protocols.amqp091.frames import HEADER, METHOD, METHODS, PROTOCOL_HEADER, frame_header
from plugins.protocols.amqp091.methods import basic, channel, connection, queue
from plugins.protocols.amqp091.methods.method import Method
from tests.plugins.engines.amqp.conftest import Server
from tests.plugins.engines.amqp.raw_client import frame

# Each test has a queue of its own: an exclusive one is gone a little after its connection.
CLOSE = channel.Close(reply_code=200)
HANDSHAKE: Methods = [
    (
        0,
        connection.StartOk(
            client_properties={}, mechanism="PLAIN", response=plain_response("guest", "guest")
        ),
    ),
    (0, connection.TuneOk(channel_max=10, frame_max=131072, heartbeat=0)),
    (0, connection.Open()),
    (1, channel.Open()),
]
PUBLISHED = pack(">HHQH", 60, 0, 0, 0)
"""The header of a message without properties and body."""
Methods = list[tuple[int, Method]]


@pytest.fixture(
    params=["ours", pytest.param("rabbitmq", marks=[pytest.mark.peer("rabbitmq"), pytest.mark.slow])]
)
def port(request: pytest.FixtureRequest) -> int:
    """Where each of the two listens."""
    broker: Server = request.getfixturevalue("server" if request.param == "ours" else "rabbitmq")
    return broker.port


def say(port: int, *parts: tuple[Methods, int]) -> list[str]:
    """Say each part at once, when so many answers to those before have come, and return the names of all of them."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as wire:
        wire.sendall(PROTOCOL_HEADER)
        answered = b""
        expected = 0
        for methods, answers in parts:
            wire.sendall(b"".join(frames(number, method) for number, method in methods))
            expected += answers
            while len(names := names_of(answered)) < expected:
                data = wire.recv(65536)
                assert data, names
                answered += data
    return names


def frames(number: int, method: Method) -> bytes:
    header = frame(HEADER, number, PUBLISHED) if isinstance(method, basic.Publish) else b""
    return frame(METHOD, number, method.encode()) + header


def names_of(octets: bytes) -> list[str]:
    names, position = [], 0
    while position + 7 <= len(octets):
        kind, number, size = frame_header.unpack_from(octets, position)
        payload = octets[position + 7 : position + 7 + size]
        position += size + 8
        if kind == METHOD and position <= len(octets):
            method = METHODS[payload[:4]].decode(payload)
            name = getattr(method, "queue", "") or getattr(method, "reply_code", "")
            if isinstance(method, basic.Deliver):
                name = method.consumer_tag
            names.append(f"{number} {method.name} {name}".strip())
    return names


WELCOME = ["0 connection.start", "0 connection.tune", "0 connection.open-ok", "1 channel.open-ok"]


def test_the_whole_handshake_at_once(port: int) -> None:
    assert say(port, (HANDSHAKE, 4)) == WELCOME


def test_a_request_is_answered_before_the_close_that_follows_it(port: int) -> None:
    declare = queue.Declare(queue="pipelined.1", exclusive=True)
    assert say(port, ([*HANDSHAKE, (1, declare), (1, CLOSE)], 6)) == [
        *WELCOME,
        "1 queue.declare-ok pipelined.1",
        "1 channel.close-ok",
    ]


def test_a_channel_that_is_opened_again_gets_its_own_answers(server: Server) -> None:
    """RabbitMQ forgets the channel.open that follows a close in the same bytes."""
    again: Methods = [
        (1, queue.Declare(queue="pipelined.3", exclusive=True)),
        (1, CLOSE),
        (1, channel.Open()),
        (1, queue.Declare(queue="pipelined.2", exclusive=True)),
        (1, CLOSE),
        (1, channel.Open()),
        (1, basic.Qos()),
    ]
    assert say(server.port, ([*HANDSHAKE, *again], 11)) == [
        *WELCOME,
        "1 queue.declare-ok pipelined.3",
        "1 channel.close-ok",
        "1 channel.open-ok",
        "1 queue.declare-ok pipelined.2",
        "1 channel.close-ok",
        "1 channel.open-ok",
        "1 basic.qos-ok",
    ]


def test_who_deletes_a_queue_has_the_answer_before_its_consumer_is_cancelled(port: int) -> None:
    """kombu takes a basic.cancel for an error of the method whose answer it waits for."""
    told = connection.StartOk(
        client_properties={"capabilities": {"consumer_cancel_notify": True}},
        mechanism="PLAIN",
        response=plain_response("guest", "guest"),
    )
    consumed: Methods = [
        (1, queue.Declare(queue="pipelined.4", exclusive=True)),
        (1, basic.Consume(queue="pipelined.4", consumer_tag="mine")),
    ]
    deleted: Methods = [(1, queue.Delete(queue="pipelined.4"))]
    assert say(port, ([(0, told), *HANDSHAKE[1:], *consumed], 6), (deleted, 2)) == [
        *WELCOME,
        "1 queue.declare-ok pipelined.4",
        "1 basic.consume-ok",
        "1 queue.delete-ok",
        "1 basic.cancel",
    ]


def test_what_is_published_before_a_cancel_is_for_the_consumer_that_was_there(port: int) -> None:
    """As the suite of RabbitMQ's Java client wants it (ConsumerPriorities)."""
    key = "pipelined.5"
    first = basic.Consume(queue=key, consumer_tag="first", no_ack=True, arguments={"x-priority": 1})
    second = basic.Consume(queue=key, consumer_tag="second", no_ack=True)
    begun: Methods = [(1, queue.Declare(queue=key, exclusive=True)), (1, first), (1, second)]
    published: Methods = [(1, basic.Publish(exchange="", routing_key=key))] * 3
    course = [
        *published,
        (1, basic.Cancel(consumer_tag="first")),
        *published,
        (1, basic.Cancel(consumer_tag="second")),
    ]
    assert say(port, ([*HANDSHAKE, *begun], 7), (course, 8))[7:] == [
        *["1 basic.deliver first"] * 3,
        "1 basic.cancel-ok",
        *["1 basic.deliver second"] * 3,
        "1 basic.cancel-ok",
    ]


def test_what_is_acknowledged_before_a_cancel_makes_room_for_more(port: int) -> None:
    """As the suite of PHP's extension amqp expects (amqpchannel_basicRecover)."""
    key = "pipelined.6"
    begun: Methods = [
        (1, queue.Declare(queue=key, exclusive=True)),
        (1, basic.Qos(prefetch_count=2)),
        *[(1, basic.Publish(exchange="", routing_key=key))] * 5,
        (1, basic.Consume(queue=key, consumer_tag="mine")),
    ]
    ended: Methods = [
        (1, basic.Ack(delivery_tag=1)),
        (1, basic.Ack(delivery_tag=2)),
        (1, basic.Cancel(consumer_tag="mine")),
    ]
    assert say(port, ([*HANDSHAKE, *begun], 9), (ended, 3))[4:] == [
        "1 queue.declare-ok pipelined.6",
        "1 basic.qos-ok",
        "1 basic.consume-ok",
        *["1 basic.deliver mine"] * 4,
        "1 basic.cancel-ok",
    ]


REFUSED: Methods = [(1, queue.Declare(queue="pipelined.none", passive=True))]
CLOSED: Methods = [(1, CLOSE), (1, channel.CloseOk())]
OPENED: Methods = [(1, channel.Open()), (1, basic.Qos())]
ANSWERS = ["1 channel.close 404", "1 channel.close-ok", "1 channel.open-ok", "1 basic.qos-ok"]


def test_a_refusal_meets_a_close(port: int) -> None:
    """The close was on its way when the refusal came: both are answered, and then the channel can be opened again.

    The client waits for the close-ok: RabbitMQ has its reader send that, and the new channel's writer what follows.
    In one of some hundred runs the writer came first.
    """
    parts = (([*HANDSHAKE, *REFUSED], 5), (CLOSED, 1), (OPENED, 2))
    assert say(port, *parts) == [*WELCOME, *ANSWERS]


def test_a_refusal_meets_the_channel_that_has_earned_it(server: Server) -> None:
    """RabbitMQ drops what its reader hands to the channel before it hears of the channel's refusal."""
    everything = [*HANDSHAKE, *REFUSED, *CLOSED, *OPENED]
    assert say(server.port, (everything, 8)) == [*WELCOME, *ANSWERS]


def test_the_client_is_the_first_that_closes_the_socket(port: int) -> None:
    """amqp091-go takes an end behind close-ok for a lost connection if it has not closed by then."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as wire:
        wire.sendall(PROTOCOL_HEADER + b"".join(frames(number, method) for number, method in HANDSHAKE))
        wire.sendall(frames(0, connection.Close(reply_code=200)))
        answered = b""
        while "0 connection.close-ok" not in names_of(answered):
            answered += wire.recv(65536)
        wire.settimeout(0.3)
        with pytest.raises(TimeoutError):
            wire.recv(1)


def test_what_came_before_the_end_is_answered_before_it(server: Server) -> None:
    """RabbitMQ drops what its channels have not yet answered when the connection is closed."""
    methods: Methods = [(1, queue.Declare(queue="q")), (0, connection.Close(reply_code=200))]
    assert say(server.port, ([*HANDSHAKE, *methods], 6)) == [
        *WELCOME,
        "1 queue.declare-ok q",
        "0 connection.close-ok",
    ]
