"""Changes: queues, exchanges, bindings, connections, users, permissions, virtual hosts and policies."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from urllib.parse import quote

from kernel.contracts.errors import KernelError
from plugins.engines.web.management.call import (
    Call,
    Handler,
    Refused,
    Step,
    Steps,
    bad_request,
    done,
    not_found,
)
from plugins.engines.web.management.lists import clients, find_binding, one
from plugins.engines.web.management.properties_key import properties_key
from plugins.engines.web.management.quick_patterns import require_quick
from plugins.engines.web.management.shapes import Row

_TRUE = ("true", "1")
_TABLES = {
    "users": "accounts",
    "topic_permissions": "topic-permissions",
    "global_parameters": "global-parameters",
}
"""The broker's tables that are not called as definitions are."""


# Queues and exchanges


def put_queue(call: Call) -> Steps:
    """Declare a queue."""
    body = call.body()
    flags = {key: _flag(body, key) for key in ("durable", "auto_delete")}
    made = yield from call.change(
        "declare-queue", name=call.names["name"], arguments=_table(body, "arguments"), **flags
    )
    return done(201 if made["created"] else 204)


def put_exchange(call: Call) -> Steps:
    """Declare an exchange."""
    body = call.body()
    flags = {key: _flag(body, key) for key in ("durable", "auto_delete", "internal")}
    made = yield from call.change(
        "declare-exchange",
        name=call.names["name"],
        type=_text(body, "type", "direct"),
        arguments=_table(body, "arguments"),
        **flags,
    )
    return done(201 if made["created"] else 204)


def delete(what: str, operation: str) -> Handler:
    """Return the handler that deletes a queue or an exchange."""

    def handler(call: Call) -> Steps:
        # First, so that what is not there is answered as RabbitMQ's API answers it: 404.
        row = yield from one(call, what)
        query = call.request.query
        flags = {flag: query.get(flag.replace("_", "-")) in _TRUE for flag in ("if_unused", "if_empty")}
        yield from call.change(operation, name=row["name"], **flags)
        return done(204)

    return handler


def purge(call: Call) -> Steps:
    """Purge a queue."""
    row = yield from one(call, "queues")
    yield from call.change("purge-queue", name=row["name"])
    return done(204)


# Bindings


def post_binding(call: Call) -> Steps:
    """Bind."""
    body, names = call.body(), call.names
    key, arguments = _text(body, "routing_key", ""), _table(body, "arguments")
    yield from call.change("bind", **_ends(call), key=key, arguments=arguments)
    where = f"{quote(names['destination'], safe='')}/{quote(properties_key(key, arguments), safe='~')}"
    return done(201, (("location", where),))


def delete_binding(call: Call) -> Steps:
    """Unbind."""
    row = yield from find_binding(call)
    yield from call.change("unbind", **_ends(call), key=row["routing_key"], arguments=row["arguments"])
    return done(204)


def _ends(call: Call) -> dict[str, str]:
    names = call.names
    return {
        "source": "" if names["source"] == "amq.default" else names["source"],
        "destination": names["destination"],
        "kind": "queue" if names["kind"] == "q" else "exchange",
    }


# Connections


def close_connection(call: Call) -> Steps:
    """Close a connection: one of the user's own, or anyone's for those who administer."""
    rows = yield from clients(call, "connections")
    name = call.names["name"]
    found = [row for row in rows if row["name"] == name]
    if not found:
        raise not_found()
    if not (call.user.administers or found[0]["user"] == call.user.name):
        raise Refused(401, "not_authorised", "User not authorised to access object")
    yield from _close(call, name)
    return done(204)


def close_connections_of(call: Call) -> Steps:
    """Close all connections of a user."""
    for row in (yield from clients(call, "connections")):
        try:
            yield from _close(call, row["name"])
        except KernelError:
            # It has ended meanwhile.
            continue
    return done(204)


def _close(call: Call, name: str) -> Generator[Step, Any, None]:
    # RabbitMQ's words.  A header is written by the client, and may be no text.
    given = call.request.headers.get(b"x-reason", b"Closed via management plugin")
    reason = given.decode("utf-8", "replace")[:200]
    yield from call.ask("close-connection", {"name": name, "reason": reason})


def act_on_queue(call: Call) -> Steps:
    """Synchronise mirrors of a queue, or stop it: there are none."""
    action = call.body("action")["action"]
    if action not in ("sync", "cancel_sync"):
        raise bad_request(["unknown", action])
    yield from one(call, "queues")
    return done(204)


def start_vhost(call: Call) -> Steps:
    """Start a virtual host on a node: it runs on the only one."""
    yield from ()
    node = call.names["node"]
    if node != call.node:
        raise bad_request(f"Request to node {node} failed with nodedown")
    return done(204)


def rebalance(call: Call) -> Steps:
    """Divide queues among the nodes: there is one."""
    yield from ()
    return done(204)


# Users, permissions, virtual hosts, policies


def put_user(call: Call) -> Steps:
    """Create or change a user."""
    body = call.body()
    if "tags" not in body:
        raise bad_request("tags_not_present")
    tags = body["tags"]
    if isinstance(tags, str):
        tags = [tag.strip() for tag in tags.split(",") if tag.strip()]
    definition = {"name": call.names["user"], "tags": tags}
    for key in ("password", "password_hash", "hashing_algorithm"):
        if body.get(key):
            definition[key] = _text(body, key, "")
    return (yield from put_definition(call, "users", definition, {"name": call.names["user"]}))


def put_permission(call: Call) -> Steps:
    """Say what a user may do in a virtual host."""
    return (yield from _put_permission(call, "permissions", ("configure", "write", "read")))


def put_topic_permission(call: Call) -> Steps:
    """Say which keys of a topic exchange are for a user."""
    return (yield from _put_permission(call, "topic_permissions", ("exchange", "write", "read")))


def _put_permission(call: Call, sort: str, keys: tuple[str, ...]) -> Steps:
    body = call.body(*keys)
    names = {"user": call.names["user"], "vhost": call.names["vhost"]}
    known = yield from call.browse("accounts")
    if not any(row["name"] == names["user"] for row in known) or not call.vhost_exists:
        raise bad_request("vhost_or_user_not_found")
    definition = {**names, **{key: _text(body, key, "") for key in keys}}
    return (yield from put_definition(call, sort, definition, names))


def put_vhost(call: Call) -> Steps:
    """Create a virtual host."""
    call.body()
    name = call.names["vhost"]
    return (yield from put_definition(call, "vhosts", {"name": name}, {"name": name}))


def put_policy(call: Call) -> Steps:
    """Set a policy."""
    body = call.body("pattern", "definition")
    names = {"vhost": call.names["vhost"], "name": call.names["name"]}
    definition = {
        **names,
        "pattern": _text(body, "pattern", ""),
        "definition": _table(body, "definition"),
        "priority": body.get("priority", 0),
        "apply-to": _text(body, "apply-to", "all"),
    }
    if not call.user.administers:
        # It is searched in the name of each queue and exchange.
        require_quick(definition["pattern"])
    if not definition["definition"]:
        raise bad_request("Validation failed\n\nno policy provided\n")
    yield from call.change("check-policy", policy=definition)
    return (yield from put_definition(call, "policies", definition, names))


def put_definition(call: Call, sort: str, definition: Row, names: dict[str, str]) -> Steps:
    """Import one definition.  ``names``: by what it is known."""
    rows = yield from call.browse(_TABLES.get(sort, sort))
    # 201 for a new one, 204 for one that is changed, as RabbitMQ.
    exists = any(all(row[key] == value for key, value in names.items()) for row in rows)
    yield from define(call, {sort: [definition]})
    return done(204 if exists else 201)


def define(call: Call, definitions: object) -> Generator[Step, Any, None]:
    """Import definitions, or refuse them."""
    try:
        imported = yield from call.ask("import-definitions", definitions)
    except KernelError as error:
        # Without a cause the broker has not answered.
        if error.__cause__ is None:
            raise
        raise bad_request(str(error.__cause__)) from None
    _refuse(imported["complaints"])


def _refuse(complaints: list[str]) -> None:
    if complaints:
        # Each begins with its place in the document.
        lines = [text.partition(": ")[2] if text.startswith("$") else text for text in complaints]
        raise bad_request("Validation failed\n\n" + "\n".join(lines) + "\n")


def forget(sort: str, **places: str) -> Handler:
    """Return the handler that deletes a definition.

    ``places``: what the path has of it, by the names that definitions use.
    """

    def handler(call: Call) -> Steps:
        names = {key: call.names[place] for key, place in places.items()}
        rows = yield from call.browse(_TABLES.get(sort, sort))
        if not any(all(row[key] == value for key, value in names.items()) for row in rows):
            raise not_found()
        deleted = yield from call.ask("delete-definitions", {sort: [names]})
        _refuse(deleted["complaints"])
        return done(204)

    return handler


def delete_vhost(call: Call) -> Steps:
    """Delete a virtual host, with its queues."""
    yield from call.change("delete-vhost", name=call.names["vhost"])
    return done(204)


def delete_users(call: Call) -> Steps:
    """Delete several users."""
    names = call.body("users")["users"]
    if not isinstance(names, list):
        raise bad_request(["not_list", "users"])
    deleted = yield from call.ask("delete-definitions", {"users": [{"name": str(name)} for name in names]})
    _refuse(deleted["complaints"])
    return done(204)


# What a body has


def _flag(body: Row, key: str) -> bool:
    value = body.get(key, False)
    # rabbitmqadmin sends texts.
    found = (
        {True: True, False: False, "true": True, "false": False}.get(value)
        if isinstance(value, bool | str)
        else None
    )
    if found is None:
        raise bad_request(["not_boolean", value])
    return found


def _text(body: Row, key: str, default: str) -> str:
    value = body.get(key, default)
    if not isinstance(value, str):
        raise bad_request(["not_binary", key])
    return value


def _table(body: Row, key: str) -> Row:
    value = body.get(key, {})
    # Erlang's empty list, which some tools send.
    if value == []:
        return {}
    if not isinstance(value, dict):
        raise bad_request(["not_proplist", key])
    return value
