"""Trace: the headers that say where a message, or a binding, has been.

They have RabbitMQ's format, so that brokers of both kinds can be federated with each other.

``x-received-from`` (messages): a table for each link that was passed, the last first.  ``x-bound-from``
(bindings): a table for each broker that has passed the binding on to its upstream, the last first, with the
hops that are left.

Two rules keep messages from circulating, with any topology of links: a message does not come to a virtual
host that is in its trace, and not over more than ``max_hops`` links.  Bindings are passed on by the same
rules.  That only saves traffic: most messages that would be stopped are not sent in the first place.

Clients may write these headers.  So every value is checked for its type, and wrong ones are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from plugins.engines.broker.topology_observers import BindingState

RECEIVED_FROM = "x-received-from"
BOUND_FROM = "x-bound-from"


class Place(msgspec.Struct, frozen=True):
    """A virtual host of a broker, as traces name it."""

    cluster: str
    vhost: str


def steps_of(table: Mapping[str, Any], header: str) -> list[dict[str, Any]]:
    """Return the steps of a trace; none if the header is malformed."""
    steps = table.get(header)
    return [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []


def has_been(place: Place, steps: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a trace has passed this virtual host."""
    return any(
        step.get("cluster-name") == place.cluster and step.get("vhost") == place.vhost for step in steps
    )


def may_come(headers: Mapping[str, Any], here: Place, max_hops: int) -> bool:
    """Whether a message may pass the link: it has not been here before, and has not passed too many links."""
    # The steps are those before this link, so at most ``max_hops - 1`` of them leave one for it.
    steps = steps_of(headers, RECEIVED_FROM)
    return len(steps) < max_hops and not has_been(here, steps)


def wanted_upstream(
    bindings: Iterable[BindingState], here: Place, exchange: str, upstream: Place, max_hops: int
) -> frozenset[BindingState]:
    """Return the bindings to make upstream for those of an exchange here.

    Bindings that a downstream broker has made here are passed on with one hop less, as long as hops are
    left, and not to brokers where they come from.
    """
    wanted = set()
    for binding in bindings:
        steps = steps_of(binding.arguments, BOUND_FROM)
        # A binding of a client here may be followed over as many links as this link allows.  One that a
        # downstream broker has made goes on with one hop less than that one was given.
        hops = max_hops
        if steps:
            left = steps[0].get("hops")
            hops = (
                0 if has_been(upstream, steps) else min((left if isinstance(left, int) else 0) - 1, max_hops)
            )
        if hops <= 0:
            continue
        step = {
            "cluster-name": here.cluster,
            "vhost": here.vhost,
            # The name that RabbitMQ writes here.  It is for people only.
            "exchange": f"{here.vhost}:{exchange} A",
            "hops": hops,
        }
        wanted.add(BindingState(binding.key, {**binding.arguments, BOUND_FROM: [step, *steps]}))
    return frozenset(wanted)


def with_exchange_step(headers: Mapping[str, Any], step: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headers of a message after one more link to an exchange."""
    return {**headers, RECEIVED_FROM: [dict(step), *steps_of(headers, RECEIVED_FROM)]}


_SAME_QUEUE = ("uri", "virtual_host", "queue")
"""The fields of a step that say from which queue a message came."""


def with_queue_step(
    headers: Mapping[str, Any], step: Mapping[str, Any], exchange: str, key: str
) -> dict[str, Any]:
    """Return the headers of a message that was moved from a queue; they count how often it was there.

    Unlike between exchanges, nothing stops a message that comes to a queue again: it moves to where a
    consumer is free.  So there is one step for each queue, with a count, and the trace stays short.
    """
    steps = steps_of(headers, RECEIVED_FROM)
    moved = dict(headers)
    if not steps:
        moved |= {"x-original-exchange": exchange, "x-original-routing-key": key}
    # The upstream has delivered the message to the queues of these keys already.
    if "CC" in moved:
        moved["x-original-cc"] = moved.pop("CC")
    visits = 0
    others = []
    for each in steps:
        if all(each.get(name) == step.get(name) for name in _SAME_QUEUE):
            count = each.get("visit-count", 0)
            visits = count if isinstance(count, int) else 0
        else:
            others.append(each)
    moved[RECEIVED_FROM] = [{**step, "visit-count": visits + 1}, *others]
    return moved
