"""Parameters: values that tools keep in the broker, its name, and limits of users.

Parameters of a component belong to plugins of RabbitMQ that are not here, such as shovels.  They are refused
as by a RabbitMQ without these plugins, and the reason says what there is instead: one that is kept and does
nothing would be worse.
"""

from __future__ import annotations

from plugins.engines.web.management.call import (
    Call,
    Refused,
    Rows,
    Steps,
    bad_request,
    done,
    not_found,
    shown,
)
from plugins.engines.web.management.changes import define, put_definition
from plugins.engines.web.management.listing import listed
from plugins.engines.web.management.shapes import Row, user

_CONNECTIONS = "max-connections"
_INSTEAD = {
    "shovel": "routes between engines of the topology file do that, for example of kind amqp-client",
    **dict.fromkeys(
        ("federation-upstream", "federation-upstream-set"),
        "a link is an engine of kind federation in the topology file",
    ),
    "operator_policy": "set a policy, or the same in the topology file",
    "vhost-limits": "policies limit queues, and max-connections limits users",
}
"""What to do in place of a parameter, by its component."""


def global_parameters(call: Call) -> Steps:
    """Answer with all global parameters."""
    rows = yield from call.browse("global-parameters")
    return (yield from listed(rows, lambda row: row, call.request.query))


def global_parameter(call: Call) -> Steps:
    """Answer with one of them."""
    rows = yield from call.browse("global-parameters")
    found = [row for row in rows if row["name"] == call.names["name"]]
    if not found:
        raise not_found()
    return shown(found[0])


def put_global_parameter(call: Call) -> Steps:
    """Set a global parameter."""
    body, names = call.body("value"), {"name": call.names["name"]}
    return (yield from put_definition(call, "global_parameters", {**names, "value": body["value"]}, names))


def put_cluster_name(call: Call) -> Steps:
    """Name the broker, for tools."""
    name = call.body("name")["name"]
    if not isinstance(name, str):
        raise bad_request(["not_binary", "name"])
    yield from define(call, {"global_parameters": [{"name": "cluster_name", "value": name}]})
    return done(204)


def put_parameter(call: Call) -> Steps:
    """Refuse a parameter of a component."""
    call.body("value")
    yield from ()
    component = call.names["component"]
    if component == "policy":
        raise bad_request("policies may not be set using this method")
    raise _not_found(component)


def no_parameter(call: Call) -> Steps:
    """Say that a parameter of a component does not exist."""
    yield from ()
    raise not_found()


def put_vhost_limit(call: Call) -> Steps:
    """Refuse a limit of a virtual host."""
    call.body("value")
    yield from ()
    raise _not_found("vhost-limits")


def delete_vhost_limit(call: Call) -> Steps:
    """Remove a limit of a virtual host: there is none, which is no error in RabbitMQ."""
    yield from ()
    return done(204)


def put_operator_policy(call: Call) -> Steps:
    """Refuse a policy that would go before those of users."""
    call.body("pattern", "definition")
    yield from ()
    raise _not_found("operator_policy")


# Limits of users


def user_limits(call: Call) -> Steps:
    """Answer with the limits of all users, or of the one that the path names."""
    rows = yield from _limited(call)
    return (yield from listed(rows, lambda row: row, call.request.query))


def _limited(call: Call) -> Rows:
    rows = yield from call.browse("accounts")
    wanted = call.names.get("user")
    if wanted is not None and not any(row["name"] == wanted for row in rows):
        raise not_found()
    return [
        {"user": row["name"], "value": {_CONNECTIONS: row["max_connections"]}}
        for row in rows
        if row["max_connections"] is not None and wanted in (None, row["name"])
    ]


def put_user_limit(call: Call) -> Steps:
    """Limit the connections of a user."""
    limit = call.body("value")["value"]
    if call.names["name"] != _CONNECTIONS:
        raise _invalid(f"limits of users are {_CONNECTIONS}, not {call.names['name']}")
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise bad_request(["not_integer", limit])
    return (yield from _limit(call, limit))


def delete_user_limit(call: Call) -> Steps:
    """Let a user have as many connections as it likes."""
    return (yield from _limit(call, -1))


def _limit(call: Call, limit: int) -> Steps:
    rows = yield from call.browse("accounts")
    found: list[Row] = [user(row) for row in rows if row["name"] == call.names["user"]]
    if not found:
        raise not_found()
    yield from define(call, {"users": [{**found[0], "limits": {_CONNECTIONS: limit}}]})
    return done(204)


def _not_found(component: str) -> Refused:
    instead = f": {_INSTEAD[component]}" if component in _INSTEAD else ""
    return _invalid(f"component {component} not found{instead}")


def _invalid(reason: str) -> Refused:
    return bad_request(f"Validation failed\n\n{reason}\n")
