"""Lists: what there is, for the user who asks."""

from __future__ import annotations

from plugins.engines.web.management import shapes
from plugins.engines.web.management.call import Call, Handler, OneRow, Rows, Steps, not_found, shown
from plugins.engines.web.management.listing import listed, only_columns
from plugins.engines.web.management.properties_key import same_key
from plugins.engines.web.management.shapes import Shapes


def of_vhosts(what: str, shape: str) -> Handler:
    """Return the handler of things in virtual hosts, in that of the path or in all that the user may open."""

    def handler(call: Call) -> Steps:
        rows = yield from in_vhosts(call, what)
        return (yield from listed(rows, getattr(Shapes(call), shape), call.request.query))

    return handler


def in_vhosts(call: Call, what: str) -> Rows:
    """Return the rows in the virtual host of the path, or in all that the user may open."""
    vhost = call.names.get("vhost")
    rows = yield from call.browse(what, vhost=vhost)
    if vhost is None:
        rows = [row for row in rows if call.user.opens(row["vhost"])]
    # Sinks, such as MQTT's subscriptions of QoS 0, are no destinations that RabbitMQ's tools know.
    return [row for row in rows if row.get("destination_kind") != "sink"]


def of_clients(what: str, shape: str) -> Handler:
    """Return the handler of clients' things: of all for those who monitor, otherwise of the user's own."""

    def handler(call: Call) -> Steps:
        rows = yield from clients(call, what)
        return (yield from listed(rows, getattr(Shapes(call), shape), call.request.query))

    return handler


def clients(call: Call, what: str) -> Rows:
    """Return connections or channels that the user may see."""
    rows = yield from call.browse(what)
    if not call.user.monitors:
        rows = [row for row in rows if row["user"] == call.user.name]
    # What the path has of these.
    wanted = {key: call.names[key] for key in ("vhost", "user") if key in call.names}
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def consumers(call: Call) -> Steps:
    """Answer with consumers."""
    rows = yield from _consumers(call)
    return (yield from listed(rows, Shapes(call).consumer, call.request.query))


def _consumers(call: Call) -> Rows:
    rows = yield from call.browse("consumers")
    vhost = call.names.get("vhost")
    if vhost is None:
        return [row for row in rows if call.user.opens(row["vhost"])]
    return [row for row in rows if row["vhost"] == vhost]


def queue(call: Call) -> Steps:
    """Answer with one queue, and its consumers."""
    row = yield from one(call, "queues")
    rows = yield from _consumers(call)
    made = Shapes(call)
    own = [made.consumer(each) for each in rows if each["queue_name"] == row["name"]]
    whole = {"consumer_details": own, "deliveries": [], "incoming": [], **made.queue(row)}
    return shown(only_columns(whole, call.request.query))


def exchange(call: Call) -> Steps:
    """Answer with one exchange."""
    row = yield from one(call, "exchanges")
    whole = {"incoming": [], "outgoing": [], **Shapes(call).exchange(row)}
    return shown(only_columns(whole, call.request.query))


def one(call: Call, what: str) -> OneRow:
    """Return the row of the queue or exchange that the path names."""
    name = call.names["name"]
    # RabbitMQ's name of the default exchange, in paths and for permissions: its own name is empty, and a part
    # of a path cannot be.
    if what == "exchanges" and name == "amq.default":
        name = ""
    rows = yield from call.browse(what, vhost=call.names["vhost"], name=name)
    if not rows:
        raise not_found()
    return rows[0]


def connection(call: Call) -> Steps:
    """Answer with one connection."""
    rows = yield from clients(call, "connections")
    found = [row for row in rows if row["name"] == call.names["name"]]
    if not found:
        raise not_found()
    return shown(Shapes(call).connection(found[0]))


def channels_of(call: Call) -> Steps:
    """Answer with the channels of one connection."""
    rows = yield from clients(call, "channels")
    own = [row for row in rows if row["connection"] == call.names["name"]]
    return (yield from listed(own, Shapes(call).channel, call.request.query))


def channel(call: Call) -> Steps:
    """Answer with one channel."""
    rows = yield from clients(call, "channels")
    wanted = call.names["name"]
    found = [row for row in rows if shapes.channel_name(row["connection"], row["number"]) == wanted]
    if not found:
        raise not_found()
    made = Shapes(call)
    consumers_of_all = yield from call.browse("consumers")
    own = [
        made.consumer(each)
        for each in consumers_of_all
        if (each["connection"], each["channel"]) == (found[0]["connection"], found[0]["number"])
    ]
    return shown({"consumer_details": own, "deliveries": [], "publishes": [], **made.channel(found[0])})


def policies(call: Call) -> Steps:
    """Answer with policies."""
    rows = yield from in_vhosts(call, "policies")
    vhost = call.names.get("vhost")
    rows = rows if vhost is None else [row for row in rows if row["vhost"] == vhost]
    return (yield from listed(rows, shapes.policy, call.request.query))


def policy(call: Call) -> Steps:
    """Answer with one policy."""
    rows = yield from call.browse("policies")
    wanted = (call.names["vhost"], call.names["name"])
    found = [row for row in rows if (row["vhost"], row["name"]) == wanted]
    if not found:
        raise not_found()
    return shown(shapes.policy(found[0]))


def users(call: Call) -> Steps:
    """Answer with users."""
    rows = yield from call.browse("accounts")
    return (yield from listed(rows, shapes.user, call.request.query))


def users_without_permissions(call: Call) -> Steps:
    """Answer with users who may open no virtual host."""
    rows = yield from call.browse("accounts")
    permissions = yield from call.browse("permissions")
    with_some = {row["user"] for row in permissions}
    rows = [row for row in rows if row["name"] not in with_some]
    return (yield from listed(rows, shapes.user, call.request.query))


def user(call: Call) -> Steps:
    """Answer with one user."""
    rows = yield from call.browse("accounts")
    found = [row for row in rows if row["name"] == call.names["user"]]
    if not found:
        raise not_found()
    return shown(shapes.user(found[0]))


def permissions(call: Call) -> Steps:
    """Answer with permissions: of all users, of the user or in the virtual host that the path names."""
    rows = yield from call.browse("permissions")
    rows = [row for row in rows if all(row[key] == value for key, value in call.names.items())]
    return (yield from listed(rows, shapes.permission, call.request.query))


def permission(call: Call) -> Steps:
    """Answer with the permissions of one user in one virtual host."""
    rows = yield from call.browse("permissions")
    found = [row for row in rows if all(row[key] == value for key, value in call.names.items())]
    if not found:
        raise not_found()
    return shown(shapes.permission(found[0]))


def topic_permissions(call: Call) -> Steps:
    """Answer with permissions for topics: of all users, or of those whom the path names."""
    rows = yield from call.browse("topic-permissions")
    rows = [row for row in rows if all(row[key] == value for key, value in call.names.items())]
    return (yield from listed(rows, shapes.topic_permission, call.request.query))


def topic_permissions_of_one(call: Call) -> Steps:
    """Answer with the permissions for topics of one user in one virtual host."""
    rows = yield from call.browse("topic-permissions")
    found = [row for row in rows if all(row[key] == value for key, value in call.names.items())]
    if not found:
        raise not_found()
    return shown([shapes.topic_permission(row) for row in found])


# Bindings


def bindings_of_queue(call: Call) -> Steps:
    """Answer with the bindings to a queue."""
    rows = yield from call.browse("bindings", vhost=call.names["vhost"], name=call.names["name"])
    return (yield from listed(rows, Shapes.binding, call.request.query))


def bindings_of_exchange(end: str) -> Handler:
    """Return the handler of bindings from (``source``) or to (``destination``) an exchange."""

    def handler(call: Call) -> Steps:
        name = "" if call.names["name"] == "amq.default" else call.names["name"]
        rows = yield from call.browse("bindings", vhost=call.names["vhost"], name=name, end=end)
        rows = [row for row in rows if row["destination_kind"] != "sink"]
        return (yield from listed(rows, Shapes.binding, call.request.query))

    return handler


def bindings_between(call: Call) -> Steps:
    """Answer with the bindings from an exchange to a queue or an exchange."""
    rows = yield from between(call)
    return (yield from listed(rows, Shapes.binding, call.request.query))


def binding(call: Call) -> Steps:
    """Answer with one of them."""
    row = yield from find_binding(call)
    return shown(only_columns(Shapes.binding(row), call.request.query))


def find_binding(call: Call) -> OneRow:
    """Return the row of the binding that the path names."""
    rows = yield from between(call)
    for row in rows:
        if same_key(Shapes.binding(row)["properties_key"], call.names["key"]):
            return row
    raise not_found()


def between(call: Call) -> Rows:
    """Return the rows of the bindings between the ends that the path names."""
    names = call.names
    kind = "queue" if names["kind"] == "q" else "exchange"
    end = "queue" if kind == "queue" else "destination"
    rows = yield from call.browse("bindings", vhost=names["vhost"], name=names["destination"], end=end)
    source = "" if names["source"] == "amq.default" else names["source"]
    return [row for row in rows if row["source_name"] == source and row["destination_kind"] == kind]
