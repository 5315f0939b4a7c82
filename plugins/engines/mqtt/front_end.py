"""Front end: the MQTT clients of one listener."""

from __future__ import annotations

from typing import Any

from kernel.contracts.explaining import Row, row
from kernel.contracts.message import Envelope
from plugins.engines.broker.public import Accepted, BrokerEngine, StreamFrontEnd, VirtualHost
from plugins.engines.mqtt.client import MqttClient
from plugins.engines.mqtt.options import MqttListenerOptions
from plugins.engines.mqtt.sessions import Sessions, sessions_of
from plugins.protocols.mqtt.packet_types import OLD_SUBPROTOCOLS, SUBPROTOCOLS
from plugins.protocols.mqtt.topics import key_to_topic, topic_to_key


def make_front_end(engine: BrokerEngine, options: MqttListenerOptions) -> StreamFrontEnd:
    """Return an MQTT listener of a broker."""
    return MqttFrontEnd(engine, options)


class MqttFrontEnd(StreamFrontEnd):
    """A listener for MQTT."""

    def __init__(self, engine: BrokerEngine, options: MqttListenerOptions) -> None:
        self._mqtt_options = options
        self._broker_engine = engine
        super().__init__(
            engine,
            options,
            "mqtt",
            self._begin_client,
            subprotocols=SUBPROTOCOLS + OLD_SUBPROTOCOLS,
            # [MQTT-6.0.0-1]
            takes_text=False,
        )

    @property
    def sessions(self) -> Sessions:
        """The sessions of the broker."""
        return sessions_of(self._broker_engine, self._mqtt_options)

    def start(self) -> str:
        """Listen; the sessions that the store has are there before."""
        self.sessions.restore(self._broker_engine.host.now())
        return super().start()

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return the consumers of sessions without a connection."""
        # One listener of several answers for all sessions.
        first = next(each for each in self._broker_engine.front_ends if isinstance(each, MqttFrontEnd))
        return self.sessions.detached_rows() if what == "consumers" and first is self else []

    def address_of_topic(self, topic: str) -> tuple[str, str]:
        """Return the exchange and the key of a topic."""
        return self._mqtt_options.exchange, topic_to_key(topic)

    def explain(self, vhost: VirtualHost, envelope: Envelope) -> list[Row]:
        """Say whether later subscribers would get a retained message of this topic."""
        if envelope.exchange != self._mqtt_options.exchange:
            return []
        topic = key_to_topic(envelope.key)
        # A topic has no wildcard, so there is one step at the most.
        for retained in self.sessions.retained(vhost).find(topic, self._broker_engine.host.now()):
            if retained is not None:
                why = f"{retained.batch.size} bytes are retained; who subscribes later gets them at once"
                return [row("retained", topic, gets=False, why=why)]
        return []

    def _begin_client(self, accepted: Accepted) -> MqttClient:
        client = MqttClient(self._broker_engine, accepted, self._mqtt_options, self.sessions)
        client.start()
        return client
