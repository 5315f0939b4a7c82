"""What can be asked of a broker, whatever its clients speak: ``kernel queues`` and others.

``inspection.py`` has the rows.
"""

from __future__ import annotations

from kernel.contracts.kinds import Table

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
    # For ``kernel definitions export --users`` only: rows have hashes of passwords.
    Table(name="users", title="Users, with hashes of their passwords."),
    Table(name="permissions", title="What each user may do in each virtual host."),
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
