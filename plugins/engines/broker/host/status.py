"""Status: what an engine that shows a broker wants to know of the whole (operation ``status``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plugins.engines.broker.host.listening import StreamFrontEnd

if TYPE_CHECKING:
    from plugins.engines.broker.host.engine import BrokerEngine

_TYPES = ("direct", "fanout", "headers", "topic")
"""Those that every broker has."""
CLUSTER_NAME = "cluster_name"
"""The global parameter with which an operator names the broker to tools."""


def status(engine: BrokerEngine) -> dict[str, Any]:
    """Return the names, listeners and alarms of a broker."""
    alarms, now = engine.alarm_watch.alarms, engine.host.now()
    if now >= alarms.next_check:  # no turn has read the figures lately
        engine.check_resources(now)
    listeners = [each for each in engine.front_ends if isinstance(each, StreamFrontEnd)]
    return {
        "cluster_name": engine.broker.global_parameters.get(CLUSTER_NAME, engine.options.cluster_name),
        "durable": engine.kept is not None,
        "exchange_types": [*_TYPES, *engine.broker.exchange_types],
        "listeners": [each.listener for each in listeners],
        "connections": len(engine.clients),
        "messages_out": engine.messages_out(),
        "alarms": dict.fromkeys(alarms.raised, True),
        "figures": alarms.statistics(),
        "uptime": int((now - engine.started_at) * 1000),
    }
