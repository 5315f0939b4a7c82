"""Health checks: 200 if all is well, and 503 with the reason if it is not."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from kernel.hosting.certificate_dates import ends_of
from plugins.engines.web.answer import Answer, json_answer
from plugins.engines.web.management.call import Call, Step, Steps, bad_request, not_found, shown
from plugins.engines.web.management.listeners import AMQP, AMQP_TLS, listeners
from plugins.engines.web.management.shapes import Row

_PROTOCOLS = {
    **dict.fromkeys(("amqp091", "amqp0.9.1", "amqp10", "amqp1.0"), AMQP),
    **dict.fromkeys(("amqps", "amqp+ssl", "amqp+tls"), AMQP_TLS),
    **dict.fromkeys(("mqtts", "mqtt+ssl", "mqtt+tls"), "mqtt/ssl"),
    **dict.fromkeys(("stomps", "stomp+ssl", "stomp+tls"), "stomp/ssl"),
    **dict.fromkeys(("web-mqtt", "web_mqtt"), "http/web-mqtt"),
    **dict.fromkeys(("web-stomp", "web_stomp"), "http/web-stomp"),
}
"""Names of protocols that tools use, besides those that listeners have."""
_DAY = 86_400
_UNITS = {"days": _DAY, "weeks": 7 * _DAY, "months": 365 / 12 * _DAY, "years": 365 * _DAY}


def well(call: Call) -> Steps:
    """Answer that it is well: the broker has answered, and there is nothing else to check."""
    yield from call.ask("status", None)
    return shown({"status": "ok"})


def node(call: Call) -> Steps:
    """Answer whether an alarm is raised at the node that the path names."""
    if call.names["name"] != call.node:
        yield from ()
        raise not_found()
    return (yield from alarms(call))


def critical(call: Call) -> Steps:
    """Answer that no queue is lost with this node but those that are on it alone."""
    yield from call.ask("status", None)
    return shown({"status": "ok", "reason": "single node cluster"})


def alarms(call: Call) -> Steps:
    """Answer whether an alarm is raised."""
    status = yield from call.ask("status", None)
    raised = [
        {"node": call.node, "resource": name} for name, is_raised in status["alarms"].items() if is_raised
    ]
    if not raised:
        return shown({"status": "ok"})
    return _failed("Resource alarm(s) in effect", alarms=raised)


def port_listener(call: Call) -> Steps:
    """Answer whether something listens on a port."""
    try:
        wanted = int(call.names["port"])
    except ValueError:
        raise bad_request("Invalid port") from None
    ports = [row["port"] for row in (yield from _listeners(call))]
    if wanted in ports:
        return shown({"status": "ok", "port": wanted})
    return _failed("No active listener", missing=wanted, ports=ports)


def protocol_listener(call: Call) -> Steps:
    """Answer whether something listens for a protocol."""
    protocols = [row["protocol"] for row in (yield from _listeners(call))]
    given = call.names["protocol"].lower()
    wanted = _PROTOCOLS.get(given, given)
    if wanted in protocols:
        return shown({"status": "ok", "protocol": wanted})
    return _failed("No active listener", missing=wanted, protocols=protocols)


def certificate_expiration(call: Call) -> Steps:
    """Answer whether a certificate of a listener expires within some time."""
    seconds = _UNITS.get(call.names["unit"].lower())
    if seconds is None:
        raise bad_request("Time unit not recognised. Supported units: days, weeks, months, years.")
    try:
        within = int(call.names["within"]) * seconds
    except ValueError:
        raise bad_request("Invalid expiration value.") from None
    expired = []
    for row in (yield from _listeners(call)):
        try:
            files = [(name, row[name], _expiring(row[name], within)) for name in ("cacertfile", "certfile")]
        except (OSError, ValueError) as error:
            return _failed(f"a certificate cannot be read: {error}")
        if any(ends for _, _, ends in files):
            found: Row = {"node": call.node, "protocol": row["protocol"], "interface": row["ip_address"]}
            found["port"] = row["port"]
            for name, path, ends in files:
                found |= {name: path, f"{name}_expires_on": ends}
            expired.append(found)
    return _failed("Certificates expiring", expired=expired) if expired else shown({"status": "ok"})


def _expiring(path: str | None, within: float) -> list[str]:
    """Return when those certificates of a file expire that do so within so many seconds."""
    if path is None:
        return []
    last = time.time() + within
    return [end.strftime("%Y-%m-%d %H:%M:%S") for end in ends_of(path) if end.timestamp() < last]


def _listeners(call: Call) -> Generator[Step, Any, list[Row]]:
    status = yield from call.ask("status", None)
    return listeners(call, status)


def _failed(reason: str, **more: Any) -> Answer:
    return json_answer(503, {"status": "failed", "reason": reason, **more})
