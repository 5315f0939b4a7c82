"""Properties of MQTT become properties of AMQP, and back."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.contracts.message import Envelope
from plugins.protocols.amqp091.content import ContentProperties, decode_properties, raw_properties
from plugins.protocols.mqtt.messages import envelope_of, properties_of
from plugins.protocols.mqtt.properties import Properties


def _as_amqp(properties: Properties, qos: int = 0) -> dict[str, Any]:
    return decode_properties(raw_properties(envelope_of("amq.topic", "a", properties, qos, retain=False)))


def test_everything_that_both_have_reaches_amqp() -> None:
    properties = Properties(
        content_type="text/plain",
        correlation_data=b"c",
        response_topic="answers/to/me",
        message_expiry_interval=60,
        user_properties=(("name", "first"), ("other", "x"), ("name", "last")),
    )
    assert _as_amqp(properties, qos=1) == {
        "content_type": "text/plain",
        "correlation_id": "c",
        "reply_to": "answers.to.me",
        "expiration": "60000",
        "delivery_mode": 2,
        # AMQP has one header of a name: the last one wins.
        "headers": {"name": "last", "other": "x"},
    }


def test_everything_that_both_have_reaches_mqtt() -> None:
    values = {
        "content_type": "text/plain",
        "correlation_id": "c",
        "headers": {"text": "x", "number": 5, "yes": True, "list": [1], "table": {}},
    }
    properties = ContentProperties.of(values)
    envelope = Envelope(key="a", reply_to="answers.to.me", expiration=60_000, properties=properties)
    assert properties_of(envelope) == Properties(
        content_type="text/plain",
        correlation_data=b"c",
        response_topic="answers/to/me",
        message_expiry_interval=60,
        user_properties=(("text", "x"), ("number", "5"), ("yes", "true")),
    )


def test_a_header_that_the_broker_has_added_joins_the_user_properties() -> None:
    """As those of a dead letter, which was published with user properties."""
    properties = {"user_properties": (("a", "1"),), "headers": {"x-first-death-queue": "q", "a": "2"}}
    envelope = Envelope(key="a", properties=properties)
    assert properties_of(envelope).user_properties == (("a", "1"), ("x-first-death-queue", "q"), ("a", "2"))
    headers = decode_properties(raw_properties(envelope))["headers"]
    assert headers == {"a": "2", "x-first-death-queue": "q"}


@pytest.mark.parametrize(
    "properties",
    [
        {"headers": "no table"},
        {"headers": {5: "x", "list": []}},
        {"user_properties": "no pairs"},
        {"user_properties": [("a",), 5, ("a", "b", "c"), (1, "b")]},
        {"content_type": 5, "correlation_id": 7},
    ],
)
def test_what_is_of_another_type_is_left_out(properties: dict[str, Any]) -> None:
    assert properties_of(Envelope(key="a", properties=properties)) == Properties()
