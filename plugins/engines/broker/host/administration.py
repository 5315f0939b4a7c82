"""Administration: what an operator changes in a broker, with the permissions of a user of it.

Each operation (``BrokerEngine.operate``) gets a mapping with ``user`` and ``vhost``.  ``purge-queue`` and
``delete-queue`` do without a ``user``: then the operator asks, who may do everything.  The answer of one that
is refused has ``refused``: the code of AMQP 0-9-1 and RabbitMQ's text, since an exception would not reach an
engine in another process.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from kernel.contracts.message import Batch, Envelope, batch_of_one
from plugins.engines.broker.binding import Destination
from plugins.engines.broker.errors import (
    AccessRefused,
    BrokerError,
    NotFound,
    PreconditionFailed,
    missing_exchange,
    missing_queue,
)
from plugins.engines.broker.host.definition_forms import PolicyDefinition
from plugins.engines.broker.host.importing import PIECE, as_policy
from plugins.engines.broker.host.publisher import Publisher
from plugins.engines.broker.host.users import Login, Operation
from plugins.engines.broker.policies import APPLY_TO, check_policy, unknown_keys
from plugins.engines.broker.publishing_ids import is_set_of_publisher
from plugins.engines.broker.span import Span
from plugins.engines.broker.virtual_host import VirtualHost

if TYPE_CHECKING:
    from plugins.engines.broker.host.engine import BrokerEngine
    from plugins.engines.broker.queue import Queue

MOST_GOT = 1000
"""Messages that ``get`` returns at most."""
MOST_GOT_BYTES = 16 * 1024 * 1024
"""Bytes of bodies after which ``get`` stops."""

Asked: TypeAlias = "Mapping[str, Any]"
Answer: TypeAlias = "dict[str, Any] | Generator[None, None, dict[str, Any]]"
"""What was done, or the steps that do it, for several turns."""


def administer(engine: BrokerEngine, what: str, asked: Asked) -> Answer:
    """Do it, or say why not.  It is a turn of the broker, or several."""
    now = engine.host.now()
    try:
        answer: Answer
        answer = ADMINISTRATION[what](engine, asked, now)
    except BrokerError as refusal:
        reason = refusal.text.partition(" - ")[2]
        answer = {"refused": {"code": refusal.code, "name": refusal.name, "reason": reason}}
    # What it has changed is delivered and written to the disk.
    engine.finish_turn(now)
    return answer


def _place(engine: BrokerEngine, asked: Asked) -> tuple[Login, VirtualHost]:
    """Return who asks, and where."""
    name = asked["user"]
    account = engine.users.accounts.get(name)
    if account is None:
        raise AccessRefused(f"there is no user '{name}'")
    # Without ``enter``: a request is no connection, and does not count against ``max_connections``.
    login, vhost = Login(name, account), engine.broker.vhost(asked["vhost"])
    if account.allowed_in(vhost.name) is None:
        raise AccessRefused(f"access to vhost '{vhost.name}' refused for user '{name}'")
    return login, vhost


# Queues


def _declare_queue(engine: BrokerEngine, asked: Asked, now: float) -> dict[str, Any]:
    login, vhost = _place(engine, asked)
    name, arguments = asked["name"], asked.get("arguments", {})
    login.require_queue(name, arguments, vhost)
    exists = name in vhost.queues
    queue = vhost.declare_queue(
        name,
        None,
        now,
        durable=asked.get("durable", False),
        auto_delete=asked.get("auto_delete", False),
        arguments=arguments,
    )
    return {"name": queue.name, "created": not exists}


def _delete_queue(engine: BrokerEngine, asked: Asked, now: float) -> dict[str, Any]:
    vhost, name = _queue_for(engine, asked, "configure")
    flags = {flag: asked.get(flag, False) for flag in ("if_unused", "if_empty")}
    return {"messages": vhost.delete_queue(name, None, now, **flags)}


def _purge_queue(engine: BrokerEngine, asked: Asked, now: float) -> dict[str, Any]:
    vhost, name = _queue_for(engine, asked, "read")
    return {"messages": vhost.find_queue(name, None).purge(now)}


def _queue_for(engine: BrokerEngine, asked: Asked, right: Operation) -> tuple[VirtualHost, str]:
    """Return where a queue is, and its name, if who asks has this right."""
    if "user" not in asked:
        vhost = engine.broker.vhost(asked["vhost"])
        return vhost, _existing_queue(vhost, asked["name"]).name
    login, vhost = _place(engine, asked)
    name = _existing_queue(vhost, asked["name"]).name
    login.require(right, "queue", name, vhost.name)
    return vhost, name


def _existing_queue(vhost: VirtualHost, name: str) -> Queue:
    queue = vhost.queues.get(name)
    if queue is None:
        raise missing_queue(name, vhost.name)
    return queue


# Exchanges and bindings


def _declare_exchange(engine: BrokerEngine, asked: Asked, now: float) -> dict[str, Any]:
    login, vhost = _place(engine, asked)
    name, arguments = asked["name"], asked.get("arguments", {})
    login.require("configure", "exchange", name, vhost.name)
    # As for AMQP clients: who names an alternate exchange may publish to it and read from this one.
    alternate = arguments.get("alternate-exchange")
    if isinstance(alternate, str) and name not in vhost.exchanges:
        login.require("read", "exchange", name, vhost.name)
        login.require("write", "exchange", alternate, vhost.name)
    exists = name in vhost.exchanges
    vhost.declare_exchange(
        name,
        asked.get("type", "direct"),
        durable=asked.get("durable", False),
        auto_delete=asked.get("auto_delete", False),
        internal=asked.get("internal", False),
        arguments=arguments,
    )
    return {"created": not exists}


def _delete_exchange(engine: BrokerEngine, asked: Asked, now: float) -> dict[str, Any]:
    login, vhost = _place(engine, asked)
    name = asked["name"]
    if name not in vhost.exchanges:
        raise missing_exchange(name, vhost.name)
    login.require("configure", "exchange", name, vhost.name)
    vhost.delete_exchange(name, if_unused=asked.get("if_unused", False))
    return {}


def _bind(engine: BrokerEngine, asked: Asked, now: float) -> dict[str, Any]:
    vhost, destination = _both_ends(engine, asked)
    vhost.bind(asked["source"], destination, asked.get("key", ""), asked.get("arguments", {}))
    return {}


def _unbind(engine: BrokerEngine, asked: Asked, now: float) -> dict[str, Any]:
    vhost, destination = _both_ends(engine, asked)
    vhost.unbind(asked["source"], destination, asked.get("key", ""), asked.get("arguments", {}))
    return {}


def _both_ends(engine: BrokerEngine, asked: Asked) -> tuple[VirtualHost, Destination]:
    login, vhost = _place(engine, asked)
    source, name, kind = asked["source"], asked["destination"], asked.get("kind", "queue")
    login.require_binding(source, kind, name, asked.get("key", ""), vhost)
    if source not in vhost.exchanges:
        raise missing_exchange(source, vhost.name)
    destination = vhost.find_queue(name, None) if kind == "queue" else vhost.find_destination(name)
    return vhost, destination


# Messages


class _OneMessage(Publisher):
    """Publishes one message, and notes whether it went anywhere."""

    routed = True

    def on_unroutable(self, batch: Batch) -> None:
        self.routed = False


def _publish(engine: BrokerEngine, asked: Asked, now: float) -> dict[str, Any]:
    login, vhost = _place(engine, asked)
    # A client that publishes is not read while an alarm is raised. A request cannot be made to wait so long,
    # and is refused.
    low = engine.alarm_watch.alarms.reason
    if low:
        raise PreconditionFailed(f"publishers are blocked: {low}")
    try:
        envelope = msgspec.convert(asked["envelope"], Envelope)
    except msgspec.ValidationError as error:
        raise PreconditionFailed(f"invalid property: {error}") from None
    user = envelope.properties.get("user_id")
    if user is not None and user != login.name:
        raise PreconditionFailed(
            f"user_id property set to '{user}' but authenticated user was '{login.name}'"
        )
    publisher = _OneMessage(vhost, login, engine.feed)
    batch = batch_of_one(b64decode(asked["body"]), publisher.admit(envelope))
    # mandatory: so that ``on_unroutable`` is called.
    accepted = publisher.publish(batch, now, mandatory=True)
    return {"routed": publisher.routed and accepted > 0}


def _get(engine: BrokerEngine, asked: Asked, now: float) -> dict[str, Any]:
    login, vhost = _place(engine, asked)
    name = asked["name"]
    login.require("read", "queue", name, vhost.name)
    queue = vhost.find_queue(name, None)
    taken: list[Span] = []
    messages: list[dict[str, Any]] = []
    size = 0
    while len(taken) < min(asked["count"], MOST_GOT) and size < MOST_GOT_BYTES:
        span = queue.take(now)
        if span is None:
            break
        taken.append(span)
        body = bytes(span.as_batch().bodies[0])
        size += len(body)
        messages.append(
            {
                "body": body,
                "envelope": span.envelope,
                "redelivered": span.redelivered,
                "left": queue.backlog.count,
            }
        )
    # In the same turn: nobody else sees the messages as unacknowledged, and a consumer gets them as
    # redelivered.
    if asked["requeue"]:
        # The latest first: each is put at the front.
        for span in reversed(taken):
            queue.requeue(span)
    else:
        for span in taken:
            if asked["reject"]:
                queue.reject(span, now)
            else:
                queue.acknowledge(span)
    return {"messages": messages}


# Policies and virtual hosts


def _check_policy(engine: BrokerEngine, asked: Asked, now: float) -> dict[str, Any]:
    """Refuse a policy that an import would refuse, or would take without a part of it."""
    definition = asked["policy"]["definition"]
    unknown = unknown_keys(definition)
    try:
        check_policy(as_policy(msgspec.convert(asked["policy"], PolicyDefinition)))
    except (ValueError, msgspec.ValidationError) as error:
        raise PreconditionFailed(str(error)) from None
    if asked["policy"]["apply-to"] not in APPLY_TO:
        raise PreconditionFailed(f"apply-to is none of {', '.join(APPLY_TO)}")
    if unknown:
        raise PreconditionFailed(f"{', '.join(unknown)} are not recognised policy settings")
    return {}


def _delete_vhost(engine: BrokerEngine, asked: Asked, now: float) -> Answer:
    name = asked["name"]
    vhost = engine.broker.vhosts.get(name)
    if vhost is None:
        raise NotFound(f"vhost '{name}' not found")
    if name in engine.options.vhosts or vhost is engine.feed.vhost:
        raise PreconditionFailed(f"vhost '{name}' is one of the topology file: delete it there")
    if not all(map(is_set_of_publisher, vhost.stored_sets)):
        raise PreconditionFailed(f"vhost '{name}' has sessions or retained messages of MQTT clients")
    if engine.kept is not None:
        from plugins.engines.broker.host.users_file import UsersFile

        UsersFile(engine.kept.directory).remove_vhost(name)
    for account in engine.users.accounts.values():
        account.permissions.pop(name, None)
        account.topics = {place: each for place, each in account.topics.items() if place[0] != name}
    return _in_pieces(engine, _remove_vhost(engine, name))


def _remove_vhost(engine: BrokerEngine, name: str) -> Iterator[None]:
    """Remove a virtual host: first its name, so that nobody comes, then its clients, then what it has.

    If the broker ends before this does, its log still has the rest, and so has the broker
    that is started next.
    """
    steps = engine.broker.remove_vhost(name, engine.host.now)
    yield next(steps)
    for client in list(engine.clients):
        # One may have ended meanwhile.
        if client in engine.clients and any(
            row.get("vhost") == name for row in client.inspect("connections")
        ):
            client.hang_up(f"vhost '{name}' is deleted")  # RabbitMQ's words
        yield
    yield from steps


def _in_pieces(engine: BrokerEngine, steps: Iterator[None]) -> Generator[None, None, dict[str, Any]]:
    """Do so many steps in a turn that other clients are served in between."""
    for number, _ in enumerate(steps, 1):
        if number % PIECE == 0:
            # It has to be written to the disk.
            engine.finish_turn(engine.host.now())
            yield
    engine.finish_turn(engine.host.now())
    return {}


ADMINISTRATION: dict[str, Callable[[BrokerEngine, Asked, float], Answer]] = {
    "declare-queue": _declare_queue,
    "delete-queue": _delete_queue,
    "purge-queue": _purge_queue,
    "declare-exchange": _declare_exchange,
    "delete-exchange": _delete_exchange,
    "bind": _bind,
    "unbind": _unbind,
    "publish": _publish,
    "get": _get,
    "check-policy": _check_policy,
    "delete-vhost": _delete_vhost,
}
"""By the name of the operation."""
