"""Envelopes: those of PUBLISH packets without properties, shared by all clients of one exchange.

So who gets the messages is found out once for a topic, and not once for each of its publishers.
"""

from __future__ import annotations

from kernel.contracts.message import Envelope
from plugins.protocols.mqtt.messages import envelope_of
from plugins.protocols.mqtt.properties import NO_PROPERTIES
from plugins.protocols.mqtt.topics import key_to_topic

_MOST = 16_384
"""Envelopes that are remembered."""


class SharedEnvelopes:
    """The envelopes of one exchange, the same object for the same topic, QoS, *retain* and publisher."""

    __slots__ = ("_exchange", "common", "known")

    def __init__(self, exchange: str) -> None:
        self._exchange = exchange
        self.known: dict[tuple[str, int, bool, str], Envelope] = {}
        """By topic, QoS, *retain*, and the publisher if somebody wants to know it."""
        self.common = Envelope(exchange=exchange)
        """What those of messages with QoS 0 have in common that differ in their topics."""

    def make(self, key: tuple[str, int, bool, str]) -> Envelope:
        """Make an envelope that is not known, and remember it."""
        if len(self.known) >= _MOST:
            self.known.clear()
        topic, qos, retain, publisher = key
        envelope = self.known[key] = envelope_of(
            self._exchange, topic, NO_PROPERTIES, qos, retain=retain, publisher=publisher
        )
        return envelope

    def of_key(self, key: str, publisher: str = "") -> Envelope:
        """Return the envelope of a message with QoS 0 that was published to the topic of this key."""
        what = (key_to_topic(key), 0, False, publisher)
        return self.known.get(what) or self.make(what)
