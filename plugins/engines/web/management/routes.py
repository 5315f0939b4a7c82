"""Routes: which request is answered by what, and who may ask.  Everything of the API is in this table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from plugins.engines.web.management import (
    changes,
    definitions,
    health_checks,
    lists,
    messages,
    overview,
    parameters,
)
from plugins.engines.web.management.call import Handler

Tag: TypeAlias = Literal["management", "policymaker", "monitoring", "administrator"]


class Route(NamedTuple):
    """One kind of request."""

    method: str
    pattern: str
    """Below ``/api/``.  A part in braces is any name.  ``{vhost}``: one that the user may open."""
    tag: Tag
    """What the user has to be, at least (``WebUser.is_a``)."""
    handler: Handler
    needs_vhost: bool = True
    """Whether the virtual host of the path has to exist."""


_ONE_BINDING = "bindings/{vhost}/e/{source}/{kind}/{destination}/{key}"

ROUTES = (
    # The whole
    Route("GET", "overview", "management", overview.overview),
    Route("GET", "whoami", "management", overview.whoami),
    Route("GET", "cluster-name", "management", overview.cluster_name),
    Route("PUT", "cluster-name", "administrator", parameters.put_cluster_name),
    Route("GET", "nodes", "monitoring", overview.nodes),
    Route("GET", "nodes/{name}", "monitoring", overview.node),
    Route("GET", "auth", "management", overview.auth),
    Route("POST", "rebalance/queues", "administrator", changes.rebalance),
    Route("GET", "extensions", "management", overview.nothing),
    Route("GET", "definitions", "administrator", definitions.exported),
    Route("POST", "definitions", "administrator", definitions.imported),
    Route("GET", "all-configuration", "administrator", definitions.exported),
    Route("POST", "all-configuration", "administrator", definitions.imported),
    Route("GET", "definitions/{vhost}", "administrator", definitions.exported),
    Route("POST", "definitions/{vhost}", "administrator", definitions.imported),
    # Health
    Route("GET", "aliveness-test/{vhost}", "management", messages.alive),
    Route("GET", "healthchecks/node", "management", health_checks.alarms),
    Route("GET", "healthchecks/node/{name}", "management", health_checks.node),
    Route("GET", "health/checks/alarms", "management", health_checks.alarms),
    Route("GET", "health/checks/local-alarms", "management", health_checks.alarms),
    Route("GET", "health/checks/virtual-hosts", "management", health_checks.well),
    Route("GET", "health/checks/port-listener/{port}", "management", health_checks.port_listener),
    Route("GET", "health/checks/protocol-listener/{protocol}", "management", health_checks.protocol_listener),
    Route(
        "GET",
        "health/checks/certificate-expiration/{within}/{unit}",
        "management",
        health_checks.certificate_expiration,
    ),
    Route("GET", "health/checks/node-is-mirror-sync-critical", "management", health_checks.critical),
    Route("GET", "health/checks/node-is-quorum-critical", "management", health_checks.critical),
    # Clients
    Route("GET", "connections", "management", lists.of_clients("connections", "connection")),
    Route("GET", "vhosts/{vhost}/connections", "management", lists.of_clients("connections", "connection")),
    Route("GET", "connections/username/{user}", "management", lists.of_clients("connections", "connection")),
    Route("DELETE", "connections/username/{user}", "administrator", changes.close_connections_of),
    Route("GET", "connections/{name}", "management", lists.connection),
    Route("DELETE", "connections/{name}", "management", changes.close_connection),
    Route("GET", "connections/{name}/channels", "management", lists.channels_of),
    Route("GET", "channels", "management", lists.of_clients("channels", "channel")),
    Route("GET", "vhosts/{vhost}/channels", "management", lists.of_clients("channels", "channel")),
    Route("GET", "channels/{name}", "management", lists.channel),
    Route("GET", "consumers", "management", lists.consumers),
    Route("GET", "consumers/{vhost}", "management", lists.consumers),
    # Queues
    Route("GET", "queues", "management", lists.of_vhosts("queues", "queue")),
    Route("GET", "queues/{vhost}", "management", lists.of_vhosts("queues", "queue")),
    Route("GET", "queues/{vhost}/{name}", "management", lists.queue),
    Route("PUT", "queues/{vhost}/{name}", "management", changes.put_queue),
    Route("DELETE", "queues/{vhost}/{name}", "management", changes.delete("queues", "delete-queue")),
    Route("DELETE", "queues/{vhost}/{name}/contents", "management", changes.purge),
    Route("GET", "queues/{vhost}/{name}/bindings", "management", lists.bindings_of_queue),
    Route("POST", "queues/{vhost}/{name}/actions", "administrator", changes.act_on_queue),
    Route("POST", "queues/{vhost}/{name}/get", "management", messages.get),
    # Exchanges
    Route("GET", "exchanges", "management", lists.of_vhosts("exchanges", "exchange")),
    Route("GET", "exchanges/{vhost}", "management", lists.of_vhosts("exchanges", "exchange")),
    Route("GET", "exchanges/{vhost}/{name}", "management", lists.exchange),
    Route("PUT", "exchanges/{vhost}/{name}", "management", changes.put_exchange),
    Route("DELETE", "exchanges/{vhost}/{name}", "management", changes.delete("exchanges", "delete-exchange")),
    Route(
        "GET", "exchanges/{vhost}/{name}/bindings/source", "management", lists.bindings_of_exchange("source")
    ),
    Route(
        "GET",
        "exchanges/{vhost}/{name}/bindings/destination",
        "management",
        lists.bindings_of_exchange("destination"),
    ),
    Route("POST", "exchanges/{vhost}/{name}/publish", "management", messages.publish),
    # Bindings
    Route("GET", "bindings", "management", lists.of_vhosts("bindings", "binding")),
    Route("GET", "bindings/{vhost}", "management", lists.of_vhosts("bindings", "binding")),
    Route("GET", "bindings/{vhost}/e/{source}/{kind}/{destination}", "management", lists.bindings_between),
    Route("POST", "bindings/{vhost}/e/{source}/{kind}/{destination}", "management", changes.post_binding),
    Route("GET", _ONE_BINDING, "management", lists.binding),
    Route("DELETE", _ONE_BINDING, "management", changes.delete_binding),
    # Virtual hosts
    Route("GET", "vhosts", "management", overview.vhosts),
    Route("GET", "vhosts/{vhost}", "administrator", overview.vhost),
    Route("PUT", "vhosts/{vhost}", "administrator", changes.put_vhost, needs_vhost=False),
    Route("DELETE", "vhosts/{vhost}", "administrator", changes.delete_vhost),
    Route("POST", "vhosts/{vhost}/start/{node}", "administrator", changes.start_vhost),
    Route("GET", "vhosts/{vhost}/permissions", "administrator", lists.permissions),
    Route("GET", "vhosts/{vhost}/topic-permissions", "administrator", lists.topic_permissions),
    Route("GET", "vhost-limits", "management", overview.nothing),
    Route("GET", "vhost-limits/{vhost}", "management", overview.nothing),
    Route("PUT", "vhost-limits/{vhost}/{name}", "administrator", parameters.put_vhost_limit),
    Route("DELETE", "vhost-limits/{vhost}/{name}", "administrator", parameters.delete_vhost_limit),
    # Users
    Route("GET", "users", "administrator", lists.users),
    Route("GET", "users/without-permissions", "administrator", lists.users_without_permissions),
    Route("POST", "users/bulk-delete", "administrator", changes.delete_users),
    Route("GET", "users/{user}", "administrator", lists.user),
    Route("PUT", "users/{user}", "administrator", changes.put_user),
    Route("DELETE", "users/{user}", "administrator", changes.forget("users", name="user")),
    Route("GET", "users/{user}/permissions", "administrator", lists.permissions),
    Route("GET", "users/{user}/topic-permissions", "administrator", lists.topic_permissions),
    Route("GET", "user-limits", "administrator", parameters.user_limits),
    Route("GET", "user-limits/{user}", "administrator", parameters.user_limits),
    Route("PUT", "user-limits/{user}/{name}", "administrator", parameters.put_user_limit),
    Route("DELETE", "user-limits/{user}/{name}", "administrator", parameters.delete_user_limit),
    Route("GET", "permissions", "administrator", lists.permissions),
    Route("GET", "permissions/{vhost}/{user}", "administrator", lists.permission),
    Route("PUT", "permissions/{vhost}/{user}", "administrator", changes.put_permission, needs_vhost=False),
    Route(
        "DELETE",
        "permissions/{vhost}/{user}",
        "administrator",
        changes.forget("permissions", user="user", vhost="vhost"),
    ),
    Route("GET", "topic-permissions", "administrator", lists.topic_permissions),
    Route("GET", "topic-permissions/{vhost}/{user}", "administrator", lists.topic_permissions_of_one),
    Route(
        "PUT",
        "topic-permissions/{vhost}/{user}",
        "administrator",
        changes.put_topic_permission,
        needs_vhost=False,
    ),
    Route(
        "DELETE",
        "topic-permissions/{vhost}/{user}",
        "administrator",
        changes.forget("topic_permissions", user="user", vhost="vhost"),
    ),
    # Policies and parameters
    Route("GET", "policies", "management", lists.policies),
    Route("GET", "policies/{vhost}", "management", lists.policies),
    Route("GET", "policies/{vhost}/{name}", "management", lists.policy),
    Route("PUT", "policies/{vhost}/{name}", "policymaker", changes.put_policy),
    Route(
        "DELETE",
        "policies/{vhost}/{name}",
        "policymaker",
        changes.forget("policies", vhost="vhost", name="name"),
    ),
    Route("GET", "operator-policies", "management", overview.nothing),
    Route("GET", "operator-policies/{vhost}", "management", overview.nothing),
    Route("GET", "operator-policies/{vhost}/{name}", "management", parameters.no_parameter),
    Route("PUT", "operator-policies/{vhost}/{name}", "administrator", parameters.put_operator_policy),
    Route("DELETE", "operator-policies/{vhost}/{name}", "administrator", parameters.no_parameter),
    Route("GET", "parameters", "policymaker", overview.nothing),
    Route("GET", "parameters/{component}", "policymaker", overview.nothing),
    Route("GET", "parameters/{component}/{vhost}", "policymaker", overview.nothing),
    Route("GET", "parameters/{component}/{vhost}/{name}", "policymaker", parameters.no_parameter),
    Route("PUT", "parameters/{component}/{vhost}/{name}", "policymaker", parameters.put_parameter),
    Route("DELETE", "parameters/{component}/{vhost}/{name}", "policymaker", parameters.no_parameter),
    Route("GET", "global-parameters", "policymaker", parameters.global_parameters),
    Route("GET", "global-parameters/{name}", "policymaker", parameters.global_parameter),
    Route("PUT", "global-parameters/{name}", "policymaker", parameters.put_global_parameter),
    Route(
        "DELETE", "global-parameters/{name}", "policymaker", changes.forget("global_parameters", name="name")
    ),
    Route("GET", "feature-flags", "administrator", overview.nothing),
)


class Found(NamedTuple):
    """The routes of one path, by method, each with the names that the path has."""

    routes: Mapping[str, tuple[Route, Mapping[str, str]]]


def find(parts: tuple[str, ...]) -> Found:
    """Return the routes of a path, which is given in its parts below ``/api/``."""
    found: dict[str, tuple[Route, Mapping[str, str]]] = {}
    for route, pattern in _BY_LENGTH.get(len(parts), ()):
        names: dict[str, str] = {}
        for wanted, part in zip(pattern, parts, strict=True):
            if wanted.startswith("{"):
                names[wanted[1:-1]] = part
            elif wanted != part:
                break
        else:
            # The first one: words of a path are before names in the table.
            found.setdefault(route.method, (route, names))
    return Found(found)


_BY_LENGTH: dict[int, list[tuple[Route, tuple[str, ...]]]] = {}
for _route in ROUTES:
    _parts = tuple(_route.pattern.split("/"))
    _BY_LENGTH.setdefault(len(_parts), []).append((_route, _parts))
