"""Publishing, frame by frame: receipts, limits, sending again, refusals."""

from __future__ import annotations

import pytest

from kernel.contracts.message import Envelope, batch_of
from tests.notes import for_each
from tests.plugins.engines.stomp_client.conftest import bodies
from tests.plugins.engines.stomp_client.in_memory import InMemory

OURS = {"server": "messaging-kernel"}


def test_a_batch_shares_a_receipt_at_a_broker_of_this_kernel() -> None:
    world = InMemory()
    broker = world.connect(**OURS)
    world.feed(*bodies(0, 4))
    assert broker.sent() == [(b"0", None), (b"1", None), (b"2", None), (b"3", "4")]
    assert world.port.confirmed_in == 0
    broker.receipts(4)
    assert world.port.confirmed_in == 4
    assert world.engine.outgoing.unfinished == 0


@pytest.mark.parametrize(
    "options, server", [({}, {"server": "RabbitMQ/3.10.8"}), ({"receipts": "each"}, OURS)]
)
def test_each_message_has_a_receipt_elsewhere(options: dict[str, str], server: dict[str, str]) -> None:
    world = InMemory(**options)
    broker = world.connect(**server)
    world.feed(*bodies(0, 3))
    assert broker.sent() == [(b"0", "1"), (b"1", "2"), (b"2", "3")]
    broker.receipts(1, 3)
    assert world.port.confirmed_in == 1
    broker.receipts(2)
    assert world.port.confirmed_in == 3


def test_a_receipt_of_nothing_changes_nothing() -> None:
    world = InMemory(receipts="batch")
    broker = world.connect()
    world.feed(b"0")
    broker.receipts("x", 17, "subscribe-1", 0)
    assert world.port.confirmed_in == 0
    broker.receipts(1, 1)
    assert world.port.confirmed_in == 1


@pytest.mark.parametrize("receipts", ["batch", "each"])
def test_no_more_is_in_flight_than_the_option_says(receipts: str) -> None:
    world = InMemory(in_flight=3, receipts=receipts)
    broker = world.connect()
    world.feed(*bodies(0, 8))
    first = broker.sent()
    assert [body for body, _ in first] == bodies(0, 3)
    broker.receipts(*(receipt for _, receipt in first if receipt))
    second = broker.sent()
    assert [body for body, _ in second] == bodies(3, 6)
    broker.receipts(*(receipt for _, receipt in second if receipt))
    assert [body for body, _ in broker.sent()] == bodies(6, 8)


@pytest.mark.parametrize("tracked", [True, False])
def test_what_has_no_receipt_is_sent_again_on_the_next_connection(tracked: bool) -> None:
    world = InMemory(receipts="each")
    world.port.wants_confirm = tracked
    broker = world.connect()
    world.feed(*bodies(0, 4))
    broker.receipts(1, 2)
    world.cut(broker)
    world.feed(b"new")
    broker = world.connect()
    again = broker.sent()
    assert [body for body, _ in again] == [b"2", b"3", b"new"]
    # A late answer under an old number confirms nothing.
    broker.receipts(3, 4)
    assert world.engine.outgoing.in_flight == 3
    broker.receipts(*(receipt for _, receipt in again))
    assert world.engine.outgoing.unfinished == 0
    assert world.engine.counters.messages_resent == 2
    if tracked:
        assert world.port.confirmed_in == 5


def test_messages_wait_while_there_is_no_connection() -> None:
    world = InMemory()
    world.feed(*bodies(0, 2))
    broker = world.dial()
    assert broker.sent() == []
    broker.answer("CONNECTED", version="1.2", **OURS)
    assert [body for body, _ in broker.sent()] == bodies(0, 2)


@pytest.mark.parametrize("server", [OURS, {}])
def test_an_error_that_names_a_message_refuses_it_and_the_others_are_sent_again(
    server: dict[str, str],
) -> None:
    world = InMemory(receipts="each")
    broker = world.connect(**server)
    world.feed(*bodies(0, 3))
    broker.answer("ERROR", b"not here", message="refused", receipt_id=2)
    assert broker.ended
    assert world.port.refused == [(b"1", "ERROR: refused not here")]
    assert world.engine.counters.errors == 1
    assert world.host.events[-1].detail.endswith("ERROR: refused not here")
    broker = world.connect(**server)
    again = broker.sent()
    assert [body for body, _ in again] == [b"0", b"2"]
    broker.receipts(*(receipt for _, receipt in again))
    assert world.engine.outgoing.unfinished == 0


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("receipts", ["batch", "each"])
def test_a_refused_message_that_nobody_names_is_found(receipts: str, tracked: bool) -> None:
    """The broker refuses `bad`, and says neither which message it means nor what came of the others."""
    world = InMemory(receipts=receipts)
    world.port.wants_confirm = tracked
    got: list[bytes] = []
    broker = world.connect()
    world.feed(b"0", b"1", b"bad", b"3")
    for _ in range(20):
        sent = broker.sent()
        if not sent:
            break
        if b"bad" in [body for body, _ in sent]:
            broker.answer("ERROR", message="refused")
            broker = world.connect()
            continue
        got += [body for body, _ in sent]
        broker.receipts(*(receipt for _, receipt in sent if receipt))
    assert got == [b"0", b"1", b"3"]
    assert world.engine.counters.messages_refused == 1
    assert world.engine.outgoing.unfinished == 0
    if tracked:
        assert world.port.refused == [(b"bad", "ERROR: refused")]
    # And everything goes at full speed again.
    world.feed(*bodies(0, 3))
    assert len(broker.sent()) == 3


def test_one_error_is_no_proof_against_the_one_message_in_flight() -> None:
    """It may have another cause, such as the end of the broker."""
    world = InMemory(receipts="each")
    broker = world.connect()
    world.feed(b"0")
    for _ in range(2):
        broker.answer("ERROR", message="shut down")
        broker = world.connect()
    assert world.port.refused == []
    broker.receipts(*(receipt for _, receipt in broker.sent()))
    assert world.engine.outgoing.unfinished == 0


@pytest.mark.parametrize(
    "message, body",
    [
        ("connection_forced", b"CONNECTION_FORCED - the broker is shut down\n"),
        # As RabbitMQ 3.10 says it, when an operator closes connections.
        (
            "AMQP channel died",
            b"Reason: {shutdown,\n            {connection_closing,\n"
            b'                {server_initiated_close,320,<<"by the operator">>}}}',
        ),
    ],
    ids=["ours", "RabbitMQ"],
)
def test_the_end_of_a_broker_is_no_refusal_however_often_it_comes(message: str, body: bytes) -> None:
    world = InMemory(receipts="each")
    broker = world.connect()
    world.feed(b"0")
    for _ in range(5):
        broker.answer("ERROR", body, message=message)
        assert broker.ended
        broker = world.connect()
    assert world.port.refused == []
    broker.receipts(*(receipt for _, receipt in broker.sent()))
    assert world.engine.outgoing.unfinished == 0


def test_what_stomp_cannot_carry_is_refused_and_confirmed_in_order() -> None:
    world = InMemory(destination=None)
    broker = world.connect(**OURS)
    world.feed(b"0", envelope=Envelope(key="q"))
    world.feed(b"bad", envelope=Envelope())
    world.feed(b"2", envelope=Envelope(key="q"))
    assert [body for body, _ in broker.sent()] == [b"0", b"2"]
    assert [body for body, _ in world.port.refused] == [b"bad"]
    assert "set destination" in world.port.refused[0][1]
    broker.receipts(3)
    assert world.engine.outgoing.unfinished == 0


@for_each(
    "envelope, destination",
    [
        (Envelope(key="orders"), "/queue/orders"),
        (Envelope(key="a/b"), "/queue/a%2Fb"),
        (Envelope(key="/reply-queue/x"), "/reply-queue/x"),
        (Envelope(exchange="amq.topic", key="a.b"), "/topic/a.b"),
        (Envelope(exchange="e", key="k"), "/exchange/e/k"),
        (Envelope(exchange="e"), "/exchange/e"),
    ],
)
def test_the_destination_is_that_of_the_message(envelope: Envelope, destination: str) -> None:
    world = InMemory(destination=None)
    broker = world.connect(**OURS)
    world.feed(b"x", envelope=envelope)
    ((headers, _),) = broker.take("SEND")
    assert headers["destination"] == destination


def test_the_destination_and_more_headers_of_all_messages() -> None:
    world = InMemory(destination="/topic/all.{key}", send_headers={"durable": "true"}, persistent=True)
    broker = world.connect(**OURS)
    world.feed(b"x", envelope=Envelope(key="k"))
    ((headers, _),) = broker.take("SEND")
    assert headers == {
        "destination": "/topic/all.k",
        "durable": "true",
        "persistent": "true",
        "receipt": "1",
    }


def test_parts_of_a_message_are_joined() -> None:
    world = InMemory()
    broker = world.connect(**OURS)
    world.port.waiting.append(batch_of([(b"a", b"b")], multipart=True))
    world.engine.on_output()
    world.run()
    assert [body for body, _ in broker.sent()] == [b"ab"]


def test_a_broker_that_sends_no_receipts_is_given_up() -> None:
    world = InMemory(confirm_timeout=5.0, heartbeat=0)
    broker = world.connect(**OURS)
    world.run(100.0)
    assert not broker.ended, "nothing was in flight"
    world.feed(b"x")
    world.run(4.0)
    assert not broker.ended
    world.run(2.0)
    assert broker.ended
    assert "a receipt for none of 1 message within 5 s" in world.host.events[-1].detail


def test_while_the_socket_is_full_messages_stay_in_the_pipes() -> None:
    world = InMemory(capacity=2000, receipts="each")
    broker = world.connect()
    world.host.watch(broker.wire.fileno())
    world.feed(b"x" * 5000)
    world.feed(b"y")
    assert len(world.port.waiting) == 1
