"""Forms: how the messages of an envelope are published on one connection, or why they cannot be."""

from __future__ import annotations

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.message import Envelope
from plugins.engines.mqtt_client.options import MqttClientOptions
from plugins.protocols.mqtt.messages import RETAIN, properties_of, unsayable
from plugins.protocols.mqtt.properties import NO_PROPERTIES, Properties
from plugins.protocols.mqtt.publishing import PublishPrefix
from plugins.protocols.mqtt.topics import key_to_topic

_MOST_FORMS = 1024
"""Envelopes whose form is remembered."""


class Form:
    """How the messages of one envelope are published on one connection."""

    __slots__ = ("_properties", "_retain", "_topic", "_version", "again", "first", "largest", "qos")

    def __init__(
        self, version: int, topic: str, properties: Properties, qos: int, *, retain: bool, maximum: int
    ) -> None:
        """``maximum``: bytes of the largest packet that the broker accepts."""
        self._version, self._topic, self._properties, self._retain = version, topic, properties, retain
        self.qos = qos
        self.first = self._prefix(dup=False)
        """For messages that are sent for the first time."""
        self.again: PublishPrefix | None = None
        """For messages that are sent again; made when it is needed."""
        self.largest = self.first.largest_payload(maximum)
        """Bytes of the largest payload."""

    def prefix(self, *, dup: bool) -> PublishPrefix:
        """Return what the packets have in common."""
        if not dup:
            return self.first
        if self.again is None:
            self.again = self._prefix(dup=True)
        return self.again

    def _prefix(self, *, dup: bool) -> PublishPrefix:
        return PublishPrefix(
            self._version, self._topic, self._properties, qos=self.qos, retain=self._retain, dup=dup
        )


class Forms:
    """The forms of one connection: they depend on what the broker has said that it can do."""

    def __init__(self, options: MqttClientOptions, server: Properties) -> None:
        """``server``: the properties of the CONNACK."""
        self._options = options
        self._maximum_qos = 2 if server.maximum_qos is None else server.maximum_qos
        self._retain = server.retain_available != 0
        limits = (server.maximum_packet_size, options.broker_max_packet_bytes)
        self._maximum = min((limit for limit in limits if limit), default=0xFFFF_FFFF)
        self._forms: dict[Envelope, Form | str] = {}

    def form_of(self, envelope: Envelope) -> Form | str:
        """Return the form of an envelope; a text: why messages under it cannot be sent."""
        found = self._forms.get(envelope)
        if found is None:
            if len(self._forms) >= _MOST_FORMS:
                self._forms.clear()
            found = self._forms[envelope] = self._make(envelope)
        return found

    def _make(self, envelope: Envelope) -> Form | str:
        options = self._options
        if options.topic is not None:
            topic = options.topic
        elif refusal := unsayable(envelope):
            return refusal
        else:
            topic = key_to_topic(envelope.key)
        qos = options.qos
        if qos is None:
            qos = 1 if envelope.persistent else 0
        retain = options.retain == "always" or (
            options.retain == "property" and envelope.properties.get(RETAIN) is True
        )
        properties = properties_of(envelope) if options.version == 5 else NO_PROPERTIES
        try:
            return Form(
                options.version,
                options.publish_prefix + topic,
                properties,
                # A higher QoS is a protocol error [MQTT-3.2.2-11], which ends the connection.
                min(qos, self._maximum_qos),
                # A broker that keeps none would end the connection (MQTT 5.0, 3.2.2.3.5).
                retain=retain and self._retain,
                maximum=self._maximum,
            )
        except LocalProtocolError as error:
            return str(error)
