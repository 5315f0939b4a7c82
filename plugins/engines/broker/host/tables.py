"""What can be asked of a broker, whatever its clients speak: ``kernel queues`` and others.

``inspection.py`` has the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from kernel.contracts.assurance import Assurance, Level
from kernel.contracts.kinds import Asked, KindsOf, Table
from kernel.contracts.rehearsing import Rehearsal
from plugins.engines.broker.contract import EXCHANGE_TYPES

if TYPE_CHECKING:
    from kernel import EnginePlan

BROKER_TABLES = (
    Table(
        name="queues",
        title="List the queues of a running system: what is ready, unacknowledged, and who consumes.",
        columns=(
            "vhost",
            "name",
            "messages",
            "messages_ready",
            "messages_unacknowledged",
            "consumers",
            "durable",
            "auto_delete",
            "exclusive",
            "policy",
            "arguments",
        ),
    ),
    Table(
        name="policies",
        title="List the policies of a running system: which queues and exchanges get which arguments.",
        columns=("vhost", "name", "pattern", "apply-to", "priority", "definition"),
    ),
    Table(
        name="exchanges",
        title="List the exchanges of a running system.",
        columns=(
            "vhost",
            "name",
            "type",
            "bindings",
            "durable",
            "auto_delete",
            "internal",
            "policy",
            "arguments",
        ),
    ),
    Table(
        name="bindings",
        title="List the bindings of a running system: from which exchange to what.",
        columns=(
            "vhost",
            "source_name",
            "routing_key",
            "destination_kind",
            "destination_name",
            "arguments",
        ),
    ),
    Table(
        name="users",
        title="List the users of a running broker.",
        columns=("name", "tags", "connections", "max_connections", "changed_at_run_time"),
    ),
    Table(
        name="permissions",
        title="List what each user of a running broker may do in each virtual host.",
        columns=("user", "vhost", "configure", "write", "read"),
    ),
    Table(
        name="topic-permissions",
        title="List which keys of topic exchanges are for which user of a running broker.",
        columns=("user", "vhost", "exchange", "write", "read"),
    ),
    # For ``kernel definitions export --users`` and for programs only.
    Table(name="accounts", title="Users, with hashes of their passwords."),
    Table(name="global-parameters", title="Values that tools keep in the broker."),
)

CLIENT_TABLES = (
    Table(
        name="connections",
        title="List the clients of a running system: who, from where, how much.",
        columns=(
            "name",
            "user",
            "vhost",
            "state",
            "client",
            "ssl",
            "channels",
            "recv_oct",
            "send_oct",
            "send_pend",
            "messages_in",
            "messages_out",
        ),
    ),
    Table(
        name="consumers",
        title="List the consumers of a running system: on which queue, with what credit.",
        columns=(
            "vhost",
            "queue_name",
            "consumer_tag",
            "connection",
            "channel",
            "ack_required",
            "prefetch_count",
            "messages_unacknowledged",
            "exclusive",
        ),
    ),
)

BROKER_OPERATIONS = ("explain", "find-exchange", "peek", "tap", "tap-end", "tap-read")
"""What ``looking.py`` can do for an operator."""

BROKER_ASKED: Mapping[str, tuple[Asked, ...]] = MappingProxyType(
    {
        "tap": (
            Asked(name="queue", metavar="NAME", help="What is published into this queue of a broker."),
            Asked(
                name="exchange",
                metavar="NAME",
                help="What is published to this exchange; with routes: only its messages.",
                field="exchange",
            ),
            Asked(name="vhost", default="/", help="The virtual host of the queue or exchange."),
        ),
        "explain": (
            Asked(
                name="exchange",
                metavar="NAME",
                help='The exchange it is published to; "" is the default exchange.',
                field="exchange",
            ),
            Asked(
                name="topic",
                help="Its topic, in place of exchange and key: as a client of MQTT publishes it.",
            ),
            Asked(name="vhost", default="/", help="The virtual host."),
            Asked(name="user", help="Also say whether this user may publish it."),
        ),
    }
)
"""With what these operations can be asked, besides what every engine knows of a message."""

ADMINISTRATIVE_OPERATIONS = (
    "bind",
    "check-policy",
    "declare-exchange",
    "declare-queue",
    "delete-exchange",
    "delete-queue",
    "delete-vhost",
    "get",
    "publish",
    "purge-queue",
    "unbind",
)
"""What ``administration.py`` can do with the permissions of a user."""


def broker_assures(options: Any) -> Assurance:
    """Return what a broker's acknowledgements mean.

    They are ``basic.ack``, PUBACK, RECEIPT, and those to routes.
    """
    level: Level
    if not options.data_dir:
        level, how = "memory", "it has no data_dir: its queues end with the process"
    elif not options.fsync:
        level, how = "system", "its records are written and not synchronised (fsync = false)"
    else:
        level, how = "disk", "its records are written and synchronised"
    return Assurance(
        acknowledges="a publisher confirm (basic.ack, PUBACK, RECEIPT)",
        waits=True,
        keeps=level,
        confirms=level,
        how=how,
        but="for persistent messages in durable queues" if options.data_dir else "",
    )


def broker_mistakes(options: Any, kinds: KindsOf) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Return what a broker with these options would refuse to declare when it starts."""
    # Most brokers in files have none of these, and then nothing of the broker is imported for it.
    if options.exchanges or options.queues or options.bindings:
        from plugins.engines.broker.host.trial import mistakes

        types = {name: kind.create for name, kind in kinds(EXCHANGE_TYPES).items()}
        yield from mistakes(options, types)


def broker_mistakes_in_files(options: Any, kinds: KindsOf) -> Iterator[tuple[str, str]]:
    """Return what a broker with these options would refuse to import when it starts."""
    if options.definitions:
        from plugins.engines.broker.host.trial_import import mistakes_in_definitions

        types = {name: kind.create for name, kind in kinds(EXCHANGE_TYPES).items()}
        yield from (("definitions", text) for text in mistakes_in_definitions(options, types))


def rehearse_broker(plan: EnginePlan) -> Rehearsal:
    """Return how a broker takes part in a rehearsal."""
    from plugins.engines.broker.rehearsal import rehearsal_of

    return rehearsal_of(plan)


def shard_name(first: str, thread: str) -> str:
    """Return the name of the engine that a thread has for a broker."""
    return f"{first}/{thread}"


def engines_of_shards(plan: EnginePlan) -> list[EnginePlan]:
    """``EngineKind.shards``: one engine for each thread that the option names."""
    shards = plan.options.get("shards")
    if plan.options.get("shard") or not isinstance(shards, dict):
        return []
    return [
        msgspec.structs.replace(
            plan,
            name=shard_name(plan.name, thread),
            thread=thread,
            options={**plan.options, "shard": thread},
        )
        for thread in dict.fromkeys(shards.values())
        if isinstance(thread, str)
    ]
