"""Definitions: everything that a broker has but messages, to be taken to another one."""

from __future__ import annotations

import msgspec

from plugins.engines.web.management import shapes
from plugins.engines.web.management.call import Call, Steps, bad_request, done, shown
from plugins.engines.web.management.changes import define
from plugins.engines.web.management.overview import SPOKEN
from plugins.engines.web.management.shapes import Row, Shapes

_OF_QUEUE = ("name", "vhost", "durable", "auto_delete", "arguments")
_OF_EXCHANGE = ("name", "vhost", "type", "durable", "auto_delete", "internal", "arguments")
_OF_BINDING = ("source", "vhost", "destination", "destination_type", "routing_key", "arguments")


def exported(call: Call) -> Steps:
    """Answer with the definitions of the broker, or of one virtual host (without users)."""
    vhost = call.names.get("vhost")
    queues = yield from call.browse("queues", vhost=vhost)
    exchanges = yield from call.browse("exchanges", vhost=vhost)
    bindings = yield from call.browse("bindings", vhost=vhost)
    policies = yield from call.browse("policies")
    # Those of a connection go with it.
    kept = [row for row in queues if not row["exclusive"]]
    names = {(row["vhost"], row["name"]) for row in kept}
    found: Row = {
        "rabbit_version": SPOKEN,
        "parameters": [],
        "policies": [shapes.policy(row) for row in policies if vhost in (None, row["vhost"])],
        "queues": _only(kept, _OF_QUEUE, vhost),
        "exchanges": _only([row for row in exchanges if not _is_built_in(row)], _OF_EXCHANGE, vhost),
        "bindings": _only(
            [
                Shapes.binding(row)
                for row in bindings
                # Those of the default exchange come with the queues.
                if row["source_name"]
                and row["destination_kind"] != "sink"
                and (
                    row["destination_kind"] == "exchange" or (row["vhost"], row["destination_name"]) in names
                )
            ],
            _OF_BINDING,
            vhost,
        ),
    }
    if vhost is None:
        users = yield from call.browse("accounts")
        permissions = yield from call.browse("permissions")
        topics = yield from call.browse("topic-permissions")
        vhosts = yield from call.browse("vhosts")
        parameters = yield from call.browse("global-parameters")
        found |= {
            "rabbitmq_version": SPOKEN,
            "product_name": "messaging kernel",
            "users": [shapes.user(row) for row in users],
            "vhosts": [{"name": row["name"]} for row in vhosts],
            "permissions": [shapes.permission(row) for row in permissions],
            "topic_permissions": [shapes.topic_permission(row) for row in topics],
            "global_parameters": parameters,
        }
    return shown(found)


def imported(call: Call) -> Steps:
    """Import definitions, those of one virtual host where the path names it."""
    try:
        document = msgspec.json.decode(call.request.body)
    except (msgspec.DecodeError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise bad_request("failed_to_parse_json")
    vhost = call.names.get("vhost")
    if vhost is not None:
        document = {
            sort: [{**each, "vhost": vhost} for each in document.get(sort, [])]
            for sort in ("queues", "exchanges", "bindings", "policies")
        }
    yield from define(call, document)
    return done(204)


def _is_built_in(row: Row) -> bool:
    return not row["name"] or row["name"].startswith("amq.")


def _only(rows: list[Row], keys: tuple[str, ...], vhost: str | None) -> list[Row]:
    # As in RabbitMQ, definitions of one virtual host do not name it.
    return [{key: row[key] for key in keys if vhost is None or key != "vhost"} for row in rows]
