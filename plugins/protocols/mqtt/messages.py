"""Messages: the envelope that a PUBLISH becomes, and the topic and properties that an envelope becomes.

The front end of the broker and the client engine use it.

Properties that several protocols know have the names of ``kernel.contracts.properties``.  What only MQTT has
is in properties with names that begin with ``mqtt_``: other protocols drop them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from math import ceil
from typing import Any

import msgspec

from kernel.contracts.message import Envelope
from kernel.contracts.properties import changed
from plugins.protocols.mqtt.properties import NO_PROPERTIES, Properties
from plugins.protocols.mqtt.topics import LONGEST_TOPIC, key_to_topic, topic_to_key

QOS = "mqtt_qos"
"""The QoS of a persistent message that was published with QoS 1.  Without it, a persistent message has QoS
2, so that the subscriber chooses."""
RETAIN = "mqtt_retain"
"""Whether it was published as a retained message, for subscriptions with *retain as published*."""
RETAINED = "mqtt_retained"
"""The filter of the subscription for which it is sent because it was retained.  Others do not count then, in
how it is sent (MQTT 5.0, 3.3.4).  True, in what older versions have stored: that is not known."""
PUBLISHER = "mqtt_publisher"
"""The client identifier of the publisher.  It is there only if that client has a subscription that does not
want its own messages, or may have one by the time that a retained message is sent."""
_FORMAT = "mqtt_payload_format"


def envelope_of(
    exchange: str, topic: str, properties: Properties, qos: int, *, retain: bool, publisher: str = ""
) -> Envelope:
    """Return the envelope under which a PUBLISH, or a will, goes on."""
    others: dict[str, Any] = {}
    # QoS 2 is not noted: a persistent message without the property has it, whatever protocol it comes from.
    if qos == 1:
        others[QOS] = 1
    if retain:
        others[RETAIN] = True
    if publisher:
        others[PUBLISHER] = publisher
    if properties is NO_PROPERTIES:
        return Envelope(key=topic_to_key(topic), exchange=exchange, persistent=qos > 0, properties=others)
    if properties.content_type is not None:
        others["content_type"] = properties.content_type
    if properties.correlation_data is not None:
        others["correlation_id"] = properties.correlation_data
    if properties.user_properties:
        others["user_properties"] = properties.user_properties
    if properties.payload_format_indicator is not None:
        others[_FORMAT] = properties.payload_format_indicator
    expiry, response = properties.message_expiry_interval, properties.response_topic
    return Envelope(
        key=topic_to_key(topic),
        exchange=exchange,
        reply_to="" if response is None else topic_to_key(response),
        persistent=qos > 0,
        expiration=None if expiry is None else expiry * 1000,
        properties=others,
    )


def qos_of(envelope: Envelope) -> int:
    """Return the QoS with which a message was published, or would have been by another protocol."""
    if not envelope.persistent:
        return 0
    return 1 if envelope.properties.get(QOS) == 1 else 2


def retained_copy(envelope: Envelope, topic_filter: str, seconds_left: float | None) -> Envelope:
    """Return the envelope under which a retained message goes to a new subscription with this filter."""
    return msgspec.structs.replace(
        envelope,
        properties=changed(envelope.properties, {RETAINED: topic_filter}),
        expiration=None if seconds_left is None else max(0, int(seconds_left * 1000)),
    )


def unsayable(envelope: Envelope) -> str:
    """Return why MQTT cannot carry messages under this envelope; empty: it can."""
    key = envelope.key
    if not key:
        return "an empty key is no topic (MQTT 5.0, 4.7.3)"
    # In a topic, ``+`` and ``#`` are not allowed at all; in a key they are ``*`` and ``#``.
    if "*" in key or "#" in key:
        return "a topic has no wildcards (MQTT 5.0, 3.3.2.1)"
    return _not_text(key, "topic")


def _not_text(text: str, what: str) -> str:
    """Return why a text is no UTF-8 string of MQTT (MQTT 5.0, 1.5.4)."""
    if "\0" in text:
        return f"a {what} has no U+0000 (MQTT 5.0, 1.5.4)"
    # ``len`` of the text first: it is quick, and a text of ASCII has as many octets.
    if text.isascii():
        return f"the {what} has more than 65,535 octets" if len(text) > LONGEST_TOPIC else ""
    try:
        octets = len(text.encode())
    except UnicodeEncodeError:
        return f"the {what} is not UTF-8"
    return f"the {what} has more than 65,535 octets" if octets > LONGEST_TOPIC else ""


def properties_of(
    envelope: Envelope, identifiers: tuple[int, ...] = (), seconds_left: float | None = None
) -> Properties:
    """Return the properties of the PUBLISH that a subscriber of version 5 gets.

    What other protocols allow and MQTT does not is left out.  ``seconds_left``: until the message expires;
    None: as it was published.
    """
    others = envelope.properties
    if not others and not envelope.reply_to and envelope.expiration is None:
        return Properties(subscription_identifiers=identifiers) if identifiers else NO_PROPERTIES
    expiry = envelope.expiration
    if seconds_left is not None:
        # Rounded up: 0 would say that it has expired.
        interval: int | None = max(1, ceil(seconds_left))
    else:
        interval = None if expiry is None else max(1, ceil(expiry / 1000))
    content_type, correlation = others.get("content_type"), others.get("correlation_id")
    # Other protocols have text there. surrogateescape: octets that were no text come back as they were.
    if isinstance(correlation, str):
        correlation = correlation.encode("utf-8", "surrogateescape")
    response = key_to_topic(envelope.reply_to) if envelope.reply_to else None
    # No wildcards [MQTT-3.3.2-14], which keys of other protocols may have. The message goes on without the
    # property.
    if response is not None and ("+" in response or "#" in response or _not_text(response, "topic")):
        response = None
    return Properties(
        payload_format_indicator=others.get(_FORMAT),
        message_expiry_interval=None if interval is None else min(interval, 0xFFFF_FFFF),
        content_type=content_type if isinstance(content_type, str) and _fits(content_type) else None,
        response_topic=response,
        correlation_data=correlation
        if isinstance(correlation, bytes) and len(correlation) <= LONGEST_TOPIC
        else None,
        subscription_identifiers=identifiers,
        user_properties=_user_properties(others),
    )


def _user_properties(others: Any) -> tuple[tuple[str, str], ...]:
    """Return the user properties, and what other protocols call headers, as pairs of text."""
    pairs, headers = others.get("user_properties"), others.get("headers")
    if not pairs and not headers:
        return ()
    # Routes and applications may have put anything there.
    found = list(pairs) if isinstance(pairs, list | tuple) else []
    if isinstance(headers, Mapping):
        found += headers.items()
    texts = [
        (pair[0], _text_of(pair[1])) for pair in found if isinstance(pair, list | tuple) and len(pair) == 2
    ]
    return tuple(
        [
            (name, text)
            for name, text in texts
            if isinstance(name, str) and text is not None and _fits(name) and _fits(text)
        ]
    )


def _text_of(value: Any) -> str | None:
    """Return the text of a header's value; None for tables, lists and octets, which have none."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return value.isoformat() if isinstance(value, datetime) else None


def _fits(text: str) -> bool:
    return not _not_text(text, "text")
