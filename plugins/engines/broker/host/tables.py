"""What can be asked of a broker, whatever its clients speak: ``kernel queues`` and others.  ``inspection.py`` has the rows."""

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
            "arguments",
        ),
    ),
    Table(
        name="exchanges",
        title="List the exchanges of a running system.",
        columns=("vhost", "name", "type", "bindings", "durable", "auto_delete", "internal", "arguments"),
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
