"""Conversations of STOMP clients, to be had with any broker: each tells in plain lines what came back.

What is no matter is left out: names of sessions and queues that the broker invents, and the numbers of deliveries.
Of an ERROR frame only the header ``message`` counts: the body is for people.  RabbitMQ leaves the connection open
behind most of them, and has what belongs to a SEND frame among the headers of its message.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.plugins.engines.stomp.raw_client import Frame, RawStomp

_INVENTED = re.compile(r"session-[\w-]+|(?:stomp-subscription-|stomp\.gen-|amq\.gen-)[\w-]+")
_DELIVERY = re.compile(r"(?<=@@)\d+(?=')")
_LEFT_OUT = ("server", "version", "session", "receipt", "transaction")

Open = Callable[..., RawStomp]
Lines = list[str]


def told(frame: Frame) -> str:
    """Return a frame as one line."""
    headers = {name: value for name, value in frame.headers.items() if name not in _LEFT_OUT}
    if frame.command == "ERROR":
        headers = {"message": frame["message"]}
    body = frame.body if frame.command == "MESSAGE" else b""
    return _DELIVERY.sub("N", _INVENTED.sub("...", f"{frame.command} {sorted(headers.items())} {body!r}"))


def failing(*frames: tuple[str, dict[str, object]]) -> Callable[[Open, str], Lines]:
    """A conversation of these frames, up to the ERROR frame; ``NAME`` stands for a name."""

    def talk(open_client: Open, name: str) -> Lines:
        client = open_client()
        for command, headers in frames:
            client.send(
                command,
                **{each: str(value).replace("NAME", name) for each, value in headers.items()},
            )
        return [told(client.next())]

    return talk


def _connect(version: str) -> Callable[[Open, str], Lines]:
    def talk(open_client: Open, name: str) -> Lines:
        client = open_client(None)
        connected = client.connect(version)
        return [connected["version"], told(connected)]

    return talk


def _queue(version: str) -> Callable[[Open, str], Lines]:
    def talk(open_client: Open, name: str) -> Lines:
        client = open_client(version)
        lines = [told(client.ask("SEND", b"hello", destination=f"/queue/{name}"))]
        client.send("SUBSCRIBE", id="1", destination=f"/queue/{name}", ack="client-individual")
        message = client.next()
        lines.append(told(message))
        named = message.headers.get("ack", message["message-id"])
        names = {"id": named} if version == "1.2" else {"message-id": named, "subscription": "1"}
        lines.append(told(client.ask("ACK", **names)))
        lines.append(told(client.ask("UNSUBSCRIBE", id="1")))
        lines.append(told(client.ask("DISCONNECT")))
        assert client.is_closed()
        return [line.replace(name, "NAME") for line in lines]

    return talk


def properties(open_client: Open, name: str) -> Lines:
    client = open_client()
    client.send("SUBSCRIBE", id="1", destination=f"/queue/{name}")
    client.send(
        "SEND",
        b"a\0b",
        destination=f"/queue/{name}",
        content_length=3,
        content_type="text/plain",
        content_encoding="gzip",
        correlation_id="c",
        amqp_message_id="m",
        type="t",
        user_id="guest",
        app_id="a",
        persistent="true",
        priority="7",
        expiration="100000",
        reply_to="/queue/replies",
        timestamp="1767323045",
        x_own="o\\cw\\nn",
    )
    return [told(client.next()).replace(name, "NAME")]


def topic(open_client: Open, name: str) -> Lines:
    client = open_client()
    client.ask("SUBSCRIBE", id="1", destination=f"/topic/{name}.*")
    client.ask("SUBSCRIBE", id="2", destination=f"/topic/{name}.#")
    client.send("SEND", b"one", destination=f"/topic/{name}.a")
    client.send("SEND", b"two", destination=f"/topic/{name}.a.b")
    lines = sorted(told(client.next()) for _ in range(3))
    return [line.replace(name, "NAME") for line in lines]


def exchange(open_client: Open, name: str) -> Lines:
    client = open_client()
    client.ask("SUBSCRIBE", id="1", destination="/exchange/amq.direct/" + name)
    client.ask("SUBSCRIBE", id="2", destination="/exchange/amq.fanout")
    client.send("SEND", b"one", destination="/exchange/amq.direct/" + name)
    lines = [told(client.next())]
    client.send("SEND", b"two", destination="/exchange/amq.fanout")
    lines.append(told(client.next()))
    return [line.replace(name, "NAME") for line in lines]


def a_plain_name_is_a_queue(open_client: Open, name: str) -> Lines:
    client = open_client()
    client.send("SUBSCRIBE", id="1", destination=name)
    client.send("SEND", b"one", destination=name)
    lines = [told(client.next())]
    client.send("SEND", b"two", destination=f"/amq/queue/{name}")
    lines.append(told(client.next()))
    client.send("SEND", b"three", destination=f"/reply-queue/{name}")
    lines.append(told(client.next()))
    return [line.replace(name, "NAME") for line in lines]


def a_slash_in_a_name(open_client: Open, name: str) -> Lines:
    client = open_client()
    client.send("SUBSCRIBE", id="1", destination=f"/queue/{name}%2Fpart")
    client.send("SEND", b"one", destination=f"/queue/{name}%2Fpart")
    return [told(client.next()).replace(name, "NAME")]


def nack_requeues(open_client: Open, name: str) -> Lines:
    client = open_client()
    client.send("SEND", b"one", destination=f"/queue/{name}")
    client.send("SUBSCRIBE", id="1", destination=f"/queue/{name}", ack="client-individual")
    first = client.next()
    client.send("NACK", id=first["ack"])
    second = client.next()
    client.ask("NACK", id=second["ack"], requeue="false")
    client.send("SEND", b"two", destination=f"/queue/{name}")
    return [told(each).replace(name, "NAME") for each in (first, second, client.next())]


def cumulative_acks(open_client: Open, name: str) -> Lines:
    client = open_client()
    for body in (b"one", b"two", b"three"):
        client.send("SEND", body, destination=f"/queue/{name}")
    client.send("SUBSCRIBE", id="1", destination=f"/queue/{name}", ack="client")
    messages = [client.next() for _ in range(3)]
    client.ask("ACK", id=messages[1]["ack"])
    client.ask("DISCONNECT")
    other = open_client()
    other.send("SUBSCRIBE", id="1", destination=f"/queue/{name}")
    return [told(other.next()).replace(name, "NAME")]


def prefetch(open_client: Open, name: str) -> Lines:
    client = open_client()
    for body in (b"one", b"two", b"three"):
        client.ask("SEND", body, destination=f"/queue/{name}")
    client.send(
        "SUBSCRIBE", id="1", destination=f"/queue/{name}", ack="client-individual", prefetch_count="1"
    )
    lines = []
    for _ in range(3):
        message = client.next()
        lines += [told(message), told(client.ask("BEGIN", transaction=message["message-id"]))]
        client.send("ACK", id=message["ack"])
    return [line.replace(name, "NAME") for line in lines]


def a_transaction_is_committed(open_client: Open, name: str) -> Lines:
    client = open_client()
    client.send("SUBSCRIBE", id="1", destination=f"/queue/{name}")
    client.send("BEGIN", transaction="tx")
    client.send("SEND", b"one", destination=f"/queue/{name}", transaction="tx")
    client.send("SEND", b"two", destination=f"/queue/{name}", transaction="tx")
    lines = [told(client.ask("BEGIN", transaction="other"))]
    client.send("COMMIT", transaction="tx")
    lines += [told(client.next()), told(client.next())]
    return [line.replace(name, "NAME") for line in lines]


def a_transaction_is_aborted(open_client: Open, name: str) -> Lines:
    client = open_client()
    client.send("SUBSCRIBE", id="1", destination=f"/queue/{name}")
    client.send("BEGIN", transaction="tx")
    client.send("SEND", b"one", destination=f"/queue/{name}", transaction="tx")
    lines = [told(client.ask("ABORT", transaction="tx"))]
    client.send("SEND", b"two", destination=f"/queue/{name}")
    lines.append(told(client.next()))
    return [line.replace(name, "NAME") for line in lines]


def acks_in_transactions(open_client: Open, name: str) -> Lines:
    """An ACK counts with COMMIT, and not at all with ABORT."""
    client = open_client()
    for body in (b"one", b"two"):
        client.send("SEND", body, destination=f"/queue/{name}")
    client.send("SUBSCRIBE", id="1", destination=f"/queue/{name}", ack="client-individual")
    first, second = client.next(), client.next()
    for message, end in ((first, "COMMIT"), (second, "ABORT")):
        client.send("BEGIN", transaction=end)
        client.send("ACK", id=message["ack"], transaction=end)
        client.send(end, transaction=end)
    client.ask("DISCONNECT")
    other = open_client()
    other.send("SUBSCRIBE", id="1", destination=f"/queue/{name}")
    other.send("SEND", b"three", destination=f"/queue/{name}")
    return [told(other.next()).replace(name, "NAME") for _ in range(2)]


def cumulative_nacks(open_client: Open, name: str) -> Lines:
    client = open_client()
    for body in (b"one", b"two", b"three"):
        client.send("SEND", body, destination=f"/queue/{name}")
    client.send("SUBSCRIBE", id="1", destination=f"/queue/{name}", ack="client")
    messages = [client.next() for _ in range(3)]
    client.send("NACK", id=messages[1]["ack"])
    return [told(client.next()).replace(name, "NAME") for _ in range(2)]


def a_lost_client(open_client: Open, name: str) -> Lines:
    """What it has not acknowledged is for others, as redelivered."""
    client = open_client()
    client.ask("SEND", b"one", destination=f"/queue/{name}")
    client.send("SUBSCRIBE", id="1", destination=f"/queue/{name}", ack="client")
    lines = [told(client.next())]
    client.socket.close()
    other = open_client()
    other.send("SUBSCRIBE", id="1", destination=f"/queue/{name}", ack="auto")
    return [line.replace(name, "NAME") for line in (*lines, told(other.next()))]


def a_durable_subscription(open_client: Open, name: str) -> Lines:
    """It has what came while its client was away, until it is unsubscribed for good."""
    durable = {"id": name, "destination": f"/topic/{name}", "durable": "true", "auto_delete": "false"}
    client = open_client()
    client.ask("SUBSCRIBE", **durable)
    client.ask("DISCONNECT")
    sender = open_client()
    sender.ask("SEND", b"meanwhile", destination=f"/topic/{name}")
    client = open_client()
    client.send("SUBSCRIBE", **durable)
    lines = [told(client.next())]
    lines.append(told(client.ask("UNSUBSCRIBE", id=name, destination=f"/topic/{name}", durable="true")))
    sender.ask("SEND", b"for nobody", destination=f"/topic/{name}")
    client.ask("SUBSCRIBE", **durable)
    sender.ask("SEND", b"later", destination=f"/topic/{name}")
    lines.append(told(client.next()))
    client.ask("UNSUBSCRIBE", id=name, destination=f"/topic/{name}", durable="true")
    return [line.replace(name, "NAME") for line in lines]


def a_subscription_names_its_queue(open_client: Open, name: str) -> Lines:
    client, other = open_client(), open_client()
    client.ask(
        "SUBSCRIBE",
        id="1",
        destination=f"/topic/{name}",
        x_queue_name=f"{name}-own",
        auto_delete="true",
        exclusive="false",
    )
    other.ask("SEND", b"by its topic", destination=f"/topic/{name}")
    lines = [told(client.next())]
    other.ask("SEND", b"by its name", destination=f"/amq/queue/{name}-own")
    lines.append(told(client.next()))
    return [line.replace(name, "NAME") for line in lines]


def two_subscribers_share_a_queue(open_client: Open, name: str) -> Lines:
    """And each subscription to a topic gets every message."""
    clients = [open_client(), open_client()]
    for each in clients:
        each.ask("SUBSCRIBE", id="q", destination=f"/queue/{name}")
        each.ask("SUBSCRIBE", id="t", destination=f"/topic/{name}")
    for body in (b"one", b"two"):
        clients[0].ask("SEND", body, destination=f"/queue/{name}")
    lines = [told(each.next()).replace(name, "NAME") for each in clients]
    clients[0].send("SEND", b"three", destination=f"/topic/{name}")
    return sorted([*lines, *(told(each.next()).replace(name, "NAME") for each in clients)])


def logging_in_with(**headers: object) -> Callable[[Open, str], Lines]:
    """A CONNECT that is refused."""

    def talk(open_client: Open, name: str) -> Lines:
        client = open_client(None)
        return [told(client.connect("1.2", **headers))]

    return talk


def request_and_reply(open_client: Open, name: str) -> Lines:
    server, client = open_client(), open_client()
    server.ask("SUBSCRIBE", id="s", destination=f"/queue/{name}")
    client.send("SEND", b"question", destination=f"/queue/{name}", reply_to="/temp-queue/mine")
    question = server.next()
    server.send("SEND", b"answer", destination=question["reply-to"])
    return [told(question).replace(name, "NAME"), told(client.next())]


def two_requests_and_one_temporary_queue(open_client: Open, name: str) -> Lines:
    server, client = open_client(), open_client()
    server.ask("SUBSCRIBE", id="s", destination=f"/queue/{name}")
    for body in (b"one", b"two"):
        client.send("SEND", body, destination=f"/queue/{name}", reply_to="/temp-queue/mine")
    questions = [server.next(), server.next()]
    for question in questions:
        server.send("SEND", question.body, destination=question["reply-to"])
    same = questions[0]["reply-to"] == questions[1]["reply-to"]
    return [str(same), told(client.next()), told(client.next())]


def a_reply_to_a_queue(open_client: Open, name: str) -> Lines:
    server, client = open_client(), open_client()
    server.ask("SUBSCRIBE", id="s", destination=f"/queue/{name}")
    client.ask("SUBSCRIBE", id="c", destination=f"/queue/{name}-replies")
    client.send("SEND", b"question", destination=f"/queue/{name}", reply_to=f"/queue/{name}-replies")
    question = server.next()
    server.send("SEND", b"answer", destination=question["reply-to"])
    return [told(each).replace(name, "NAME") for each in (question, client.next())]


def acknowledged_out_of_order(open_client: Open, name: str) -> Lines:
    client = open_client()
    for body in (b"one", b"two", b"three"):
        client.send("SEND", body, destination=f"/queue/{name}")
    client.send("SUBSCRIBE", id="1", destination=f"/queue/{name}", ack="client-individual")
    messages = [client.next() for _ in range(3)]
    client.send("ACK", id=messages[2]["ack"])
    client.ask("ACK", id=messages[0]["ack"])
    client.ask("DISCONNECT")
    other = open_client()
    other.send("SUBSCRIBE", id="1", destination=f"/queue/{name}")
    other.send("SEND", b"four", destination=f"/queue/{name}")
    return [told(other.next()).replace(name, "NAME") for _ in range(2)]


def a_transaction_of_a_lost_client(open_client: Open, name: str) -> Lines:
    client = open_client()
    client.ask("BEGIN", transaction="tx")
    client.ask("SEND", b"first", destination=f"/queue/{name}")
    client.send("SEND", b"never", destination=f"/queue/{name}", transaction="tx")
    client.ask("DISCONNECT")
    other = open_client()
    other.send("SUBSCRIBE", id="1", destination=f"/queue/{name}")
    other.send("SEND", b"second", destination=f"/queue/{name}")
    return [told(other.next()).replace(name, "NAME") for _ in range(2)]


def expired_at_once(open_client: Open, name: str) -> Lines:
    client = open_client()
    client.ask("SEND", b"one", destination=f"/queue/{name}", expiration="0")
    client.ask("SEND", b"two", destination=f"/queue/{name}")
    client.ask("SUBSCRIBE", id="1", destination=f"/queue/{name}")
    return [told(client.next()).replace(name, "NAME")]


def priorities(open_client: Open, name: str) -> Lines:
    client = open_client()
    client.ask("SEND", b"low", destination=f"/queue/{name}", x_max_priority="5", priority="1")
    client.ask("SEND", b"high", destination=f"/queue/{name}", priority="4")
    client.send("SUBSCRIBE", id="1", destination=f"/queue/{name}", x_max_priority="5")
    return [told(client.next()).replace(name, "NAME") for _ in range(2)]


def a_full_queue_drops_its_head(open_client: Open, name: str) -> Lines:
    client = open_client()
    for body in (b"one", b"two", b"three"):
        client.ask("SEND", body, destination=f"/queue/{name}", x_max_length="2")
    client.send("SUBSCRIBE", id="1", destination=f"/queue/{name}", x_max_length="2")
    return [told(client.next()).replace(name, "NAME") for _ in range(2)]


def a_dead_letter(open_client: Open, name: str) -> Lines:
    client = open_client()
    client.ask("SUBSCRIBE", id="d", destination=f"/queue/{name}-dead")
    policy = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": f"{name}-dead"}
    client.ask("SEND", b"one", destination=f"/queue/{name}", **policy)
    client.send("SUBSCRIBE", id="1", destination=f"/queue/{name}", ack="client-individual", **policy)
    client.send("NACK", id=client.next()["ack"], requeue="false")
    return [told(client.next()).replace(name, "NAME")]


def a_receipt_of_a_send_in_a_transaction(open_client: Open, name: str) -> Lines:
    client = open_client()
    client.send("BEGIN", transaction="tx")
    client.send("SEND", b"one", destination=f"/queue/{name}", transaction="tx", receipt="send")
    client.send("BEGIN", transaction="other", receipt="begin")
    lines = [told(client.next())]
    client.send("COMMIT", transaction="tx")
    return [*lines, told(client.next())]


def heart_beats(open_client: Open, name: str) -> Lines:
    client = open_client(None)
    return [client.connect("1.2", heart_beat="7000,5000")["heart-beat"]]


def an_empty_body(open_client: Open, name: str) -> Lines:
    client = open_client()
    client.send("SUBSCRIBE", id="1", destination=f"/queue/{name}")
    client.send("SEND", destination=f"/queue/{name}")
    return [told(client.next()).replace(name, "NAME")]


CONVERSATIONS: dict[str, Callable[[Open, str], Lines]] = {
    **{
        f"connect {version}": _connect(version) for version in ("1.0", "1.1", "1.2", "1.0,1.1,1.2", "1.1,2.0")
    },
    **{f"queue {version}": _queue(version) for version in ("1.0", "1.1", "1.2")},
    **{
        each.__name__: each
        for each in (
            properties,
            topic,
            exchange,
            a_plain_name_is_a_queue,
            a_slash_in_a_name,
            nack_requeues,
            cumulative_acks,
            cumulative_nacks,
            acks_in_transactions,
            a_lost_client,
            a_durable_subscription,
            a_subscription_names_its_queue,
            two_subscribers_share_a_queue,
            prefetch,
            a_transaction_is_committed,
            a_transaction_is_aborted,
            a_transaction_of_a_lost_client,
            acknowledged_out_of_order,
            expired_at_once,
            priorities,
            a_full_queue_drops_its_head,
            a_dead_letter,
            request_and_reply,
            two_requests_and_one_temporary_queue,
            a_reply_to_a_queue,
            a_receipt_of_a_send_in_a_transaction,
            heart_beats,
            an_empty_body,
        )
    },
    "a wrong passcode": logging_in_with(passcode="wrong"),
    "a virtual host that is not there": logging_in_with(host="nowhere"),
    "a version that nobody speaks": logging_in_with(accept_version="9.9"),
    "send without destination": failing(("SEND", {})),
    "send to nowhere": failing(("SEND", {"destination": "/nowhere/x"})),
    "send to an empty name": failing(("SEND", {"destination": "/queue/"})),
    "send to two names": failing(("SEND", {"destination": "/queue/a/b"})),
    "send to a temporary queue": failing(("SEND", {"destination": "/temp-queue/a"})),
    "send with a message-id": failing(("SEND", {"destination": "/queue/NAME", "message_id": "1"})),
    "send to an exchange that is not there": failing(("SEND", {"destination": "/exchange/NAME/k"})),
    "send as somebody else": failing(("SEND", {"destination": "/topic/NAME", "user_id": "eve"})),
    "subscribe without destination": failing(("SUBSCRIBE", {"id": 1})),
    "subscribe to an exchange that is not there": failing(
        ("SUBSCRIBE", {"id": 1, "destination": "/exchange/NAME"})
    ),
    "subscribe to a queue that is not there": failing(
        ("SUBSCRIBE", {"id": 1, "destination": "/amq/queue/NAME"})
    ),
    "subscribe with an identifier of ours": failing(
        ("SUBSCRIBE", {"id": "/temp-queue/1", "destination": "/queue/NAME"})
    ),
    "subscribe durably without id": failing(("SUBSCRIBE", {"destination": "/topic/NAME", "durable": "true"})),
    "subscribe twice": failing(
        ("SUBSCRIBE", {"id": 1, "destination": "/queue/NAME"}),
        ("SUBSCRIBE", {"id": 1, "destination": "/queue/NAME"}),
    ),
    "another durability": failing(
        ("SEND", {"destination": "/queue/NAME"}),
        ("SUBSCRIBE", {"id": 1, "destination": "/queue/NAME", "durable": "false"}),
    ),
    "unsubscribe from nothing": failing(("UNSUBSCRIBE", {"id": 1})),
    "acknowledge without id": failing(("ACK", {})),
    "acknowledge nonsense": failing(("ACK", {"id": "nonsense"})),
    "begin without transaction": failing(("BEGIN", {})),
    "commit what has not begun": failing(("COMMIT", {"transaction": "tx"})),
    "send in what has not begun": failing(("SEND", {"destination": "/queue/NAME", "transaction": "tx"})),
    "an unknown command": failing(("HELLO", {})),
    "messages are for servers": failing(("MESSAGE", {"destination": "/queue/NAME"})),
    "an ack mode that is none": failing(
        ("SUBSCRIBE", {"id": 1, "destination": "/queue/NAME", "ack": "never"})
    ),
}
