"""Messages: publish one, get some, and the test whether a broker passes them on."""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import UTC, datetime
from typing import Any

from plugins.engines.web.management.call import Call, Refused, Steps, bad_request, not_found, shown
from plugins.engines.web.management.shapes import Row

_ACKMODES = {
    "ack_requeue_true": (True, False),
    "ack_requeue_false": (False, False),
    "reject_requeue_true": (True, True),
    "reject_requeue_false": (False, True),
}
"""Whether messages are requeued, and whether they are rejected."""

_TEXTS = ("content_type", "content_encoding", "correlation_id", "message_id", "type", "user_id", "app_id")
_ALIVE = "aliveness-test"


def publish(call: Call) -> Steps:
    """Publish one message.  The answer does not wait for the disk."""
    body = call.body("properties", "routing_key", "payload", "payload_encoding")
    exchange = "" if call.names["name"] == "amq.default" else call.names["name"]
    payload, encoding = body["payload"], body["payload_encoding"]
    if not isinstance(payload, str):
        raise bad_request(["not_binary", "payload"])
    if encoding == "string":
        octets = b64encode(payload.encode())
    elif encoding == "base64":
        octets = payload.encode("ascii", "replace")
        try:
            b64decode(octets, validate=True)
        except ValueError:
            raise bad_request(["unsupported_encoding", "base64"]) from None
    else:
        raise bad_request(["unsupported_encoding", encoding])
    # Not ``opens``: an administrator sees the queues of every virtual host, and needs permissions of its own
    # to publish there.
    if call.names["vhost"] not in call.user.vhosts:
        raise Refused(401, "not_authorised", "Access refused.")
    envelope = _envelope(body["properties"] or {}, exchange, str(body["routing_key"]))
    reply = yield from call.ask(
        "publish",
        {"user": call.user.name, "vhost": call.names["vhost"], "envelope": envelope, "body": octets},
    )
    refused = reply.get("refused")
    if refused is not None:
        raise bad_request(f"{refused['code']} {refused['name']} - {refused['reason']}")
    return shown({"routed": reply["routed"]})


def _envelope(properties: Row, exchange: str, key: str) -> Row:
    """Return the fields of an envelope for properties as the API has them."""
    found: Row = {}
    for name in _TEXTS:
        if name in properties:
            found[name] = str(properties[name])
    if properties.get("headers"):
        found["headers"] = properties["headers"]
    if "timestamp" in properties:
        found["timestamp"] = datetime.fromtimestamp(_integer(properties, "timestamp", 1 << 33), UTC)
    expiration = str(properties.get("expiration", ""))
    if expiration and not (expiration.isascii() and expiration.isdigit()):
        raise bad_request(f"406 PRECONDITION_FAILED - invalid expiration '{expiration}'")
    return {
        "exchange": exchange,
        "key": key,
        "reply_to": str(properties.get("reply_to", "")),
        "persistent": _integer(properties, "delivery_mode", 255) == 2,
        "priority": _integer(properties, "priority", 255),
        "expiration": int(expiration) if expiration else None,
        "properties": found,
    }


def _integer(properties: Row, name: str, most: int) -> int:
    value = properties.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise bad_request(["not_int", name])
    return value


def get(call: Call) -> Steps:
    """Get messages from a queue, and requeue them or not."""
    body = call.body("ackmode", "count", "encoding")
    if body["ackmode"] not in _ACKMODES:
        raise bad_request(["unknown_ackmode", body["ackmode"]])
    requeue, reject = _ACKMODES[body["ackmode"]]
    if body["encoding"] not in ("auto", "base64"):
        raise bad_request(["unsupported_encoding", body["encoding"]])
    count = _number(body, "count")
    truncate = _number(body, "truncate") if "truncate" in body else None
    name = call.names["name"]
    rows = yield from call.browse("queues", vhost=call.names["vhost"], name=name)
    if not rows:
        # RabbitMQ says it in other words than elsewhere.
        reason = f"NOT_FOUND - no queue '{name}' in vhost '{call.names['vhost']}'"
        raise Refused(404, "not_found", reason)
    found = yield from call.change("get", name=name, count=count, requeue=requeue, reject=reject)
    return shown([_message(each, body["encoding"], truncate) for each in found["messages"]])


def _number(body: Row, key: str) -> int:
    try:
        return max(0, int(body[key]))
    except (TypeError, ValueError):
        raise bad_request(["not_a_number", body[key]]) from None


def _message(row: Row, encoding: str, truncate: int | None) -> Row:
    octets, envelope = row["body"], row["envelope"]
    # A cut in the middle of a character leaves no UTF-8, and is shown in base64 then.
    cut = octets if truncate is None else octets[:truncate]
    text = None
    if encoding == "auto":
        try:
            text = cut.decode()
        except UnicodeDecodeError:
            text = None
    return {
        "payload_bytes": len(octets),
        "redelivered": row["redelivered"],
        "exchange": envelope.exchange,
        "routing_key": envelope.key,
        "message_count": row["left"],
        # RabbitMQ has Erlang's empty list where there are none.
        "properties": _properties(envelope) or [],
        "payload": b64encode(cut).decode() if text is None else text,
        "payload_encoding": "base64" if text is None else "string",
    }


def _properties(envelope: Any) -> Row:
    found: Row = dict(envelope.properties)
    if not found.get("headers", True):
        del found["headers"]
    if envelope.persistent:
        found["delivery_mode"] = 2
    if envelope.priority:
        found["priority"] = envelope.priority
    if envelope.expiration is not None:
        found["expiration"] = str(envelope.expiration)
    if envelope.reply_to:
        found["reply_to"] = envelope.reply_to
    timestamp = found.get("timestamp")
    if isinstance(timestamp, datetime):
        found["timestamp"] = int(timestamp.timestamp())
    return found


def alive(call: Call) -> Steps:
    """Declare a queue, publish to it and get the message: as RabbitMQ does, with the rights of the user."""
    yield from call.change("declare-queue", name=_ALIVE)
    envelope = {"key": _ALIVE}
    sent = yield from call.change("publish", envelope=envelope, body=b64encode(b"test_message"))
    got = yield from call.change("get", name=_ALIVE, count=1, requeue=False, reject=False)
    if not sent["routed"] or not got["messages"]:
        raise not_found()
    return shown({"status": "ok"})
