"""SEND: destinations, receipts, transactions, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel import EnginePlan, RoutePlan
from kernel.testing.fixtures import KernelFactory
from tests.plugins.engines.stomp.conftest import ServeStomp, StompBroker
from tests.plugins.engines.stomp.raw_client import RawStomp


def bodies(broker: StompBroker, queue: str) -> list[bytes]:
    """Take what is ready in a queue."""
    channel = broker.channel()
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


def fails(client: RawStomp, message: str) -> bytes:
    error = client.next_of("ERROR")
    assert error["message"] == message, error
    assert client.is_closed()
    return error.body


@pytest.mark.parametrize("destination", ["/queue/a", "a", "/queue/%61"])
def test_a_queue_is_declared_by_the_first_send(broker: StompBroker, destination: str) -> None:
    client = broker.connect()
    client.send("SEND", b"one", destination=destination)
    client.ask("SEND", b"two", destination=destination)
    row = broker.queue("a")
    assert (row["durable"], row["auto_delete"], row["exclusive"]) == (True, False, False)
    assert bodies(broker, "a") == [b"one", b"two"]


def test_headers_are_arguments_of_the_queue(broker: StompBroker) -> None:
    headers = {
        "x_dead_letter_exchange": "amq.fanout",
        "x_dead_letter_routing_key": "k",
        "x_expires": 60000,
        "x_max_length": 5,
        "x_max_length_bytes": 100,
        "x_max_priority": 3,
        "x_message_ttl": 1000,
        "x_overflow": "reject-publish",
        "x_single_active_consumer": "true",
    }
    broker.connect().ask("SEND", destination="/queue/a", auto_delete="true", **headers)
    row = broker.queue("a")
    assert row["auto_delete"]
    assert row["arguments"] == {
        "x-dead-letter-exchange": "amq.fanout",
        "x-dead-letter-routing-key": "k",
        "x-expires": 60000,
        "x-max-length": 5,
        "x-max-length-bytes": 100,
        "x-max-priority": 3,
        "x-message-ttl": 1000,
        "x-overflow": "reject-publish",
        "x-single-active-consumer": True,
    }


def test_a_queue_with_other_properties_is_an_error(broker: StompBroker) -> None:
    broker.channel().queue_declare("a", durable=False)
    client = broker.connect()
    client.send("SEND", destination="/queue/a")
    assert b"inequivalent arg 'durable'" in fails(client, "precondition_failed")


def test_a_queue_that_was_deleted_is_declared_again(broker: StompBroker) -> None:
    client, channel = broker.connect(), broker.channel()
    client.ask("SEND", b"one", destination="/queue/a")
    channel.queue_delete("a")
    client.ask("SEND", b"two", destination="/queue/a")
    assert bodies(broker, "a") == [b"two"]


def test_exchanges_and_topics(broker: StompBroker) -> None:
    channel = broker.channel()
    channel.queue_declare("q", durable=True)
    for exchange, key in (("amq.direct", "k"), ("amq.topic", "a.*"), ("amq.fanout", "")):
        channel.queue_bind("q", exchange, key)
    client = broker.connect()
    client.send("SEND", b"direct", destination="/exchange/amq.direct/k")
    client.send("SEND", b"topic", destination="/topic/a.b")
    client.send("SEND", b"fanout", destination="/exchange/amq.fanout")
    client.ask("SEND", b"default", destination="/amq/queue/q")
    assert bodies(broker, "q") == [b"direct", b"topic", b"fanout", b"default"]


@pytest.mark.parametrize(
    "destination, message",
    [
        ("/nowhere/a", "Unknown destination"),
        ("", "Unknown destination"),
        ("/", "Unknown destination"),
        ("/queue", "Unknown destination"),
        ("/queue/", "Invalid destination"),
        ("/queue/a/b", "Invalid destination"),
        ("/queue/%FF", "Invalid destination"),
        ("/exchange//k", "Invalid destination"),
        ("/exchange/a/b/c", "Invalid destination"),
        ("/temp-queue/a", "Invalid destination"),
        ("/exchange/nowhere", "not_found"),
        ("/exchange/nowhere/k", "not_found"),
        ("/queue/amq.mine", "access_refused"),
    ],
)
def test_a_destination_that_is_none(broker: StompBroker, destination: str, message: str) -> None:
    client = broker.connect()
    client.send("SEND", destination=destination)
    fails(client, message)


@pytest.mark.parametrize(
    "header", ["user_id", "CC", "BCC", "expiration", "priority", "timestamp", "message_id"]
)
def test_a_header_that_is_refused(broker: StompBroker, header: str) -> None:
    client = broker.connect()
    client.send("SEND", destination="/queue/a", **{header: "99999999999999999999"})
    fails(client, "precondition_failed" if header in ("user_id", "CC", "BCC") else "Invalid header")


def test_rights_of_the_user(serve: ServeStomp) -> None:
    rights = {"configure": "^mine", "write": "^(mine|amq.default)", "read": "^mine"}
    broker = serve(users={"guest": {"password": "guest", **rights}})
    broker.connect().ask("SEND", destination="/queue/mine")
    for destination in ("/queue/other", "/topic/mine"):
        client = broker.connect()
        client.send("SEND", destination=destination)
        fails(client, "access_refused")
    client = broker.connect()
    client.send("SEND", destination="/queue/mine.too", x_dead_letter_exchange="amq.fanout")
    fails(client, "access_refused")


def test_a_message_with_a_publishing_id_comes_once(broker: StompBroker) -> None:
    client = broker.connect()
    for number in ("1", "2", "1"):
        headers = {"x-publisher": "p", "x-publishing-id": number}
        client.ask("SEND", number.encode(), destination="/queue/a", **headers)
    assert bodies(broker, "a") == [b"1", b"2"]


# Receipts


def test_receipts_come_in_the_order_of_the_messages(broker: StompBroker) -> None:
    client = broker.connect()
    for number in range(100):
        client.send("SEND", b"x" * number, destination="/queue/a", receipt=number)
        client.send("SEND", b"y", destination="/queue/a")
    assert [client.next()["receipt-id"] for _ in range(100)] == [str(number) for number in range(100)]
    assert broker.queue("a")["messages"] == 200


def test_a_receipt_comes_when_the_message_is_on_the_disk(serve: ServeStomp, tmp_path: Path) -> None:
    broker = serve(data_dir=str(tmp_path / "data"))
    client = broker.connect()
    client.ask("SEND", b"kept", destination="/queue/a", persistent="true")
    client.ask("SEND", b"lost", destination="/queue/a")
    broker.close()
    again = serve(data_dir=str(tmp_path / "data"))
    assert bodies(again, "a") == [b"kept"]


def test_a_receipt_waits_for_a_route_that_confirms(kernel_factory: KernelFactory) -> None:
    """An application takes what a route brings; until it has, SEND and DISCONNECT have no receipts."""
    kernel = kernel_factory(
        EnginePlan(
            name="broker",
            kind="broker",
            options={"listeners": [{"protocol": "stomp", "address": "tcp://127.0.0.1:0"}]},
        ),
        EnginePlan(name="application", kind="native"),
        RoutePlan(source="broker", targets=("application",), confirm=True, match=("a",)),
    )
    application = kernel.open("application")
    with RawStomp(int(kernel.address_of("broker").rpartition(":")[2])) as client:
        client.connect()
        client.send("SEND", b"routed", destination="/queue/a", receipt="1")
        # A frame that publishes nothing is answered at once.
        assert client.ask("SUBSCRIBE", id="1", destination="/queue/b", receipt="2")["receipt-id"] == "2"
        client.send("DISCONNECT", receipt="3")
        assert bytes(application.receive()) == b"routed"
        application.confirm()
        assert [client.next()["receipt-id"], client.next()["receipt-id"]] == ["1", "3"]
        assert client.is_closed()
    application.close()
    kernel.close(linger=0)


def test_a_message_that_a_full_queue_refuses_is_an_error(broker: StompBroker) -> None:
    full = {"x_max_length": "1", "x_overflow": "reject-publish"}
    client = broker.connect()
    client.ask("SEND", b"one", destination="/queue/a", **full)
    client.send("SEND", b"two", destination="/queue/a", receipt="two")
    error = client.next()
    assert (error["message"], error["receipt-id"]) == ("Message refused", "two")
    assert client.is_closed()
    client = broker.connect()
    client.send("SEND", b"three", destination="/amq/queue/a")
    fails(client, "Message refused")
    assert bodies(broker, "a") == [b"one"]


# Transactions


def test_a_transaction_is_published_at_its_commit(broker: StompBroker) -> None:
    client = broker.connect()
    client.send("BEGIN", transaction="1")
    client.send("BEGIN", transaction="2")
    for body in (b"a", b"b"):
        client.send("SEND", body, destination="/queue/q", transaction="1", receipt=body.decode())
    client.send("SEND", b"c", destination="/queue/q", transaction="2", receipt="c")
    client.send("SEND", b"d", destination="/queue/q")
    assert client.ask("ABORT", transaction="2", receipt="abort")["receipt-id"] == "abort"
    assert broker.queue("q")["messages"] == 1
    client.send("COMMIT", transaction="1", receipt="commit")
    assert [client.next()["receipt-id"] for _ in range(3)] == ["a", "b", "commit"]
    assert bodies(broker, "q") == [b"d", b"a", b"b"]


@pytest.mark.parametrize("destination", ["/topic/a.b", "/exchange/amq.topic/a.b", "/queue/q"])
def test_who_subscribes_before_the_commit_gets_what_was_sent_before(
    broker: StompBroker, destination: str
) -> None:
    """STOMP 1.2, COMMIT; RabbitMQ 3.10.8 was seen to do so."""
    sending, reading = broker.connect(), broker.connect()
    sending.send("BEGIN", transaction="1")
    sending.send("SEND", b"a", destination=destination, transaction="1")
    # Its answer says that the message has come.
    sending.ask("BEGIN", transaction="2")
    reading.ask("SUBSCRIBE", destination=destination, id="s")
    sending.ask("COMMIT", transaction="1")
    assert reading.next_of("MESSAGE").body == b"a"


def test_a_transaction_that_cannot_be_committed_changes_nothing(broker: StompBroker) -> None:
    channel = broker.channel()
    channel.exchange_declare("gone")
    client = broker.connect()
    client.send("SEND", b"unacknowledged", destination="/queue/in")
    client.send("SUBSCRIBE", destination="/queue/in", id="s", ack="client-individual")
    delivered = client.next_of("MESSAGE")
    client.send("BEGIN", transaction="1")
    client.send("SEND", b"a", destination="/queue/q", transaction="1")
    client.send("SEND", b"b", destination="/exchange/gone/k", transaction="1")
    client.send("ACK", id=delivered["ack"], transaction="1")
    channel.exchange_delete("gone")
    client.send("COMMIT", transaction="1")
    assert "gone" in client.next_of("ERROR").body.decode()
    broker.wait(lambda: not broker.rows("consumers"))
    assert (bodies(broker, "q"), bodies(broker, "in")) == ([], [b"unacknowledged"])


def test_what_was_committed_is_on_the_disk(serve: ServeStomp, tmp_path: Path) -> None:
    broker = serve(data_dir=str(tmp_path / "data"))
    client = broker.connect()
    client.send("BEGIN", transaction="1")
    client.send("SEND", b"kept", destination="/queue/q", transaction="1", persistent="true")
    client.ask("COMMIT", transaction="1")
    broker.close()
    assert bodies(serve(data_dir=str(tmp_path / "data")), "q") == [b"kept"]


@pytest.mark.parametrize("end", ["DISCONNECT", "lost"])
def test_an_open_transaction_ends_with_its_connection(broker: StompBroker, end: str) -> None:
    client = broker.connect()
    client.send("BEGIN", transaction="1")
    client.send("SEND", b"a", destination="/queue/q", transaction="1")
    client.ask("BEGIN", transaction="2")
    if end == "DISCONNECT":
        client.ask("DISCONNECT")
    client.socket.close()
    broker.wait(lambda: not broker.rows("connections"))
    assert bodies(broker, "q") == []


@pytest.mark.parametrize(
    "command, headers, message",
    [
        ("BEGIN", {}, "Missing transaction"),
        ("COMMIT", {}, "Missing transaction"),
        ("ABORT", {}, "Missing transaction"),
        ("BEGIN", {"transaction": "open"}, "Bad transaction"),
        ("COMMIT", {"transaction": "x"}, "Bad transaction"),
        ("ABORT", {"transaction": "x"}, "Bad transaction"),
        ("SEND", {"transaction": "x", "destination": "/queue/q"}, "Bad transaction"),
        ("ACK", {"transaction": "x", "id": "1"}, "Bad transaction"),
        ("BEGIN", {"transaction": "third"}, "Too many transactions"),
    ],
)
def test_transactions_that_are_refused(
    serve: ServeStomp, command: str, headers: dict[str, object], message: str
) -> None:
    client = serve({"max_transactions": 2}).connect()
    client.send("BEGIN", transaction="open")
    client.send("BEGIN", transaction="another")
    client.send(command, **headers)
    fails(client, message)


def test_a_send_needs_a_destination(broker: StompBroker) -> None:
    client = broker.connect()
    client.send("SEND", b"x")
    fails(client, "Missing destination")
