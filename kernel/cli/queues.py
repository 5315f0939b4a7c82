"""``kernel queues``."""

from __future__ import annotations

from kernel.cli.looking import looking, table_of

_COLUMNS = (
    "engine",
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
)

command = looking(
    "queues",
    "List the queues of a running system: what is ready, unacknowledged, and who consumes.",
    table_of("", _COLUMNS),
)
