"""``kernel exchanges``."""

from __future__ import annotations

from kernel.cli.looking import looking, table_of

_COLUMNS = (
    "engine",
    "vhost",
    "name",
    "type",
    "bindings",
    "durable",
    "auto_delete",
    "internal",
    "arguments",
)

command = looking("exchanges", "List the exchanges of a running system.", table_of("", _COLUMNS))
