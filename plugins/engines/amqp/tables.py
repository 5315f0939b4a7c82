"""What can be asked of the clients of a broker: ``kernel connections`` and ``consumers``.  ``inspection.py`` has the rows."""

from __future__ import annotations

from kernel.contracts.kinds import Table

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
