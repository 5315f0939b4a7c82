"""``kernel connections``."""

from __future__ import annotations

from kernel.cli.looking import looking, table_of

_COLUMNS = (
    "engine",
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
)

command = looking(
    "connections", "List the clients of a running system: who, from where, how much.", table_of("", _COLUMNS)
)
