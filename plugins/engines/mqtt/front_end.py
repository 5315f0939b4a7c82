"""Front end: the MQTT clients of one listener."""

from __future__ import annotations

from typing import Any

from plugins.engines.broker.public import Accepted, BrokerEngine, StreamFrontEnd
from plugins.engines.mqtt.client import MqttClient
from plugins.engines.mqtt.options import MqttListenerOptions
from plugins.engines.mqtt.sessions import Sessions, sessions_of
from plugins.protocols.mqtt.packet_types import SUBPROTOCOLS


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
            subprotocols=SUBPROTOCOLS,
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

    def _begin_client(self, accepted: Accepted) -> MqttClient:
        client = MqttClient(self._broker_engine, accepted, self._mqtt_options, self.sessions)
        client.start()
        return client
