"""``kernel bindings``."""

from __future__ import annotations

from kernel.cli.looking import looking, table_of

_COLUMNS = (
    "engine",
    "vhost",
    "source_name",
    "routing_key",
    "destination_kind",
    "destination_name",
    "arguments",
)

command = looking(
    "bindings", "List the bindings of a running system: from which exchange to what.", table_of("", _COLUMNS)
)
