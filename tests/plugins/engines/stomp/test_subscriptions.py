"""SUBSCRIBE, MESSAGE, ACK, NACK and UNSUBSCRIBE; AMQP clients on the other side."""

from __future__ import annotations

from typing import Any

import pika
import pytest

from tests.plugins.engines.stomp.conftest import ServeStomp, StompBroker
from tests.plugins.engines.stomp.raw_client import Frame, RawStomp, frame


def fails(client: RawStomp, message: str) -> bytes:
    error = client.next_of("ERROR")
    assert error["message"] == message, error
    assert client.is_closed()
    return error.body


def fill(broker: StompBroker, *bodies: bytes, queue: str = "q") -> None:
    client = broker.connect()
    for body in bodies:
        client.ask("SEND", body, destination=f"/queue/{queue}")
    client.ask("DISCONNECT")


def unacknowledged(broker: StompBroker) -> int:
    count: int = broker.queue("q")["messages_unacknowledged"]
    return count


def ack_headers(message: Frame, version: str) -> dict[str, str]:
    if version == "1.2":
        return {"id": message["ack"]}
    return {"message-id": message["message-id"]} | ({"subscription": "1"} if version == "1.1" else {})


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_message_and_its_acknowledgement(broker: StompBroker, version: str) -> None:
    fill(broker, b"hello")
    client = broker.connect(version)
    client.send("SUBSCRIBE", id="1", destination="/queue/q", ack="client-individual")
    message = client.next()
    assert message.command == "MESSAGE"
    assert message.body == b"hello"
    assert message["destination"] == "/queue/q"
    assert message["subscription"] == "1"
    assert message["redelivered"] == "false"
    assert ("ack" in message.headers) == (version == "1.2")
    assert unacknowledged(broker) == 1
    client.ask("ACK", **ack_headers(message, version))
    assert broker.queue("q")["messages"] == 0


def test_auto_needs_no_acknowledgement(broker: StompBroker) -> None:
    fill(broker, b"hello")
    client = broker.connect()
    client.send("SUBSCRIBE", id="1", destination="/queue/q")
    message = client.next()
    assert "ack" not in message.headers
    assert broker.queue("q")["messages"] == 0
    client.send("ACK", id=message["message-id"])
    fails(client, "precondition_failed")


def test_client_acknowledges_all_before_in_its_subscription_alone(broker: StompBroker) -> None:
    fill(broker, b"1", b"2", b"3", b"4")
    fill(broker, b"other", queue="other")
    client = broker.connect()
    client.send("SUBSCRIBE", id="o", destination="/queue/other", ack="client")
    client.next()
    client.send("SUBSCRIBE", id="1", destination="/queue/q", ack="client")
    messages = [client.next() for _ in range(4)]
    client.ask("ACK", id=messages[2]["ack"])
    assert unacknowledged(broker) == 1
    assert broker.queue("other")["messages_unacknowledged"] == 1


def test_client_individual_acknowledges_one(broker: StompBroker) -> None:
    fill(broker, b"1", b"2", b"3")
    client = broker.connect()
    client.send("SUBSCRIBE", id="1", destination="/queue/q", ack="client-individual")
    messages = [client.next() for _ in range(3)]
    client.ask("ACK", id=messages[2]["ack"])
    assert unacknowledged(broker) == 2


@pytest.mark.parametrize("mode", ["client", "client-individual"])
@pytest.mark.parametrize(
    "order", [[0, 1, 2, 3, 4, 5], [0, 1, 3, 5], [5, 4, 3, 2, 1, 0], [0, 1, 9, 4, 5], [0, 1, 1, 2]]
)
def test_acknowledgements_in_one_write(broker: StompBroker, mode: str, order: list[int]) -> None:
    """They count one by one, in their order, up to the first that is wrong."""
    fill(broker, *[b"%d" % number for number in range(6)])
    client = broker.connect()
    client.send("SUBSCRIBE", id="1", destination="/queue/q", ack=mode)
    names = {number: client.next()["ack"] for number in range(6)} | {9: "T_2@@session-other@@1"}
    client.socket.sendall(b"".join(frame("ACK", id=names[number]) for number in order))
    left, fault = set(range(6)), ""
    for number in order:
        if number not in left:
            fault = "Invalid header" if number == 9 else "precondition_failed"
            break
        left -= {each for each in left if each == number or (mode == "client" and each < number)}
    if fault:
        fails(client, fault)
    else:
        client.ask("DISCONNECT")
    broker.wait(lambda: not broker.queue("q")["consumers"])
    assert broker.queue("q")["messages"] == len(left)


@pytest.mark.parametrize("mode, count", [("client", 2), ("client-individual", 1)])
@pytest.mark.parametrize("requeue", [None, "true", "false"])
def test_nack(broker: StompBroker, mode: str, count: int, requeue: str | None) -> None:
    fill(broker, b"1", b"2")
    client = broker.connect()
    client.send("SUBSCRIBE", id="1", destination="/queue/q", ack=mode)
    messages = [client.next() for _ in range(2)]
    client.send("NACK", id=messages[1]["ack"], **({} if requeue is None else {"requeue": requeue}))
    if requeue == "false":
        client.ask("BEGIN", transaction="1")
        assert broker.queue("q")["messages"] == 2 - count
    else:
        again = [client.next() for _ in range(count)]
        assert [each.body for each in again] == [b"1", b"2"][2 - count :]
        assert {each["redelivered"] for each in again} == {"true"}


def test_a_rejected_message_is_a_dead_letter(broker: StompBroker) -> None:
    client = broker.connect()
    client.ask("SUBSCRIBE", id="dead", destination="/exchange/amq.fanout")
    client.send("SEND", b"1", destination="/queue/q", x_dead_letter_exchange="amq.fanout")
    client.send("SUBSCRIBE", id="1", destination="/queue/q", ack="client")
    client.send("NACK", id=client.next()["ack"], requeue="false")
    dead = client.next()
    assert (dead["subscription"], dead.body) == ("dead", b"1")
    assert dead["x-first-death-reason"] == "rejected"
    assert "x-death" not in dead.headers  # an array of tables has no form here


def test_acknowledgements_in_a_transaction(broker: StompBroker) -> None:
    fill(broker, b"1", b"2", b"3")
    client = broker.connect()
    client.send("SUBSCRIBE", id="1", destination="/queue/q", ack="client-individual")
    first, second, third = (client.next() for _ in range(3))
    client.send("BEGIN", transaction="t")
    client.send("BEGIN", transaction="dropped")
    client.send("ACK", id=first["ack"], transaction="t")
    client.send("NACK", id=second["ack"], transaction="t", requeue="false")
    client.ask("ACK", id=third["ack"], transaction="dropped")
    assert broker.queue("q")["messages"] == 3
    client.ask("COMMIT", transaction="t")
    client.ask("ABORT", transaction="dropped")
    assert unacknowledged(broker) == 1
    client.ask("ACK", id=third["ack"])
    assert broker.queue("q")["messages"] == 0


def test_prefetch(broker: StompBroker) -> None:
    fill(broker, b"1", b"2", b"3")
    client = broker.connect()
    client.send("SUBSCRIBE", id="1", destination="/queue/q", ack="client", prefetch_count="2")
    messages = [client.next(), client.next()]
    assert client.ask("BEGIN", transaction="1").command == "RECEIPT"
    assert unacknowledged(broker) == 2
    client.send("ACK", id=messages[1]["ack"])
    assert client.next().body == b"3"


def test_a_slow_subscriber_loses_nothing_and_nobody_waits_for_it(broker: StompBroker) -> None:
    slow, quick, publisher = broker.connect(), broker.connect(), broker.connect()
    for each in (slow, quick):
        each.ask("SUBSCRIBE", id="1", destination="/topic/t")
    body = b"x" * 200_000
    for number in range(100):
        # More than the sockets take of a client that does not read.
        publisher.send("SEND", b"%d " % number + body, destination="/topic/t")
        assert quick.next().body.startswith(b"%d " % number)
    (waiting,) = [row["messages"] for row in broker.rows("queues") if row["messages"]]
    assert waiting > 0
    assert [int(slow.next().body.partition(b" ")[0]) for _ in range(100)] == list(range(100))


def test_what_a_lost_client_had_is_delivered_again(broker: StompBroker) -> None:
    fill(broker, b"1")
    with broker.connect() as client:
        client.send("SUBSCRIBE", id="1", destination="/queue/q", ack="client")
        client.next()
    other = broker.connect()
    other.send("SUBSCRIBE", id="1", destination="/queue/q", ack="client")
    assert other.next()["redelivered"] == "true"


def test_after_unsubscribe_nothing_comes_and_the_rest_can_be_acknowledged(broker: StompBroker) -> None:
    fill(broker, b"1", b"2")
    client = broker.connect()
    client.send("SUBSCRIBE", id="1", destination="/queue/q", ack="client-individual", prefetch_count="1")
    first = client.next()
    client.ask("UNSUBSCRIBE", id="1")
    # The same identifier again: identifiers of messages do not repeat.
    client.send("SUBSCRIBE", id="1", destination="/queue/q", ack="client-individual", prefetch_count="1")
    second = client.next()
    assert second["ack"] != first["ack"]
    client.ask("ACK", id=first["ack"])
    client.ask("ACK", id=second["ack"])
    client.ask("UNSUBSCRIBE", id="1")
    assert broker.queue("q")["messages"] == 0
    assert broker.rows("consumers") == []
    client.send("ACK", id=second["ack"])
    fails(client, "Subscription not found")


def test_what_was_delivered_comes_before_the_receipt_of_unsubscribe(broker: StompBroker) -> None:
    fill(broker, *[b"x"] * 50)
    client = broker.connect()
    client.send("SUBSCRIBE", id="1", destination="/queue/q", ack="client")
    client.send("UNSUBSCRIBE", id="1", receipt="done")
    count = 0
    while client.next().command == "MESSAGE":
        count += 1
    assert unacknowledged(broker) == count
    assert client.ask("BEGIN", transaction="1").command == "RECEIPT"


def test_1_0_may_subscribe_without_id(broker: StompBroker) -> None:
    fill(broker, b"1")
    client = broker.connect("1.0")
    client.send("SUBSCRIBE", destination="/queue/q", ack="client")
    message = client.next()
    assert "subscription" not in message.headers
    client.ask("ACK", **{"message-id": message["message-id"]})
    client.ask("UNSUBSCRIBE", destination="/queue/q")
    assert broker.queue("q")["messages"] == 0


@pytest.mark.parametrize(
    "command, headers, message",
    [
        ("SUBSCRIBE", {"destination": "/queue/q"}, "Missing header"),
        ("SUBSCRIBE", {"id": "1"}, "Missing destination"),
        ("SUBSCRIBE", {"id": "open", "destination": "/queue/q"}, "Duplicated subscription identifier"),
        ("SUBSCRIBE", {"id": "/temp-queue/1", "destination": "/queue/q"}, "Invalid id"),
        ("SUBSCRIBE", {"id": "1", "destination": "/queue/q", "ack": "x"}, "Invalid header"),
        ("SUBSCRIBE", {"id": "1", "destination": "/queue/q", "prefetch-count": "x"}, "Invalid header"),
        ("SUBSCRIBE", {"id": "1", "destination": "/queue/x", "x-expires": "x"}, "Invalid header"),
        ("SUBSCRIBE", {"id": "1", "destination": "/queue/x", "x-expires": "-1"}, "precondition_failed"),
        ("SUBSCRIBE", {"id": "1", "destination": "/queue/q", "selector": "a = 1"}, "Selectors not supported"),
        ("SUBSCRIBE", {"id": "1", "destination": "/temp-queue/q"}, "Invalid destination"),
        ("SUBSCRIBE", {"id": "1", "destination": "/amq/queue/x"}, "not_found"),
        ("SUBSCRIBE", {"id": "1", "destination": "/exchange/x/k"}, "not_found"),
        ("SUBSCRIBE", {"id": "2", "destination": "/queue/q"}, "Too many subscriptions"),
        ("UNSUBSCRIBE", {}, "Missing header"),
        ("UNSUBSCRIBE", {"id": "other"}, "No subscription found"),
        ("ACK", {}, "Missing header"),
        ("ACK", {"id": "1"}, "Invalid header"),
        ("ACK", {"id": "T_open@@SESSION@@0"}, "Invalid header"),
        ("ACK", {"id": "T_open@@SESSION@@x"}, "Invalid header"),
        ("ACK", {"id": "T_open@@other@@1"}, "Invalid header"),
        ("ACK", {"id": "T_open@@SESSION@@1"}, "precondition_failed"),
        ("ACK", {"id": "T_never@@SESSION@@1"}, "Subscription not found"),
        ("NACK", {"id": "T_open@@SESSION@@1"}, "precondition_failed"),
        ("HELLO", {}, "Bad command"),
        ("RECEIPT", {"receipt-id": "1"}, "Bad command"),
    ],
)
def test_frames_that_are_refused(
    serve: ServeStomp, command: str, headers: dict[str, str], message: str
) -> None:
    full = message == "Too many subscriptions"
    client = serve({"max_subscriptions": 1 if full else 2}).open()
    session = client.connect()["session"]
    client.send("SUBSCRIBE", id="open", destination="/queue/q", ack="client")
    client.send(command, **{name: value.replace("SESSION", session) for name, value in headers.items()})
    fails(client, message)


def test_a_subscription_of_another_name_is_refused_in_1_1(broker: StompBroker) -> None:
    fill(broker, b"1")
    client = broker.connect("1.1")
    client.send("SUBSCRIBE", id="1", destination="/queue/q", ack="client")
    client.send("ACK", **{"message-id": client.next()["message-id"], "subscription": "2"})
    fails(client, "Invalid header")


def test_rights_of_the_user(serve: ServeStomp) -> None:
    rights = {
        "configure": "^(mine|stomp-subscription)",
        "write": "^(mine|stomp)",
        "read": "^(mine|stomp|amq.fanout)",
    }
    broker = serve(users={"guest": {"password": "guest", **rights}})
    client = broker.connect()
    client.ask("SUBSCRIBE", id="1", destination="/queue/mine")
    client.ask("SUBSCRIBE", id="2", destination="/exchange/amq.fanout")
    queues = broker.queue_names()
    for destination in ("/queue/other", "/topic/a", "/exchange/amq.direct/k"):
        client = broker.connect()
        client.send("SUBSCRIBE", id="1", destination=destination)
        fails(client, "access_refused")
    assert broker.queue_names() == queues


def test_rights_to_topics(serve: ServeStomp) -> None:
    topics = {"amq.topic": {"write": "^{username}[.]", "read": "^open[.]"}}
    broker = serve(users={"guest": {"password": "guest", "topics": topics}})
    reader = broker.connect()
    reader.send("SUBSCRIBE", id="1", destination="/topic/open.#")
    writer = broker.connect()
    writer.ask("SEND", b"", destination="/topic/guest.a")
    writer.send("SEND", b"", destination="/topic/open.a")
    fails(writer, "access_refused")
    reader.send("SUBSCRIBE", id="2", destination="/topic/#")
    fails(reader, "access_refused")


# Topics and exchanges


def test_each_subscription_to_a_topic_gets_each_message(broker: StompBroker) -> None:
    first, second = broker.connect(), broker.connect()
    first.ask("SUBSCRIBE", id="1", destination="/topic/a.*")
    second.ask("SUBSCRIBE", id="1", destination="/topic/#")
    first.send("SEND", b"1", destination="/topic/a.b")
    assert first.next()["destination"] == second.next()["destination"] == "/topic/a.b"
    rows = broker.rows("queues")
    assert {(row["durable"], row["auto_delete"], row["exclusive"]) for row in rows} == {(False, True, False)}
    first.ask("UNSUBSCRIBE", id="1")
    assert len(broker.queue_names()) == 1


def test_a_subscription_to_an_exchange_has_a_queue_of_its_own(broker: StompBroker) -> None:
    client = broker.connect()
    client.ask("SUBSCRIBE", id="1", destination="/exchange/amq.direct/k", x_queue_name="named")
    row = broker.queue("named")
    assert (row["durable"], row["auto_delete"], row["exclusive"]) == (False, True, True)
    client.send("SEND", b"1", destination="/exchange/amq.direct/k")
    assert client.next()["destination"] == "/exchange/amq.direct/k"


def test_a_durable_subscription_gets_what_came_meanwhile(broker: StompBroker) -> None:
    durable = {"id": "d", "destination": "/topic/a", "durable": "true", "auto_delete": "false"}
    client = broker.connect()
    client.ask("SUBSCRIBE", **durable)
    client.ask("UNSUBSCRIBE", id="d")
    client.ask("SEND", b"meanwhile", destination="/topic/a")
    other = broker.connect()
    other.send("SUBSCRIBE", **durable)
    assert other.next().body == b"meanwhile"
    assert len(broker.queue_names()) == 1
    other.ask("UNSUBSCRIBE", id="d", durable="true")
    assert broker.queue_names() == set()


# Replies


def test_a_temporary_queue_for_replies(broker: StompBroker) -> None:
    server, client = broker.connect(), broker.connect()
    server.ask("SUBSCRIBE", id="s", destination="/queue/questions")
    for body in (b"1", b"2"):
        client.send("SEND", body, destination="/queue/questions", reply_to="/temp-queue/mine")
    for body in (b"1", b"2"):
        question = server.next()
        server.send("SEND", b"answer " + body, destination=question["reply-to"])
        answer = client.next()
        assert (answer["subscription"], answer.body) == ("/temp-queue/mine", b"answer " + body)
    assert len(broker.queue_names()) == 2
    client.ask("DISCONNECT")
    broker.wait(lambda: len(broker.queue_names()) == 1)


def test_an_amqp_client_answers_a_stomp_client(broker: StompBroker) -> None:
    client, channel = broker.connect(), broker.channel()
    client.ask(
        "SEND", b"question", destination="/queue/questions", reply_to="/temp-queue/mine", correlation_id="7"
    )
    _, properties, body = channel.basic_get("questions", auto_ack=True)
    assert body == b"question"
    answer = pika.BasicProperties(correlation_id=properties.correlation_id)
    channel.basic_publish("", properties.reply_to, b"answer", answer)
    found = client.next()
    assert (found["correlation-id"], found.body) == ("7", b"answer")


def test_a_stomp_client_answers_an_amqp_client(broker: StompBroker) -> None:
    client, channel = broker.connect(), broker.channel()
    client.ask("SUBSCRIBE", id="1", destination="/queue/questions")
    answers: list[Any] = []
    channel.basic_consume("amq.rabbitmq.reply-to", lambda *got: answers.append(got), auto_ack=True)
    channel.basic_publish(
        "", "questions", b"question", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to")
    )
    question = client.next()
    assert question["reply-to"].startswith("/reply-queue/amq.rabbitmq.reply-to.")
    client.send("SEND", b"answer", destination=question["reply-to"])
    while not answers:
        channel.connection.process_data_events(time_limit=1)
    assert answers[0][3] == b"answer"


# Messages of others


def test_properties_of_amqp_are_headers(broker: StompBroker) -> None:
    client, channel = broker.connect(), broker.channel()
    client.ask("SUBSCRIBE", id="1", destination="/queue/q")
    channel.basic_publish(
        "",
        "q",
        b"body",
        pika.BasicProperties(
            content_type="text/plain",
            content_encoding="gzip",
            headers={"text": "a:b\nc", "number": 5, "yes": True, "table": {"a": 1}},
            delivery_mode=2,
            priority=3,
            correlation_id="c",
            reply_to="r",
            expiration="60000",
            message_id="m",
            timestamp=1767323045,
            type="t",
            user_id="guest",
            app_id="a",
        ),
    )
    message = client.next()
    own = ("subscription", "destination", "message-id", "redelivered")
    assert {name: value for name, value in message.headers.items() if name not in own} == {
        "content-type": "text/plain",
        "content-encoding": "gzip",
        "text": "a:b\nc",
        "number": "5",
        "yes": "true",
        "persistent": "true",
        "priority": "3",
        "correlation-id": "c",
        "reply-to": "/reply-queue/r",
        "expiration": "60000",
        "amqp-message-id": "m",
        "timestamp": "1767323045",
        "type": "t",
        "user-id": "guest",
        "app-id": "a",
    }


def test_headers_of_stomp_are_properties_of_amqp(broker: StompBroker) -> None:
    client, channel = broker.connect(), broker.channel()
    client.ask(
        "SEND",
        b"body",
        destination="/queue/q",
        content_type="text/plain",
        correlation_id="c",
        amqp_message_id="m",
        persistent="true",
        priority="3",
        expiration="60000",
        timestamp="1767323045",
        own="x\\cy",
    )
    _, properties, body = channel.basic_get("q", auto_ack=True)
    assert body == b"body"
    assert (properties.content_type, properties.correlation_id, properties.message_id) == (
        "text/plain",
        "c",
        "m",
    )
    assert (properties.delivery_mode, properties.priority, properties.expiration) == (2, 3, "60000")
    assert properties.timestamp == 1767323045
    assert properties.headers == {"own": "x:y"}


def test_a_message_that_stomp_cannot_carry_is_a_dead_letter(broker: StompBroker) -> None:
    client, channel = broker.connect("1.0"), broker.channel()
    channel.queue_declare("dead", durable=True)
    channel.queue_bind("dead", "amq.fanout")
    channel.queue_declare("q", durable=True, arguments={"x-dead-letter-exchange": "amq.fanout"})
    for mode in ("auto", "client"):
        client.ask("SUBSCRIBE", id=mode, destination="/amq/queue/q", ack=mode, prefetch_count="1")
        headers = {"two": "lines\nof text"}
        for body in (b"bad", b"worse"):
            channel.basic_publish("", "q", body, pika.BasicProperties(headers=headers))
        channel.basic_publish("", "q", b"good")
        assert client.next().body == b"good"
        client.ask("UNSUBSCRIBE", id=mode)
        for body in (b"bad", b"worse"):
            _, properties, dead = channel.basic_get("dead", auto_ack=True)
            assert dead == body
            assert properties.headers["x-death"][0]["reason"] == "undeliverable"


def test_a_queue_that_is_deleted_ends_the_connection(broker: StompBroker) -> None:
    client, channel = broker.connect(), broker.channel()
    client.ask("SUBSCRIBE", id="1", destination="/queue/q")
    channel.queue_delete("q")
    fails(client, "Server cancelled subscription")


def test_what_is_left_of_an_ended_subscription_returns_though_the_next_ones_queue_is_deleted(
    broker: StompBroker,
) -> None:
    fill(broker, b"1")
    client, channel = broker.connect(), broker.channel()
    client.send("SUBSCRIBE", id="1", destination="/queue/q", ack="client")
    client.next()
    client.ask("UNSUBSCRIBE", id="1")
    client.ask("SUBSCRIBE", id="1", destination="/queue/other", ack="client")
    channel.queue_delete("other")
    fails(client, "Server cancelled subscription")
    other = broker.connect()
    other.send("SUBSCRIBE", id="1", destination="/queue/q", ack="client")
    assert other.next()["redelivered"] == "true"


def test_what_is_left_of_an_ended_subscription_returns_though_the_next_one_is_refused(
    broker: StompBroker,
) -> None:
    fill(broker, b"1")
    client, channel = broker.connect(), broker.channel()
    channel.queue_declare("taken", auto_delete=False)
    channel.basic_consume("taken", lambda *_: None, exclusive=True)
    client.send("SUBSCRIBE", id="1", destination="/queue/q", ack="client")
    client.next()
    client.ask("UNSUBSCRIBE", id="1")
    client.send("SUBSCRIBE", id="1", destination="/amq/queue/taken", ack="client")
    client.next_of("ERROR")
    other = broker.connect()
    other.send("SUBSCRIBE", id="1", destination="/queue/q", ack="client")
    assert other.next()["redelivered"] == "true"


def test_many_messages_in_few_frames_arrive_in_order(broker: StompBroker) -> None:
    client, other = broker.connect(), broker.connect()
    other.ask("SUBSCRIBE", id="1", destination="/queue/q")
    bodies = [b"%d" % number * (number % 7) for number in range(2000)]
    for body in bodies:
        client.send("SEND", body, destination="/queue/q", content_length=len(body))
    assert [other.next().body for _ in bodies] == bodies


def test_headers_of_a_user_are_passed_through(broker: StompBroker) -> None:
    client = broker.connect()
    client.ask("SUBSCRIBE", id="1", destination="/queue/q")
    own = {"first": " spaces ", "Second": "\\c\\\\\\n\\r", "third": "\u00fc", "id": "5"}
    client.send("SEND", b"x", destination="/queue/q", **own)
    message = client.next()
    wanted = {"first": " spaces ", "Second": ":\\\n\r", "third": "\u00fc", "id": "5"}
    assert wanted.items() <= message.headers.items()


@pytest.mark.parametrize("destination", ["/queue/a%2Fb", "/topic/a.b%2Fc", "/exchange/amq.direct/x%25y"])
def test_the_destination_of_a_message_is_that_of_its_send(broker: StompBroker, destination: str) -> None:
    client = broker.connect()
    client.ask("SUBSCRIBE", id="1", destination=destination)
    client.send("SEND", b"x", destination=destination)
    assert client.next()["destination"] == destination


def test_identifiers_of_messages_are_unique(broker: StompBroker) -> None:
    client = broker.connect()
    for name in ("1", "2"):
        client.ask("SUBSCRIBE", id=name, destination="/topic/t")
    for _ in range(5):
        client.send("SEND", b"x", destination="/topic/t")
    assert len({client.next()["message-id"] for _ in range(10)}) == 10
