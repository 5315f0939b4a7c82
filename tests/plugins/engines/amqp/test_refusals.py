"""What the server refuses, and how: level, reply code and text as RabbitMQ 3.10 was seen to give them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import pack
from typing import Any

import pytest

from plugins.protocols.amqp091.frames import BODY, HEADER
from plugins.protocols.amqp091.methods import basic, channel, confirm, exchange, queue, tx
from plugins.protocols.amqp091.methods.method import Method
from tests.plugins.engines.amqp.conftest import Server
from tests.plugins.engines.amqp.raw_client import RawClient, frame

LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{}' in vhost '/'. It could be originally "
    "declared on another connection or the exclusive property value does not match that of the original declaration."
)
INVALID = "PRECONDITION_FAILED - invalid arg '{}' for queue 'new' in vhost '/': {}"
DIFFERS = "PRECONDITION_FAILED - inequivalent arg '{}' for {} '{}' in vhost '/': {}"
CHANNEL, CONNECTION = "channel", "connection"


def _declared(arguments: dict[str, Any]) -> Method:
    return queue.Declare(queue="new", arguments=arguments)


ONE_METHOD: list[tuple[str, Method, str, int, str]] = [
    (
        "passive declaration of a missing queue",
        queue.Declare(queue="none", passive=True),
        CHANNEL, 404, "NOT_FOUND - no queue 'none' in vhost '/'",
    ),
    (
        "passive declaration of a missing exchange",
        exchange.Declare(exchange="none", passive=True),
        CHANNEL, 404, "NOT_FOUND - no exchange 'none' in vhost '/'",
    ),
    (
        "redeclared queue with another durable",
        queue.Declare(queue="plain", durable=True),
        CHANNEL, 406, DIFFERS.format("durable", "queue", "plain", "received 'true' but current is 'false'"),
    ),
    (
        "redeclared queue with another auto_delete",
        queue.Declare(queue="plain", auto_delete=True),
        CHANNEL, 406, DIFFERS.format("auto_delete", "queue", "plain", "received 'true' but current is 'false'"),
    ),
    (
        "redeclared queue with other arguments",
        queue.Declare(queue="plain", arguments={"x-message-ttl": 5}),
        CHANNEL, 406,
        DIFFERS.format(
            "x-message-ttl", "queue", "plain", "received the value '5' of type 'signedint' but current is none"
        ),
    ),
    (
        "redeclared exchange of another type",
        exchange.Declare(exchange="x", type="fanout"),
        CHANNEL, 406, DIFFERS.format("type", "exchange", "x", "received 'fanout' but current is 'direct'"),
    ),
    (
        "redeclared exchange with another durable",
        exchange.Declare(exchange="x", durable=True),
        CHANNEL, 406, DIFFERS.format("durable", "exchange", "x", "received 'true' but current is 'false'"),
    ),
    (
        "unknown exchange type",
        exchange.Declare(exchange="new", type="ZZ"),
        CONNECTION, 503, "COMMAND_INVALID - unknown exchange type 'ZZ'",
    ),
    (
        "exchange with a reserved name",
        exchange.Declare(exchange="amq.foo"),
        CHANNEL, 403, "ACCESS_REFUSED - exchange name 'amq.foo' contains reserved prefix 'amq.*'",
    ),
    (
        "declaration of the default exchange",
        exchange.Declare(exchange=""),
        CHANNEL, 403, "ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    (
        "deletion of a system exchange",
        exchange.Delete(exchange="amq.direct"),
        CHANNEL, 403, "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed",
    ),
    (
        "deletion of the default exchange",
        exchange.Delete(exchange=""),
        CHANNEL, 403, "ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    (
        "deletion of a bound exchange if unused",
        exchange.Delete(exchange="x", if_unused=True),
        CHANNEL, 406, "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use",
    ),
    (
        "queue with a reserved name",
        queue.Declare(queue="amq.foo"),
        CHANNEL, 403, "ACCESS_REFUSED - queue name 'amq.foo' contains reserved prefix 'amq.*'",
    ),
    (
        "exclusive queue of another connection",
        queue.Declare(queue="exclusive", exclusive=True),
        CHANNEL, 405, LOCKED.format("exclusive"),
    ),
    (
        "exclusive queue of another connection, bound",
        queue.Bind(queue="exclusive", exchange="x"),
        CHANNEL, 405, LOCKED.format("exclusive"),
    ),
    (
        "exclusive declaration of a common queue",
        queue.Declare(queue="plain", exclusive=True),
        CHANNEL, 405, LOCKED.format("plain"),
    ),
    (
        "deletion of a queue with messages if empty",
        queue.Delete(queue="plain", if_empty=True),
        CHANNEL, 406, "PRECONDITION_FAILED - queue 'plain' in vhost '/' not empty",
    ),
    (
        "deletion of a consumed queue if unused",
        queue.Delete(queue="consumed", if_unused=True),
        CHANNEL, 406, "PRECONDITION_FAILED - queue 'consumed' in vhost '/' in use",
    ),
    ("purge of a missing queue", queue.Purge(queue="none"), CHANNEL, 404, "NOT_FOUND - no queue 'none' in vhost '/'"),
    (
        "binding of a missing queue",
        queue.Bind(queue="none", exchange="x"),
        CHANNEL, 404, "NOT_FOUND - no queue 'none' in vhost '/'",
    ),
    (
        "binding to a missing exchange",
        queue.Bind(queue="plain", exchange="none"),
        CHANNEL, 404, "NOT_FOUND - no exchange 'none' in vhost '/'",
    ),
    (
        "binding to the default exchange",
        queue.Bind(queue="plain", exchange=""),
        CHANNEL, 403, "ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    (
        "acknowledgement of an unknown tag",
        basic.Ack(delivery_tag=77),
        CHANNEL, 406, "PRECONDITION_FAILED - unknown delivery tag 77",
    ),
    (
        "negative acknowledgement of an unknown tag",
        basic.Nack(delivery_tag=77),
        CHANNEL, 406, "PRECONDITION_FAILED - unknown delivery tag 77",
    ),
    (
        "rejection of an unknown tag",
        basic.Reject(delivery_tag=77),
        CHANNEL, 406, "PRECONDITION_FAILED - unknown delivery tag 77",
    ),
    (
        "consuming from a missing queue",
        basic.Consume(queue="none"),
        CHANNEL, 404, "NOT_FOUND - no queue 'none' in vhost '/'",
    ),
    (
        "consuming beside an exclusive consumer",
        basic.Consume(queue="consumed"),
        CHANNEL, 403, "ACCESS_REFUSED - queue 'consumed' in vhost '/' in exclusive use",
    ),
    (
        "getting from a missing queue",
        basic.Get(queue="none"),
        CHANNEL, 404, "NOT_FOUND - no queue 'none' in vhost '/'",
    ),
    (
        "recovering without requeue",
        basic.Recover(requeue=False),
        CONNECTION, 540, "NOT_IMPLEMENTED - requeue=false",
    ),
    ("pausing the flow", channel.Flow(active=False), CONNECTION, 540, "NOT_IMPLEMENTED - active=false"),
    (
        "a prefetch in bytes",
        basic.Qos(prefetch_size=1),
        CONNECTION, 540, "NOT_IMPLEMENTED - prefetch_size!=0 (1)",
    ),
    (
        "a commit without a transaction",
        tx.Commit(),
        CHANNEL, 406, "PRECONDITION_FAILED - channel is not transactional",
    ),
    (
        "a rollback without a transaction",
        tx.Rollback(),
        CHANNEL, 406, "PRECONDITION_FAILED - channel is not transactional",
    ),
    (
        "an alternate exchange that is no name",
        exchange.Declare(exchange="new", arguments={"alternate-exchange": 1}),
        CHANNEL, 406,
        "PRECONDITION_FAILED - invalid type 'signedint' for arg 'alternate-exchange' in exchange 'new' in vhost '/'",
    ),
    (
        "a headers binding of an unknown form",
        queue.Bind(queue="plain", exchange="amq.headers", arguments={"x-match": "zz"}),
        CHANNEL, 406,
        'PRECONDITION_FAILED - Invalid x-match field value <<"zz">>; '
        "expected all, any, all-with-x, or any-with-x",
    ),
    (
        "replies consumed with acknowledgements",
        basic.Consume(queue="amq.rabbitmq.reply-to"),
        CHANNEL, 406, "PRECONDITION_FAILED - reply consumer cannot acknowledge",
    ),
    ("negative x-message-ttl", _declared({"x-message-ttl": -1}), CHANNEL, 406,
     INVALID.format("x-message-ttl", "{value_negative,-1}")),
    ("textual x-message-ttl", _declared({"x-message-ttl": "a"}), CHANNEL, 406,
     INVALID.format("x-message-ttl", '"expected integer, got longstr"')),
    ("x-expires of nothing", _declared({"x-expires": 0}), CHANNEL, 406, INVALID.format("x-expires", "{value_zero,0}")),
    ("negative x-max-length", _declared({"x-max-length": -1}), CHANNEL, 406,
     INVALID.format("x-max-length", "{value_negative,-1}")),
    ("too large x-max-priority", _declared({"x-max-priority": 300}), CHANNEL, 406,
     INVALID.format("x-max-priority", "{max_value_exceeded,300}")),
    ("negative x-max-priority", _declared({"x-max-priority": -1}), CHANNEL, 406,
     INVALID.format("x-max-priority", "{value_negative,-1}")),
    ("unknown x-overflow", _declared({"x-overflow": "zz"}), CHANNEL, 406,
     INVALID.format("x-overflow", "invalid_overflow")),
    ("unknown x-queue-mode", _declared({"x-queue-mode": "zz"}), CHANNEL, 406,
     INVALID.format("x-queue-mode", "\"unsupported queue mode 'zz'\"")),
    ("unknown x-queue-type", _declared({"x-queue-type": "zz"}), CHANNEL, 406,
     INVALID.format("x-queue-type", "\"unsupported queue type 'zz'\"")),
    ("dead-letter key without exchange", _declared({"x-dead-letter-routing-key": "k"}), CHANNEL, 406,
     INVALID.format("x-dead-letter-routing-key", "routing_key_but_no_dlx_defined")),
    ("textual x-single-active-consumer", _declared({"x-single-active-consumer": "a"}), CHANNEL, 406,
     INVALID.format("x-single-active-consumer", "{unacceptable_type,longstr}")),
    (
        "passive declaration of the default exchange",
        exchange.Declare(exchange="", passive=True),
        CHANNEL, 403, "ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    *(
        (
            f"quorum queue that is {flag}",
            queue.Declare(queue="new", **flags, arguments={"x-queue-type": "quorum"}),
            CHANNEL, 406, f"PRECONDITION_FAILED - invalid property '{flag}' for queue 'new' in vhost '/'",
        )
        for flag, flags in (
            ("non-durable", {}),
            ("exclusive-owner", {"durable": True, "exclusive": True}),
            ("auto-delete", {"durable": True, "auto_delete": True}),
        )
    ),
    *(
        (
            f"quorum queue that is {' and '.join(flags)}",
            queue.Declare(queue="new", **flags, arguments={"x-queue-type": "quorum"}),
            CHANNEL, 406, f"PRECONDITION_FAILED - invalid property '{flag}' for queue 'new' in vhost '/'",
        )
        for flag, flags in (
            ("auto-delete", {"auto_delete": True, "exclusive": True}),
            ("exclusive-owner", {"exclusive": True}),
        )
    ),
    (
        "quorum queue without a name",
        queue.Declare(durable=True, arguments={"x-queue-type": "quorum"}),
        CHANNEL, 406, "PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue",
    ),
    *(
        (
            f"{kind} queue with {argument}",
            queue.Declare(queue="new", durable=True, arguments={"x-queue-type": kind, argument: value}),
            CHANNEL, 406,
            f"PRECONDITION_FAILED - invalid arg '{argument}' for queue 'new' in vhost '/' "
            f"of queue type rabbit_{kind}_queue",
        )
        for kind, argument, value in (
            ("quorum", "x-max-priority", 3),
            ("quorum", "x-max-priority", "three"),
            ("quorum", "x-queue-mode", "lazy"),
            ("quorum", "x-max-age", "1D"),
            ("classic", "x-delivery-limit", 3),
            ("classic", "x-max-age", "1D"),
            ("classic", "x-dead-letter-strategy", "at-least-once"),
        )
    ),
    *(
        (
            f"consumer priority {priority!r}",
            basic.Consume(queue="plain", arguments={"x-priority": priority}),
            CHANNEL, 406,
            "PRECONDITION_FAILED - invalid arg 'x-priority' for queue 'plain' in vhost '/': "
            f'"expected integer, got {kind}"',
        )
        for priority, kind in (("a", "longstr"), (1.5, "double"), (True, "bool"), (None, "void"))
    ),
    ("channel opened twice", channel.Open(), CONNECTION, 504, "CHANNEL_ERROR - second 'channel.open' seen"),
]  # fmt: skip


@contextmanager
def stage(port: int) -> Iterator[RawClient]:
    """A client beside which another holds an exclusive queue and an exclusive consumer."""
    with RawClient(port) as other, RawClient(port) as client:
        other.ask(queue.Declare(queue="exclusive", exclusive=True), queue.DeclareOk)
        other.ask(queue.Declare(queue="consumed"), queue.DeclareOk)
        other.ask(basic.Consume(queue="consumed", exclusive=True), basic.ConsumeOk)
        client.ask(queue.Declare(queue="plain"), queue.DeclareOk)
        client.ask(exchange.Declare(exchange="x"), exchange.DeclareOk)
        client.ask(queue.Bind(queue="plain", exchange="x", routing_key="k"), queue.BindOk)
        client.publish(b"one", "plain")
        yield client


@pytest.fixture
def client(server: Server) -> Iterator[RawClient]:
    with stage(server.port) as made:
        yield made


@pytest.mark.parametrize(
    "method, level, code, text", [row[1:] for row in ONE_METHOD], ids=[r[0] for r in ONE_METHOD]
)
def test_a_wrong_method_is_refused_as_rabbitmq_does(
    client: RawClient, method: Method, level: str, code: int, text: str
) -> None:
    client.send(method)
    assert client.refusal() == (level, code, text)


def _publish(**arguments: Any) -> Callable[[RawClient], None]:
    return lambda client: client.publish(b"body", **arguments)


def _after(*methods: tuple[Method, type[Method]], then: Method) -> Callable[[RawClient], None]:
    def act(client: RawClient) -> None:
        for method, answer in methods:
            client.ask(method, answer)
        client.send(then)

    return act


def _begin_content(octets: bytes, *methods: Method) -> Callable[[RawClient], None]:
    def act(client: RawClient) -> None:
        client.send(basic.Publish(routing_key="k"))
        client.send_bytes(octets)
        for method in methods:
            client.send(method)

    return act


def _internal(client: RawClient) -> None:
    client.ask(exchange.Declare(exchange="int", internal=True), exchange.DeclareOk)
    client.publish(b"body", "k", "int")


def _on_a_new_channel(client: RawClient) -> None:
    client.open_channel(2)
    client.send(basic.Get(), channel=2)


ACTIONS: list[tuple[str, Callable[[RawClient], None], str, int, str]] = [
    (
        "publish to a missing exchange",
        _publish(key="k", exchange="none"),
        CHANNEL, 404, "NOT_FOUND - no exchange 'none' in vhost '/'",
    ),
    (
        "publish to an internal exchange",
        _internal,
        CHANNEL, 403, "ACCESS_REFUSED - cannot publish to internal exchange 'int' in vhost '/'",
    ),
    ("immediate publish", _publish(key="k", immediate=True), CONNECTION, 540, "NOT_IMPLEMENTED - immediate=true"),
    (
        "publish as somebody else",
        _publish(key="k", properties={"user_id": "eve"}),
        CHANNEL, 406, "PRECONDITION_FAILED - user_id property set to 'eve' but authenticated user was 'guest'",
    ),
    *(
        (
            f"delivery mode {mode}",
            _publish(key="k", properties={"delivery_mode": mode}),
            CHANNEL, 406, f"PRECONDITION_FAILED - invalid message: {{delivery_mode_unknown,{mode}}}",
        )
        for mode in (0, 3)
    ),
    (
        "expiration that is no number",
        _publish(key="k", properties={"expiration": "abc"}),
        CHANNEL, 406, "PRECONDITION_FAILED - invalid expiration 'abc': no_integer",
    ),
    (
        # ``str.isdigit`` is true of it, and ``int`` refuses it.
        "expiration with a superscript",
        _publish(key="k", properties={"expiration": "-²"}),
        CHANNEL, 406, "PRECONDITION_FAILED - invalid expiration '-²': no_integer",
    ),
    (
        "expiration in the past",
        _publish(key="k", properties={"expiration": "-1"}),
        CHANNEL, 406, "PRECONDITION_FAILED - invalid expiration '-1': {value_negative,-1}",
    ),
    (
        "reply address without a reply consumer",
        _publish(key="k", properties={"reply_to": "amq.rabbitmq.reply-to"}),
        CHANNEL, 406, "PRECONDITION_FAILED - fast reply consumer does not exist",
    ),
    (
        "consumer tag used twice",
        _after(
            (basic.Consume(queue="plain", consumer_tag="t"), basic.ConsumeOk),
            then=basic.Consume(queue="plain", consumer_tag="t"),
        ),
        CONNECTION, 530, "NOT_ALLOWED - attempt to reuse consumer tag 't'",
    ),
    (
        "exclusive consumer of a queue with a single active one",
        _after(
            (queue.Declare(queue="new", arguments={"x-single-active-consumer": True}), queue.DeclareOk),
            then=basic.Consume(queue="new", exclusive=True),
        ),
        CHANNEL, 403, "ACCESS_REFUSED - queue 'new' in vhost '/' in exclusive use",
    ),
    (
        "a queue of another type than before",
        _after(
            (queue.Declare(queue="new", durable=True, arguments={"x-queue-type": "classic"}), queue.DeclareOk),
            then=queue.Declare(queue="new", durable=True, arguments={"x-queue-type": "quorum"}),
        ),
        CHANNEL, 406, DIFFERS.format("x-queue-type", "queue", "new", "received 'quorum' but current is 'classic'"),
    ),
    *(
        (
            f"{name} that is no array",
            _publish(key="k", properties={"headers": {name: "other"}}),
            CHANNEL, 406,
            f'PRECONDITION_FAILED - invalid message: {{unacceptable_type_in_header,"{name}",longstr}}',
        )
        for name in ("CC", "BCC")
    ),
    *(
        (
            f"a content header of class {class_id} and weight {weight}",
            _begin_content(frame(HEADER, 1, pack(">HHQH", class_id, weight, 1, 0))),
            CONNECTION, 505, f"UNEXPECTED_FRAME - expected content header for class 60, got {got} instead",
        )
        for class_id, weight, got in ((50, 0, "one for class 50"), (60, 1, "non content header frame"))
    ),
    (
        "a body before its header",
        _begin_content(frame(BODY, 1, b"x")),
        CONNECTION, 505,
        "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
    ),
    (
        "a method before a body",
        _begin_content(frame(HEADER, 1, pack(">HHQH", 60, 0, 1, 0)), basic.Qos()),
        CONNECTION, 505, "UNEXPECTED_FRAME - expected content body, got non content body frame instead",
    ),
    (
        "a body on a channel that is not open",
        lambda client: client.send_bytes(frame(BODY, 9, b"x")),
        CONNECTION, 505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead",
    ),
    (
        "confirms on a channel with transactions",
        _after((tx.Select(), tx.SelectOk), then=confirm.Select()),
        CHANNEL, 406, "PRECONDITION_FAILED - cannot switch from tx to confirm mode",
    ),
    (
        "transactions on a channel with confirms",
        _after((confirm.Select(), confirm.SelectOk), then=tx.Select()),
        CHANNEL, 406, "PRECONDITION_FAILED - cannot switch from confirm to tx mode",
    ),
    (
        "a method on a channel that is not open",
        lambda client: client.send(basic.Qos(), channel=9),
        CONNECTION, 504, "CHANNEL_ERROR - expected 'channel.open'",
    ),
    (
        "a content header without a method",
        lambda client: client.send_bytes(frame(HEADER, 1, pack(">HHQH", 60, 0, 1, 0))),
        CONNECTION, 505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead",
    ),
    (
        "a body without a header",
        lambda client: client.send_bytes(frame(BODY, 1, b"x")),
        CONNECTION, 505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead",
    ),
    (
        "an empty queue name before any was declared",
        _on_a_new_channel,
        CHANNEL, 404, "NOT_FOUND - no previously declared queue",
    ),
]  # fmt: skip


@pytest.mark.parametrize("act, level, code, text", [row[1:] for row in ACTIONS], ids=[r[0] for r in ACTIONS])
def test_a_wrong_action_is_refused_as_rabbitmq_does(
    client: RawClient, act: Callable[[RawClient], None], level: str, code: int, text: str
) -> None:
    act(client)
    assert client.refusal() == (level, code, text)


ALLOWED: list[tuple[str, Method, type[Method]]] = [
    ("redeclared system exchange", exchange.Declare(exchange="amq.direct", durable=True), exchange.DeclareOk),
    ("deletion of a missing exchange", exchange.Delete(exchange="none"), exchange.DeleteOk),
    ("deletion of a missing queue", queue.Delete(queue="none"), queue.DeleteOk),
    (
        "a binding that is not there",
        queue.Unbind(queue="plain", exchange="x", routing_key="zz"),
        queue.UnbindOk,
    ),
    ("unbinding of a missing queue", queue.Unbind(queue="none", exchange="x"), queue.UnbindOk),
    ("cancelling an unknown consumer", basic.Cancel(consumer_tag="none"), basic.CancelOk),
    ("an unknown argument", queue.Declare(queue="new", arguments={"x-unknown": 1}), queue.DeclareOk),
    ("a queue name of 255 octets", queue.Declare(queue="q" * 255), queue.DeclareOk),
    ("an open flow", channel.Flow(active=True), channel.FlowOk),
]


@pytest.mark.parametrize("method, answer", [row[1:] for row in ALLOWED], ids=[row[0] for row in ALLOWED])
def test_an_odd_method_is_allowed_as_rabbitmq_does(
    client: RawClient, method: Method, answer: type[Method]
) -> None:
    client.ask(method, answer)


def test_acknowledging_all_of_nothing_is_allowed(client: RawClient) -> None:
    client.send(basic.Ack(delivery_tag=0, multiple=True))
    client.ask(basic.Qos(), basic.QosOk)


def test_a_refused_channel_number_can_be_opened_again(client: RawClient) -> None:
    client.send(queue.Purge(queue="none"))
    client.refusal()
    client.open_channel(1)
    client.ask(basic.Qos(), basic.QosOk)


def test_what_follows_a_refusal_on_its_channel_is_dropped(client: RawClient) -> None:
    client.send(queue.Purge(queue="none"))
    client.publish(b"late", "plain")
    client.refusal()
    client.open_channel(1)
    assert client.ask(queue.Declare(queue="plain", passive=True), queue.DeclareOk).message_count == 1
