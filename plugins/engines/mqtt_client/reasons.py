"""Reasons: what a broker says when it refuses something, with what an operator can do about it."""

from __future__ import annotations

from plugins.engines.mqtt_client.options import MqttClientOptions
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.properties import Properties
from plugins.protocols.mqtt.reason_codes import REASONS_OF, ReasonCode

_ADVICE: dict[int, str] = {
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: "the broker does not speak this version: set version = {other}",
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: "set another client_id than {client_id!r}",
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: "check user {user!r} and password",
    ReasonCode.NOT_AUTHORIZED: "check user {user!r} and password, and what the broker allows this user",
    ReasonCode.BANNED: "the broker has banned this client: ask its administrator",
    ReasonCode.SESSION_TAKEN_OVER: "another client uses client_id {client_id!r}: set another one here",
    ReasonCode.PACKET_TOO_LARGE: "a packet is too large for the broker: raise its limit",
    ReasonCode.RETAIN_NOT_SUPPORTED: 'the broker keeps no retained messages: set retain = "never"',
    ReasonCode.QOS_NOT_SUPPORTED: "set a lower qos",
    ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: "use a filter without $share",
    ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: "use filters without + and #",
    ReasonCode.BAD_AUTHENTICATION_METHOD: "the broker wants another login than by user and password",
    ReasonCode.TOPIC_FILTER_INVALID: "use another filter",
}


def reason_text(
    kind: PacketType,
    code: int,
    properties: Properties,
    options: MqttClientOptions,
    client_id: str,
    *,
    advise: bool = True,
) -> str:
    """Return what a reason code says, with the broker's own text and, if wanted, what to do."""
    text = f"{code:#04x} {REASONS_OF[kind].get(code, 'unknown reason')}"
    if properties.reason_string:
        text += f" ({properties.reason_string[:200]})"
    advice = _ADVICE.get(code, "").format(
        client_id=client_id, user=options.user, other=4 if options.version == 5 else 5
    )
    if properties.server_reference:
        # Several servers may be there, separated by spaces (MQTT 5.0, 4.11).
        advice = f"the broker names another server: set address to {properties.server_reference[:200]!r}"
    return f"{text}; {advice}" if advice and advise else text
