"""``kernel consumers``."""

from __future__ import annotations

from kernel.cli.looking import looking, table_of

_COLUMNS = (
    "engine",
    "vhost",
    "queue_name",
    "consumer_tag",
    "connection",
    "channel",
    "ack_required",
    "prefetch_count",
    "messages_unacknowledged",
    "exclusive",
)

command = looking(
    "consumers",
    "List the consumers of a running system: on which queue, with what credit.",
    table_of("", _COLUMNS),
)
