"""Requests to the management API of RabbitMQ, in an order in which each has something to find."""

from __future__ import annotations

import http.client
import json
from base64 import b64encode
from typing import Any, NamedTuple

TIMEOUT = 60.0
GUEST = "guest:guest"


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    body: Any = None
    login: str = GUEST


class Answered(NamedTuple):
    """Its answer; ``content`` is None without a body."""

    status: int
    content: Any
    headers: dict[str, str]


def ask(port: int, asked: Asked) -> Answered:
    headers = {
        "content-type": "application/json",
        "authorization": "Basic " + b64encode(asked.login.encode()).decode(),
    }
    body = asked.body if isinstance(asked.body, bytes | None) else json.dumps(asked.body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        connection.request(asked.method, f"/api/{asked.path}", body, headers)
        answer = connection.getresponse()
        text = answer.read()
        content = json.loads(text) if text else None
        return Answered(answer.status, content, {k.lower(): v for k, v in answer.getheaders()})
    finally:
        connection.close()


def _users(user: str) -> list[Asked]:
    seen = (
        "whoami overview nodes vhosts users connections channels consumers queues queues/%2F queues/v2 "
        "queues/nope exchanges/%2F exchanges/v2 policies policies/v2 policies/%2F parameters definitions "
        "definitions/%2F permissions health/checks/alarms aliveness-test/%2F cluster-name queues/%2F/q1 "
        "vhosts/v2 users/man/permissions bindings bindings/%2F"
    )
    return [
        *(Asked("GET", path, None, f"{user}:p") for path in seen.split()),
        Asked("PUT", f"queues/v2/b-{user}", {}, f"{user}:p"),
        Asked("PUT", f"queues/v2/a-{user}", {}, f"{user}:p"),
        Asked("PUT", "queues/%2F/a", {}, f"{user}:p"),
        Asked("DELETE", "queues/%2F/q1/contents", None, f"{user}:p"),
        Asked("PUT", f"policies/v2/{user}", {"pattern": "a", "definition": {"max-length": 1}}, f"{user}:p"),
        Asked("PUT", "users/other", {"password": "p", "tags": ""}, f"{user}:p"),
        Asked("POST", "exchanges/%2F/amq.default/publish", _message("q1"), f"{user}:p"),
        Asked("POST", "queues/%2F/q1/get", _GET, f"{user}:p"),
    ]


def _message(key: str, **more: Any) -> dict[str, Any]:
    return {"routing_key": key, "payload": "hello", "payload_encoding": "string", "properties": {}, **more}


_GET = {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}
_ANY = {"configure": ".*", "write": ".*", "read": ".*"}
_TOPIC = {"exchange": "amq.topic", "write": "^a", "read": ".*"}
_ONLY_A = {"configure": "^a", "write": "^a", "read": "^a"}

REQUESTS = [
    # Things to look at
    Asked("PUT", "queues/%2F/q1", {"durable": True}),
    Asked("PUT", "queues/%2F/q1", {"durable": True}),
    Asked("PUT", "queues/%2F/q1", {"durable": False}),
    Asked("PUT", "queues/%2F/q3", {"arguments": {"x-message-ttl": "a"}}),
    Asked("PUT", "queues/%2F/q3", {"durable": "x"}),
    Asked("PUT", "queues/%2F/q3", b"{nonsense"),
    Asked("PUT", "queues/%2F/q3", []),
    Asked("PUT", "queues/%2F/q3"),
    Asked("PUT", "queues/%2F/with%2Fslash%20%3C", {"auto_delete": "false", "durable": "true"}),
    Asked("GET", "queues/%2F/with%2Fslash%20%3C"),
    Asked("PUT", "queues/nope/q3", {}),
    Asked("PUT", "queues/%2F/amq.foo", {}),
    Asked("PUT", "exchanges/%2F/x1", {"type": "topic", "durable": True}),
    Asked("PUT", "exchanges/%2F/x1", {"type": "topic", "durable": True}),
    Asked("PUT", "exchanges/%2F/x1", {"type": "fanout", "durable": True}),
    Asked("PUT", "exchanges/%2F/x2", {"type": "nonsense"}),
    Asked("PUT", "exchanges/%2F/x2", {}),
    Asked("POST", "bindings/%2F/e/x1/q/q1", {"routing_key": "a.b", "arguments": {"k": 1}}),
    Asked("POST", "bindings/%2F/e/x1/q/q1", {"routing_key": "new"}),
    Asked("POST", "bindings/%2F/e/x1/q/q1", {}),
    Asked("POST", "bindings/%2F/e/nope/q/q1", {}),
    Asked("POST", "bindings/%2F/e/x1/q/nope", {}),
    Asked("POST", "bindings/%2F/e/x1/e/amq.fanout", {"routing_key": "a~b/c d"}),
    # Users
    Asked("PUT", "vhosts/v2"),
    Asked("PUT", "vhosts/v2"),
    Asked("PUT", "permissions/v2/guest", _ANY),
    Asked("PUT", "users/mon", {"password": "p", "tags": "monitoring"}),
    Asked("PUT", "users/man", {"password": "p", "tags": "management"}),
    Asked("PUT", "users/man", {"password": "p", "tags": "management"}),
    Asked("PUT", "users/pol", {"password": "p", "tags": ["policymaker"]}),
    Asked("PUT", "users/adm", {"password": "p", "tags": "administrator"}),
    Asked("PUT", "users/nobody", {"password": "p", "tags": ""}),
    Asked("PUT", "users/bad", {"password": "x"}),
    Asked("PUT", "permissions/v2/man", _ONLY_A),
    Asked("PUT", "permissions/v2/man", _ONLY_A),
    Asked("PUT", "permissions/v2/pol", _ANY),
    Asked("PUT", "permissions/v2/man", {"configure": "^a"}),
    Asked("PUT", "permissions/none/man", _ANY),
    Asked("PUT", "permissions/v2/none", _ANY),
    Asked("GET", "topic-permissions/v2/man"),
    Asked("PUT", "topic-permissions/v2/man", _TOPIC),
    Asked("PUT", "topic-permissions/v2/man", _TOPIC),
    Asked("PUT", "topic-permissions/v2/man", {**_TOPIC, "exchange": "x1"}),
    Asked("PUT", "topic-permissions/v2/man", {"write": "a", "read": "b"}),
    Asked("PUT", "topic-permissions/none/man", _TOPIC),
    Asked("PUT", "topic-permissions/v2/none", _TOPIC),
    Asked("GET", "topic-permissions/v2/man"),
    Asked("GET", "topic-permissions/none/man"),
    Asked("GET", "topic-permissions/v2/none"),
    Asked("GET", "topic-permissions"),
    Asked("GET", "users/man/topic-permissions"),
    Asked("GET", "vhosts/v2/topic-permissions"),
    Asked("GET", "topic-permissions", None, "man:p"),
    Asked("DELETE", "topic-permissions/v2/pol"),
    Asked("DELETE", "topic-permissions/v2/man"),
    Asked("DELETE", "topic-permissions/v2/man"),
    Asked("GET", "vhosts/v2/topic-permissions"),
    Asked("PUT", "topic-permissions/v2/pol", _TOPIC),
    *(asked for user in ("mon", "man", "pol", "adm", "nobody", "wrong") for asked in _users(user)),
    # What there is
    *(
        Asked("GET", path)
        for path in [
            "overview",
            "nodes",
            "vhosts",
            "vhosts/%2F",
            "users",
            "users/guest",
            "users/guest/permissions",
            "permissions",
            "permissions/%2F/guest",
            "permissions/%2F/nope",
            "vhosts/%2F/permissions",
            "exchanges",
            "exchanges/%2F/x1",
            "exchanges/%2F/x1/bindings/source",
            "exchanges/%2F/amq.fanout/bindings/destination",
            "queues",
            "queues/%2F/q1",
            "queues/%2F/q1/bindings",
            "bindings",
            "bindings/%2F",
            "bindings/%2F/e/x1/q/q1",
            "bindings/%2F/e/x1/q/q1/~",
            "bindings/%2F/e/x1/q/q1/new",
            "bindings/%2F/e/x1/e/amq.fanout",
            "connections",
            "channels",
            "consumers",
            "consumers/%2F",
            "definitions",
            "definitions/%2F",
            "policies",
            "parameters",
            "topic-permissions",
            "vhost-limits",
            "user-limits",
            "operator-policies",
            "aliveness-test/%2F",
            "health/checks/alarms",
            "health/checks/local-alarms",
            "health/checks/port-listener/1",
            "health/checks/protocol-listener/amqp091",
            "health/checks/protocol-listener/mqtt",
            "health/checks/protocol-listener/AMQP091",
            "health/checks/protocol-listener/amqp1.0",
            "health/checks/protocol-listener/amqps",
            "health/checks/protocol-listener/mqtts",
            "health/checks/protocol-listener/web-stomp",
            "health/checks/protocol-listener/https",
            "health/checks/port-listener/x",
            "health/checks/port-listener/-1",
            "health/checks/certificate-expiration/1/days",
            "health/checks/certificate-expiration/2/Weeks",
            "health/checks/certificate-expiration/-1/months",
            "health/checks/certificate-expiration/1/day",
            "health/checks/certificate-expiration/x/days",
            "health/checks/certificate-expiration/1",
            "healthchecks/node",
            "healthchecks/node/nope",
            "auth",
            "all-configuration",
            "operator-policies/%2F",
            "operator-policies/%2F/nope",
            "operator-policies/nope",
            "vhost-limits/%2F",
            "vhost-limits/nope",
            "parameters/nope",
            "parameters/policy",
            "parameters/shovel/nope",
            "health/checks/virtual-hosts",
            "health/checks/node-is-mirror-sync-critical",
            "health/checks/node-is-quorum-critical",
            "cluster-name",
            "nope",
            "queues/%2F/nope",
            "queues/nope",
            "exchanges/%2F/nope",
            "users/nope",
            "vhosts/nope",
            "connections/nope",
            "channels/nope",
            "bindings/%2F/e/x1/q/q1/zzz",
            "users/without-permissions",
            "vhosts/%2F/connections",
            "vhosts/%2F/channels",
        ]
    ),
    # Lists
    *(
        Asked("GET", f"queues/%2F?{query}")
        for query in (
            "columns=name,messages,arguments&sort=name",
            "columns=name&sort=name&sort_reverse=true",
            "page=1&page_size=1&columns=name",
            "page=2&page_size=1&columns=name",
            "page=1&name=q&use_regex=false&columns=name",
            "page=1&name=%5EQ1%24&use_regex=true&columns=name",
            "page=9&page_size=1",
            "page=0",
            "page=x",
            "page=1&page_size=1000",
            "page=1&page_size=100&name=%5B&use_regex=true",
            "sort=nonsense&columns=nonsense",
        )
    ),
    # Messages
    Asked("POST", "exchanges/%2F/amq.default/publish", _message("q1", properties={"delivery_mode": 2})),
    Asked("POST", "exchanges/%2F/amq.default/publish", _message("q1", properties={"headers": {"a": 1}})),
    Asked("POST", "exchanges/%2F/x1/publish", _message("new", payload="/w==", payload_encoding="base64")),
    Asked("POST", "exchanges/%2F/amq.default/publish", _message("nope")),
    Asked("POST", "exchanges/%2F/nope/publish", _message("nope")),
    Asked("POST", "exchanges/%2F/amq.default/publish", _message("q1", payload_encoding="nope")),
    Asked("POST", "exchanges/%2F/amq.default/publish", _message("q1", properties={"priority": "x"})),
    Asked(
        "POST", "exchanges/%2F/amq.default/publish", {"routing_key": "q1", "payload": "x", "properties": {}}
    ),
    Asked("POST", "queues/%2F/q1/get", {**_GET, "count": 2}),
    Asked("POST", "queues/%2F/q1/get", {**_GET, "truncate": 2, "encoding": "base64"}),
    Asked("POST", "queues/%2F/q1/get", {**_GET, "ackmode": "ack_requeue_false", "count": 1}),
    Asked("POST", "queues/%2F/q1/get", {**_GET, "ackmode": "reject_requeue_false", "count": 1}),
    Asked("POST", "queues/%2F/q1/get", {"count": 5}),
    Asked("POST", "queues/%2F/nope/get", _GET),
    Asked("DELETE", "queues/%2F/q1/contents"),
    Asked("DELETE", "queues/%2F/nope/contents"),
    Asked("POST", "queues/%2F/q1/get", _GET),
    # Policies
    Asked("PUT", "policies/v2/p", {"pattern": "a", "definition": {"max-length": 1}, "priority": 3}),
    Asked("PUT", "policies/v2/p", {"pattern": "a", "definition": {"max-length": 1}, "apply-to": "queues"}),
    Asked("GET", "policies/v2/p"),
    Asked("PUT", "policies/v2/p", {"pattern": "a", "definition": {}}),
    Asked("PUT", "policies/v2/p", {"definition": {"max-length": 1}}),
    Asked("GET", "policies/v2"),
    Asked("DELETE", "policies/v2/p"),
    Asked("DELETE", "policies/v2/p"),
    # Parameters
    Asked("PUT", "global-parameters/mine", {"value": {"x": 1}}),
    Asked("PUT", "global-parameters/mine", {"value": 5}),
    Asked("PUT", "global-parameters/mine", {}),
    Asked("GET", "global-parameters?columns=name"),
    Asked("GET", "global-parameters/mine"),
    Asked("GET", "global-parameters/mine", None, "man:p"),
    Asked("GET", "global-parameters/nope"),
    Asked("DELETE", "global-parameters/mine", None, "man:p"),
    Asked("DELETE", "global-parameters/mine"),
    Asked("DELETE", "global-parameters/mine"),
    Asked("GET", "cluster-name"),
    Asked("PUT", "cluster-name", {}),
    Asked("PUT", "cluster-name", {"name": "a name"}, "pol:p"),
    Asked("PUT", "cluster-name", {"name": "a name"}),
    Asked("GET", "cluster-name"),
    Asked("GET", "overview?columns=cluster_name,contexts"),
    Asked("GET", "parameters/shovel"),
    Asked("GET", "parameters/shovel/%2F"),
    Asked("GET", "parameters/shovel/%2F/nope"),
    Asked("PUT", "parameters/sort/%2F/nope", {"value": {"src-uri": "amqp://"}}),
    Asked("PUT", "parameters/policy/%2F/nope", {"value": {"pattern": "a", "definition": {}}}),
    Asked("PUT", "parameters/shovel/%2F/nope", {}),
    Asked("PUT", "parameters/shovel/none/nope", {"value": {}}),
    Asked("DELETE", "parameters/shovel/%2F/nope"),
    Asked("PUT", "operator-policies/%2F/op", {}),
    Asked("DELETE", "operator-policies/%2F/op"),
    Asked("PUT", "vhost-limits/none/max-queues", {"value": 1}),
    Asked("PUT", "vhost-limits/%2F/max-queues", {}),
    Asked("DELETE", "vhost-limits/%2F/max-queues"),
    Asked("POST", "rebalance/queues", {}),
    Asked("POST", "rebalance/queues", {}, "mon:p"),
    Asked("POST", "vhosts/%2F/start/nope", {}),
    Asked("POST", "vhosts/%2F/start/nope", {}, "mon:p"),
    Asked("POST", "queues/%2F/q1/actions", {"action": "sync"}),
    Asked("POST", "queues/%2F/q1/actions", {"action": "nope"}),
    Asked("POST", "queues/%2F/q1/actions", {}),
    Asked("DELETE", "connections/username/nobody"),
    Asked("PUT", "user-limits/man/max-connections", {"value": 100}),
    Asked("PUT", "user-limits/man/max-connections", {}),
    Asked("GET", "user-limits"),
    Asked("GET", "user-limits/man"),
    Asked("DELETE", "user-limits/man/max-connections"),
    Asked("GET", "user-limits/man"),
    Asked("GET", "connections/username/guest"),
    # Definitions
    Asked(
        "POST",
        "definitions",
        {"queues": [{"name": "dq", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}]},
    ),
    Asked(
        "POST",
        "definitions/v2",
        {"queues": [{"name": "dq", "durable": True, "auto_delete": False, "arguments": {}}]},
    ),
    Asked("GET", "queues/v2/dq?columns=name,durable"),
    Asked("POST", "definitions", b"{x"),
    # The end of all
    Asked("POST", "queues/%2F/q1", {}),
    Asked("PUT", "overview", {}),
    Asked("OPTIONS", "overview"),
    Asked("POST", "bindings/%2F/e/x1/q/q1", {"routing_key": "a.#"}),
    Asked("GET", "bindings/%2F/e/x1/q/q1/a.%23?columns=routing_key,properties_key"),
    Asked("GET", "bindings/%2F/e/x1/q/q1/a.%2523?columns=routing_key,properties_key"),
    Asked("DELETE", "bindings/%2F/e/x1/q/q1/a.%23"),
    Asked("DELETE", "bindings/%2F/e/x1/q/q1/new"),
    Asked("DELETE", "bindings/%2F/e/x1/q/q1/new"),
    Asked("DELETE", "exchanges/%2F/amq.direct"),
    Asked("DELETE", "exchanges/%2F/nope"),
    Asked("DELETE", "exchanges/%2F/x1?if-unused=true"),
    Asked("DELETE", "exchanges/%2F/x1"),
    Asked("DELETE", "queues/%2F/nope"),
    Asked("DELETE", "queues/%2F/q1?if-empty=true&if-unused=true"),
    Asked("DELETE", "permissions/v2/man"),
    Asked("DELETE", "users/nope"),
    Asked("DELETE", "users/nobody"),
    Asked("POST", "users/bulk-delete", {"users": ["pol"]}),
    Asked("GET", "users/pol"),
    Asked("DELETE", "vhosts/v2"),
    Asked("DELETE", "vhosts/v2"),
    Asked("DELETE", "connections/nope"),
]


def differences(ours: Answered, theirs: Answered) -> list[str]:
    """Return in what the answers differ: status, errors, names and types of fields, and the rows of lists.

    Fields that only RabbitMQ has are no difference, and figures may be others.
    """
    found = []
    if ours.status != theirs.status:
        found.append(f"status {ours.status}, not {theirs.status}: {ours.content} {theirs.content}")
    elif theirs.status >= 400 and ours.content != theirs.content:
        # Ports and protocols of the two are not the same.
        alike = [
            {key: value for key, value in (each or {}).items() if key not in ("ports", "protocols")}
            for each in (ours.content, theirs.content)
        ]
        if alike[0] != alike[1]:
            found.append(f"{alike[0]}, not {alike[1]}")
    elif theirs.status < 400:
        found += _differ(ours.content, theirs.content, "")
    for header in ("location", "allow"):
        mine, other = (sorted(_without_digest(answer.headers.get(header, ""))) for answer in (ours, theirs))
        if mine != other:
            found.append(f"{header}: {mine}, not {other}")
    return found


def _differ(ours: Any, theirs: Any, where: str) -> list[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        # Names that a user has chosen, or the node has.  Which policy applies, RabbitMQ knows some time later.
        if where.endswith((".arguments", ".cluster_state", ".effective_policy_definition")):
            return []
        found = [f"{where}.{key} is of our own" for key in ours if key not in theirs and key not in _LATER]
        for key in ours.keys() & theirs.keys():
            found += _differ(ours[key], theirs[key], f"{where}.{key}")
        return found
    if isinstance(ours, list) and isinstance(theirs, list):
        if not ours or not theirs:
            return []
        return _differ(ours[0], theirs[0], f"{where}[0]")
    # What Erlang says of a socket.
    return (
        []
        if _kind(ours) == _kind(theirs) or where.endswith((".socket_opts", ".policy"))
        else [f"{where}: {ours!r}, not {theirs!r}"]
    )


_LATER = {
    *("consumers", "effective_policy_definition", "message_bytes_paged_out", "message_bytes_ready", "state"),
    *("operator_policy", "policy", "message_stats", "node", "publish", "deliver_get", "drop_unroutable"),
    *("messages", "messages_ready", "messages_unacknowledged"),
}
_LATER |= {f"{name}_details" for name in _LATER}
"""Fields that RabbitMQ has some seconds after it has made what they are of: its figures are gathered every five."""


def _without_digest(header: str) -> list[str]:
    """Return the methods of ``allow``, or a ``location`` without the digest of arguments, which is opaque."""
    return [
        part.partition("~")[0] if "~" in part[1:] else part for part in header.replace(" ", "").split(",")
    ]


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "flag"
    return "number" if isinstance(value, int | float) else type(value).__name__
