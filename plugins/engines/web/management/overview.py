"""Overview, nodes and virtual hosts: the state of the whole broker."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from importlib.metadata import version
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_NOFILE, RLIMIT_NPROC, getrlimit
from typing import Any

from plugins.engines.web.management.call import Call, Step, Steps, not_found, shown
from plugins.engines.web.management.listeners import shown_listeners
from plugins.engines.web.management.listing import listed, only_columns
from plugins.engines.web.management.shapes import Row, Shapes

SPOKEN = "3.10.8"
"""The version of RabbitMQ whose API this is.  Tools look at it to find out what they may ask for."""

_TYPES = {
    "direct": "AMQP direct exchange, as per the AMQP specification",
    "fanout": "AMQP fanout exchange, as per the AMQP specification",
    "headers": "AMQP headers exchange, as per the AMQP specification",
    "topic": "AMQP topic exchange, as per the AMQP specification",
}
_COUNTS = ("messages_ready", "messages_unacknowledged", "consumers")
"""Figures of queues that are summed for a virtual host."""


def overview(call: Call) -> Steps:
    """Answer with the sums of everything that the user may see."""
    status = yield from call.ask("status", None)
    vhosts = yield from _vhosts(call)
    connections = yield from call.browse("connections")
    if not call.user.monitors:
        connections = [row for row in connections if row["user"] == call.user.name]
    sums = {key: sum(row[key] for row in vhosts) for key in ("messages_ready", "messages_unacknowledged")}
    totals = {"messages": sum(sums.values()), **sums}
    moved = {
        "publish": sum(row["messages_in"] for row in vhosts),
        "drop_unroutable": sum(row["messages_unrouted"] for row in vhosts),
    }
    if call.user.monitors:
        moved["deliver_get"] = status["messages_out"]
    # Users who see different sums have rates of their own.
    key = ("overview", "" if call.user.monitors else call.user.name)
    types = _exchange_types(status)
    shown_to_all: Row = {
        "management_version": SPOKEN,
        "rates_mode": "basic",
        "exchange_types": types,
        "product_version": version("messaging-kernel"),
        "product_name": "messaging kernel",
        "rabbitmq_version": SPOKEN,
        "cluster_name": status["cluster_name"] or call.node,
        "disable_stats": False,
        "enable_queue_totals": False,
        "message_stats": call.rates.with_rates(key, moved, call.now),
        "queue_totals": call.rates.with_rates(key, totals, call.now),
        "object_totals": {
            "channels": sum(row["channels"] for row in connections),
            "connections": len(connections),
            "consumers": sum(row["consumers"] for row in vhosts),
            "exchanges": sum(row["exchanges"] for row in vhosts),
            "queues": sum(row["queues"] for row in vhosts),
        },
        "node": call.node,
    }
    if call.user.monitors:
        shown_to_all["listeners"] = shown_listeners(call, status)
        shown_to_all["contexts"] = _contexts(call)
    return shown(only_columns(shown_to_all, call.request.query))


def nodes(call: Call) -> Steps:
    """Answer with the one node that there is."""
    status = yield from call.ask("status", None)
    return (yield from listed([_node(call, status)], lambda row: row, call.request.query))


def node(call: Call) -> Steps:
    """Answer with it by its name."""
    status = yield from call.ask("status", None)
    if call.names["name"] != call.node:
        raise not_found()
    return shown(_node(call, status))


def vhosts(call: Call) -> Steps:
    """Answer with the virtual hosts that the user may see."""
    rows = yield from _vhosts(call)
    return (yield from listed(rows, Shapes(call).vhost, call.request.query))


def vhost(call: Call) -> Steps:
    """Answer with one virtual host."""
    rows = yield from _vhosts(call)
    name = call.names["vhost"]
    return shown(Shapes(call).vhost(next(row for row in rows if row["name"] == name)))


def cluster_name(call: Call) -> Steps:
    """Answer with the name that the broker gives itself."""
    status = yield from call.ask("status", None)
    return shown({"name": status["cluster_name"] or call.node})


def whoami(call: Call) -> Steps:
    """Answer with the user who asks."""
    yield from ()
    return shown({"name": call.user.name, "tags": list(call.user.tags)})


def auth(call: Call) -> Steps:
    """Answer that there is no OAuth: users log in with a password."""
    yield from ()
    return shown({"enable_uaa": False, "uaa_client_id": "", "uaa_location": ""})


def nothing(call: Call) -> Steps:
    """Answer with an empty list: there is nothing of the kind here."""
    yield from ()
    return shown([])


def _vhosts(call: Call) -> Generator[Step, Any, list[Row]]:
    rows = yield from call.browse("vhosts")
    rows = [row for row in rows if call.user.sees(row["name"])]
    sums = {row["name"]: dict.fromkeys(_COUNTS, 0) for row in rows}

    def add(counts: list[Row]) -> None:
        for count in counts:
            found = sums.get(count["vhost"])
            if found is not None:
                for key in _COUNTS:
                    found[key] += count[key]

    # Here and not in the broker, whose turn would take as long as there are queues.
    yield from call.pieces("counts", add)
    return [{**row, **sums[row["name"]]} for row in rows]


def _node(call: Call, status: Row) -> Row:
    memory, disk = status["figures"].get("queued", 0), status["figures"].get("disk_free", 0)
    return {
        "applications": [],
        "auth_mechanisms": [],
        "disk_free": disk,
        "disk_free_alarm": status["alarms"].get("disk", False),
        "disk_free_limit": status["figures"].get("disk_free_limit", 0),
        "exchange_types": _exchange_types(status),
        "fd_total": getrlimit(RLIMIT_NOFILE)[0],
        "fd_used": len(os.listdir("/dev/fd")),
        "mem_alarm": status["alarms"].get("memory", False),
        "mem_limit": status["figures"].get("memory_limit", 0) or status["figures"].get("queued_limit", 0),
        "mem_used": status["figures"].get("memory", memory),
        "name": call.node,
        "os_pid": str(os.getpid()),
        "partitions": [],
        # Erlang's processes are what threads are here.
        "proc_total": _most_threads(),
        "proc_used": threading.active_count(),
        "processors": os.cpu_count() or 1,
        "rates_mode": "basic",
        "running": True,
        "sockets_total": getrlimit(RLIMIT_NOFILE)[0],
        "sockets_used": status["connections"],
        "type": "disc" if status["durable"] else "ram",
        "uptime": status["uptime"],
    }


def _most_threads() -> int:
    """Return how many threads the system allows, of this user or at all."""
    limit = getrlimit(RLIMIT_NPROC)[0]
    return limit if limit != RLIM_INFINITY else int(Path("/proc/sys/kernel/threads-max").read_text())


def _contexts(call: Call) -> list[Row]:
    """Return where the pages of the node are, which tells some tools its name."""
    host, _, port = call.listener["address"].rpartition(":")
    return [
        {
            "node": call.node,
            "description": "messaging kernel",
            "path": "/",
            "ip": host.rpartition("/")[2].strip("[]"),
            "port": port,
            "ssl_opts": [],
        }
    ]


def _exchange_types(status: Row) -> list[Row]:
    return [
        {"name": name, "description": _TYPES.get(name, ""), "enabled": True}
        for name in sorted(status["exchange_types"])
    ]
