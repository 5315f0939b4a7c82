"""Arguments of a declaration, checked as RabbitMQ checks them, with the texts of its errors.

RabbitMQ prints Erlang terms in some of its errors.  Clients and their tests compare these texts, so they are
the same here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from plugins.engines.broker.errors import PreconditionFailed

LARGEST_PRIORITY = 255
LONGEST_TIME = 315_360_000_000
"""In milliseconds: ten years, RabbitMQ's limit for timers."""
LONGEST_NAME = 255
"""In octets: the limit of a short string (AMQP 0-9-1, section 4.2.5.3)."""


class QueuePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a queue, parsed; times in seconds."""

    message_ttl: float | None = None
    expires: float | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = "drop-head"
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    max_priority: int = 0
    single_active_consumer: bool = False
    lazy: bool = False
    quorum: bool = False
    delivery_limit: int | None = None
    """How often a message may come back to a quorum queue; None: any number of times."""


_NO_LIMITS = QueuePolicy()


class Unacceptable(Exception):
    """The value is invalid; the text is RabbitMQ's."""


def type_name(value: object) -> str:
    """Return RabbitMQ's name for the field-table type that a value travels as."""
    # The order matters: in Python a bool is an int.
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "signedint" if -(2**31) <= value < 2**31 else "long"
    names: list[tuple[Any, str]] = [
        (str, "longstr"),
        ((bytes, bytearray, memoryview), "binary"),
        (float, "double"),
        (Decimal, "decimal"),
        (datetime, "timestamp"),
        (Mapping, "table"),
        (list, "array"),
    ]
    return next((name for kind, name in names if isinstance(value, kind)), "void")


def erlang_value(value: object) -> str:
    """Return a value as RabbitMQ prints it in a refusal."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _integer(value: object) -> int:
    # In Python a bool is an int; in a field table it is a type of its own.
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unacceptable(f'"expected integer, got {type_name(value)}"')
    return value


def not_negative(value: object) -> int:
    """Check a number of which 0 is the least."""
    number = _integer(value)
    if number < 0:
        raise Unacceptable(f"{{value_negative,{number}}}")
    return number


def _time(value: object) -> int:
    number = not_negative(value)
    if number > LONGEST_TIME:
        raise Unacceptable(f"{{value_too_large,{number}}}")
    return number


def _positive_time(value: object) -> int:
    number = _time(value)
    if number == 0:
        raise Unacceptable("{value_zero,0}")
    return number


def _priority(value: object) -> int:
    number = not_negative(value)
    if number > LARGEST_PRIORITY:
        raise Unacceptable(f"{{max_value_exceeded,{number}}}")
    return number


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Unacceptable(f"{{unacceptable_type,{type_name(value)}}}")
    return value


def _name(value: object) -> str:
    name = _text(value)
    # Names that are no UTF-8 were decoded with surrogates, and are measured as the octets that came.
    if len(name.encode("utf-8", "surrogateescape")) > LONGEST_NAME:
        raise Unacceptable(f"{{max_length_exceeded,{LONGEST_NAME}}}")
    return name


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise Unacceptable(f"{{unacceptable_type,{type_name(value)}}}")
    return value


def _overflow(value: object) -> str:
    if _text(value) not in ("drop-head", "reject-publish", "reject-publish-dlx"):
        raise Unacceptable("invalid_overflow")
    return str(value)


def _mode(value: object) -> str:
    if _text(value) not in ("default", "lazy"):
        raise Unacceptable(f"\"unsupported queue mode '{value}'\"")
    return str(value)


def _queue_type(value: object) -> str:
    if _text(value) not in ("classic", "quorum"):
        raise Unacceptable(f"\"unsupported queue type '{value}'\"")
    return str(value)


QUEUE_ARGUMENTS: dict[str, Callable[[object], Any]] = {
    "x-expires": _positive_time,
    "x-message-ttl": _time,
    "x-dead-letter-exchange": _name,
    "x-dead-letter-routing-key": _name,
    "x-max-length": not_negative,
    "x-max-length-bytes": not_negative,
    "x-max-priority": _priority,
    "x-overflow": _overflow,
    "x-queue-mode": _mode,
    "x-queue-type": _queue_type,
    "x-single-active-consumer": _flag,
}
"""The arguments that have an effect, in the order in which they are checked.  Others are stored and
ignored."""


_QUORUM_ONLY = (
    "x-delivery-limit",
    "x-quorum-initial-group-size",
    "x-max-in-memory-length",
    "x-max-in-memory-bytes",
    "x-dead-letter-strategy",
    "x-queue-leader-locator",
)
_STREAM_ONLY = ("x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size")
_CLASSIC_ONLY = ("x-max-priority", "x-queue-mode", "x-queue-master-locator", "x-queue-version")
_NOT_FOR_TYPE = {"classic": (*_QUORUM_ONLY, *_STREAM_ONLY), "quorum": (*_CLASSIC_ONLY, *_STREAM_ONLY)}
"""The arguments that RabbitMQ refuses in a queue of a type.  It ignores those that it does not know."""


def check_queue_type(
    name: str, vhost: str, *, durable: bool, exclusive: bool, auto_delete: bool, arguments: Mapping[str, Any]
) -> None:
    """Refuse what a new queue of its type cannot be, with RabbitMQ's texts.

    ``name`` is empty if the broker is to choose one.
    """
    kind = arguments.get("x-queue-type", "classic")
    # A type that does not exist is refused with the other arguments.
    for argument in _NOT_FOR_TYPE.get(kind, ()) if isinstance(kind, str) else ():
        if argument in arguments:
            raise PreconditionFailed(
                f"invalid arg '{argument}' for queue '{name}' in vhost '{vhost}' "
                f"of queue type rabbit_{kind}_queue"
            )
    if kind != "quorum":
        return
    if not name:
        raise PreconditionFailed("Cannot declare a server-named queue for type rabbit_quorum_queue")
    # In RabbitMQ's order: the first one is named.
    flags = {"auto-delete": auto_delete, "exclusive-owner": exclusive, "non-durable": not durable}
    for flag, wrong in flags.items():
        if wrong:
            raise PreconditionFailed(f"invalid property '{flag}' for queue '{name}' in vhost '{vhost}'")


def read_consumer_priority(arguments: Mapping[str, Any], queue: str, vhost: str) -> int:
    """Return the priority of a consumer; raise ``PreconditionFailed`` if it is no integer."""
    try:
        return _integer(arguments.get("x-priority", 0))
    except Unacceptable as problem:
        raise PreconditionFailed(
            f"invalid arg 'x-priority' for queue '{queue}' in vhost '{vhost}': {problem}"
        ) from None


def read_queue_arguments(arguments: Mapping[str, Any], queue: str, vhost: str) -> QueuePolicy:
    """Parse the arguments of a queue; raise ``PreconditionFailed`` if one is invalid."""
    # Most queues have none, and share what that means.
    if not arguments:
        return _NO_LIMITS
    found: dict[str, Any] = {}
    for name, check in QUEUE_ARGUMENTS.items():
        if name in arguments:
            try:
                found[name] = check(arguments[name])
            except Unacceptable as problem:
                raise PreconditionFailed(
                    f"invalid arg '{name}' for queue '{queue}' in vhost '{vhost}': {problem}"
                ) from None
    # The key alone would do nothing, and RabbitMQ refuses it.
    if "x-dead-letter-routing-key" in found and "x-dead-letter-exchange" not in found:
        raise PreconditionFailed(
            f"invalid arg 'x-dead-letter-routing-key' for queue '{queue}' in vhost '{vhost}': "
            "routing_key_but_no_dlx_defined"
        )
    limit = arguments.get("x-delivery-limit")
    return QueuePolicy(
        message_ttl=_seconds(found.get("x-message-ttl")),
        expires=_seconds(found.get("x-expires")),
        max_length=found.get("x-max-length"),
        max_length_bytes=found.get("x-max-length-bytes"),
        overflow=found.get("x-overflow", "drop-head"),
        dead_letter_exchange=found.get("x-dead-letter-exchange"),
        dead_letter_key=found.get("x-dead-letter-routing-key"),
        max_priority=found.get("x-max-priority", 0),
        single_active_consumer=found.get("x-single-active-consumer", False),
        lazy=found.get("x-queue-mode") == "lazy",
        quorum=found.get("x-queue-type") == "quorum",
        # RabbitMQ does not check it, and ignores what is no integer.
        delivery_limit=limit if isinstance(limit, int) and not isinstance(limit, bool) else None,
    )


def require_equal_flag(
    kind: str, name: str, vhost: str, flag: str, received: object, current: object
) -> None:
    """Raise ``PreconditionFailed`` for a declaration whose flag differs from that of the existing object."""
    if received != current:
        raise PreconditionFailed(
            f"inequivalent arg '{flag}' for {kind} '{name}' in vhost '{vhost}': "
            f"received '{erlang_value(received)}' but current is '{erlang_value(current)}'"
        )


def require_equal_argument(
    kind: str, name: str, vhost: str, argument: str, received: Mapping[str, Any], current: Mapping[str, Any]
) -> None:
    """Raise ``PreconditionFailed`` for a declaration whose argument differs from that of the existing one."""
    new, old = received.get(argument), current.get(argument)
    # A queue without a type is a classic one.
    if argument == "x-queue-type" and {new, old} == {None, "classic"}:
        return
    # In Python 10 equals 10.0, and 1 equals True.  In a field table they are of different types.
    if new != old or _class_of(new) is not _class_of(old):
        # RabbitMQ describes the value that is there if the other one is missing.
        if new is None or old is None:
            new_text, old_text = _described(new), _described(old)
        else:
            new_text, old_text = f"'{erlang_value(new)}'", f"'{erlang_value(old)}'"
        raise PreconditionFailed(
            f"inequivalent arg '{argument}' for {kind} '{name}' in vhost '{vhost}': "
            f"received {new_text} but current is {old_text}"
        )


def _class_of(value: object) -> type:
    return next((kind for kind in (bool, int, float) if isinstance(value, kind)), object)


def _described(value: object) -> str:
    if value is None:
        return "none"
    return f"the value '{erlang_value(value)}' of type '{type_name(value)}'"


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
