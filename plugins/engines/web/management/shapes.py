"""Shapes: rows of the broker in the form that RabbitMQ's management API gives them.

What has no counterpart here (Erlang's garbage collection, reductions, mirrors) is left out, and not invented.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from plugins.engines.web.management.call import Call
from plugins.engines.web.management.properties_key import properties_key

Row: TypeAlias = dict[str, Any]


class Shapes:
    """Makes RabbitMQ's forms for one call: rates depend on when it came."""

    def __init__(self, call: Call) -> None:
        self._rates = call.rates
        self._now = call.now
        self._node = call.node

    def queue(self, row: Row) -> Row:
        """Return a queue."""
        key = ("queue", row["vhost"], row["name"])
        policy = row["policy"] or None
        kind = row["arguments"].get("x-queue-type", "classic")
        moved = {"publish": row["messages_in"], "deliver_get": row["messages_out"]}
        shaped: Row = {
            "arguments": row["arguments"],
            "auto_delete": row["auto_delete"],
            "consumers": row["consumers"],
            "durable": row["durable"],
            "effective_policy_definition": row["effective_policy_definition"],
            "exclusive": row["exclusive"],
            "message_bytes_paged_out": row["message_bytes_paged_out"],
            "message_bytes_ready": row["message_bytes_ready"],
            **self._rates.with_rates(key, _messages(row), self._now),
            "name": row["name"],
            "node": self._node,
            "operator_policy": None,
            "policy": policy,
            "state": "running",
            "type": kind,
            "vhost": row["vhost"],
        }
        # RabbitMQ has it for queues that something has happened to.
        if any(moved.values()):
            shaped["message_stats"] = self._rates.with_rates(key, moved, self._now)
        return shaped

    def exchange(self, row: Row) -> Row:
        """Return an exchange."""
        name = row["name"]
        own = not name or name.startswith("amq.")
        shaped = {
            "arguments": row["arguments"],
            "auto_delete": row["auto_delete"],
            "durable": row["durable"],
            "internal": row["internal"],
            "name": name,
            "type": row["type"],
            "user_who_performed_action": "rmq-internal" if own else "none",
            "vhost": row["vhost"],
        }
        if row["policy"]:
            shaped["policy"] = row["policy"]
        return shaped

    @staticmethod
    def binding(row: Row) -> Row:
        """Return a binding."""
        return {
            "source": row["source_name"],
            "vhost": row["vhost"],
            "destination": row["destination_name"],
            "destination_type": row["destination_kind"],
            "routing_key": row["routing_key"],
            "arguments": row["arguments"],
            "properties_key": properties_key(row["routing_key"], row["arguments"]),
        }

    def vhost(self, row: Row) -> Row:
        """Return a virtual host, with the sums ``messages_ready`` and ``messages_unacknowledged``."""
        name = row["name"]
        description = "Default virtual host" if name == "/" else ""
        return {
            "cluster_state": {self._node: "running"},
            "default_queue_type": "undefined",
            "description": description,
            **self._rates.with_rates(("vhost", name), _messages(row), self._now),
            "metadata": {"description": description, "tags": []},
            "name": name,
            "tags": [],
            "tracing": False,
        }

    def connection(self, row: Row) -> Row:
        """Return a connection."""
        name = row["name"]
        host, port = peer(name)
        key = ("connection", name)
        octets = {"recv_oct": row["recv_oct"], "send_oct": row["send_oct"]}
        # RabbitMQ has them for channels.  A connection counts all of its channels together.
        moved = {"publish": row["messages_in"], "deliver_get": row["messages_out"]}
        return {
            "channel_max": row.get("channel_max", 0),
            "channels": row["channels"],
            "client_properties": row.get("client_properties", {}),
            "frame_max": row.get("frame_max", 0),
            "message_stats": self._rates.with_rates(key, moved, self._now),
            "name": name,
            "node": self._node,
            "peer_host": host,
            "peer_port": port,
            "protocol": row.get("protocol", row["client"]),
            **self._rates.with_rates(key, octets, self._now),
            "send_pend": row["send_pend"],
            "ssl": row["ssl"],
            "state": row["state"],
            "timeout": row.get("timeout", 0),
            "type": "network" if port else "direct",
            "user": row["user"],
            "user_who_performed_action": row["user"],
            "vhost": row["vhost"],
            **_own_name(row),
        }

    def channel(self, row: Row) -> Row:
        """Return a channel."""
        connection = row["connection"]
        host, port = peer(connection)
        return {
            "confirm": row["confirm"],
            "connection_details": {"name": connection, "peer_host": host, "peer_port": port},
            "consumer_count": row["consumer_count"],
            "global_prefetch_count": row["global_prefetch_count"],
            "messages_unacknowledged": row["messages_unacknowledged"],
            "messages_unconfirmed": row["messages_unconfirmed"],
            "name": channel_name(connection, row["number"]),
            "node": self._node,
            "number": row["number"],
            "prefetch_count": row["prefetch_count"],
            "state": "running",
            "transactional": row["transactional"],
            "user": row["user"],
            "user_who_performed_action": row["user"],
            "vhost": row["vhost"],
        }

    def consumer(self, row: Row) -> Row:
        """Return a consumer."""
        connection, number = row["connection"], row["channel"]
        host, port = peer(connection)
        # A front end may not say.
        activity = row.get("activity", "up")
        return {
            "ack_required": row["ack_required"],
            "active": activity != "waiting",
            "activity_status": activity,
            "arguments": row["arguments"],
            "channel_details": {
                "connection_name": connection,
                "name": channel_name(connection, number),
                "node": self._node,
                "number": number,
                "peer_host": host,
                "peer_port": port,
                "user": row.get("user", ""),
            },
            "consumer_tag": row["consumer_tag"],
            "exclusive": row["exclusive"],
            "prefetch_count": row["prefetch_count"],
            "queue": {"name": row["queue_name"], "vhost": row["vhost"]},
        }


def user(row: Row) -> Row:
    """Return a user."""
    most = row["max_connections"]
    return {
        "name": row["name"],
        "password_hash": row["password_hash"],
        "hashing_algorithm": f"rabbit_password_hashing_{row['hashing']}",
        "tags": row["tags"],
        "limits": {} if most is None else {"max-connections": most},
    }


def permission(row: Row) -> Row:
    """Return what a user may do in a virtual host."""
    return {key: row[key] for key in ("user", "vhost", "configure", "write", "read")}


def topic_permission(row: Row) -> Row:
    """Return which keys of a topic exchange are for a user."""
    return {key: row[key] for key in ("user", "vhost", "exchange", "write", "read")}


def policy(row: Row) -> Row:
    """Return a policy."""
    return {key: row[key] for key in ("vhost", "name", "pattern", "apply-to", "definition", "priority")}


def channel_name(connection: str, number: int) -> str:
    """Return RabbitMQ's name of a channel."""
    return f"{connection} ({number})"


def peer(name: str) -> tuple[str, int]:
    """Return host and port of a client; of one without an address its name, and 0."""
    host, _, port = name.rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdigit() else (name, 0)


def _own_name(row: Row) -> Row:
    """Return what a client calls itself; nothing if it does not."""
    name = row.get("client_properties", {}).get("connection_name")
    return {"user_provided_name": name} if isinstance(name, str) else {}


def _messages(row: Mapping[str, Any]) -> dict[str, int]:
    ready, unacked = row["messages_ready"], row["messages_unacknowledged"]
    return {
        "messages": ready + unacked,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
    }
