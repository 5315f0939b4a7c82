"""Destinations: what a client names in SEND and SUBSCRIBE, and how a message says where it was sent.

The forms are those of RabbitMQ's STOMP plugin.  In the parts between the slashes, ``%`` and two hexadecimal
digits stand for an octet: a slash in a name is ``%2F``.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple
from urllib.parse import unquote_to_bytes

from plugins.protocols.stomp.errors import Fault

Kind = Literal["queue", "topic", "exchange", "amq/queue", "reply-queue", "temp-queue"]

TOPIC_EXCHANGE = "amq.topic"
TEMP_QUEUE = "/temp-queue/"
REPLY_QUEUE = "/reply-queue/"
KINDS: tuple[Kind, ...] = ("temp-queue", "exchange", "topic", "queue", "amq/queue", "reply-queue")
_VALID = ", ".join(f"/{kind}" for kind in KINDS)
PREFIXES = tuple(f"/{kind}/" for kind in KINDS)
_TO_ESCAPE = re.compile(r"[\x00-\x1f\x7f/%]")


class Destination(NamedTuple):
    """A destination, taken apart."""

    kind: Kind
    name: str
    """Of the queue, the exchange, or the pattern of a topic."""
    key: str = ""
    """Of an exchange."""

    @property
    def exchange(self) -> str:
        """The exchange to which its messages are published; empty: the default exchange."""
        return {"exchange": self.name, "topic": TOPIC_EXCHANGE}.get(self.kind, "")

    @property
    def routing_key(self) -> str:
        """The key with which its messages are published, and subscriptions are bound."""
        return self.key if self.kind == "exchange" else self.name


def parse_destination(text: str) -> Destination:
    """Take a destination apart.  Raises ``Fault``."""
    # RabbitMQ takes a destination without a slash for the name of a queue.
    if "/" not in text and text:
        return Destination("queue", _unescaped(text))
    for kind, prefix in zip(KINDS, PREFIXES, strict=True):
        if not text.startswith(prefix):
            continue
        rest = text.removeprefix(prefix)
        # Names of reply queues come from the broker and may have slashes.
        parts = [rest] if kind == "reply-queue" else [_unescaped(part) for part in rest.split("/")]
        if parts[0] and len(parts) <= (2 if kind == "exchange" else 1):
            return Destination(kind, *parts)
        raise Fault("Invalid destination", f"'{rest}' is not a valid {kind} destination\n")
    raise Fault(
        "Unknown destination",
        f"'{text}' is not a valid destination.\nValid destination types are: {_VALID}.\n",
    )


def destination_of(exchange: str, key: str) -> str:
    """Return the destination to which a message was sent."""
    if not exchange:
        return f"/queue/{escape_part(key)}"
    if exchange == TOPIC_EXCHANGE:
        return f"/topic/{escape_part(key)}"
    return f"/exchange/{escape_part(exchange)}" + (f"/{escape_part(key)}" if key else "")


def reply_destination_of(reply_to: str) -> str:
    """Return the header ``reply-to`` of a message: what came over AMQP is the name of a queue."""
    return reply_to if reply_to.startswith(PREFIXES) else REPLY_QUEUE + reply_to


def _unescaped(part: str) -> str:
    if "%" not in part:
        return part
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise Fault("Invalid destination", f"'{part}' is not UTF-8\n") from None


def escape_part(part: str) -> str:
    """Return a name or a key as it stands between slashes."""
    return _TO_ESCAPE.sub(lambda found: f"%{ord(found[0]):02X}", part)
