"""Sender: makes the PUBLISH packets for one connection.

It knows what the client takes: version, size, aliases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from kernel.contracts.message import Batch, Envelope
from plugins.engines.broker.public import Span, Store
from plugins.engines.mqtt.subscriptions import Delivery, Group, PacketsUnderTopics, prefix_of
from plugins.protocols.mqtt.messages import properties_of
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.properties import NO_PROPERTIES
from plugins.protocols.mqtt.publishing import (
    REFERENCE_FROM,
    PublishPrefix,
    acknowledge,
    publish_batch,
    publish_one,
    publish_plain,
)
from plugins.protocols.mqtt.topics import key_to_topic

if TYPE_CHECKING:
    from plugins.engines.mqtt.client import MqttClient
    from plugins.engines.mqtt.retained import Retained

_BEHIND_BYTES = 512 * 1024
"""Bytes that may wait for the socket before retained messages wait, too: as many as a window has."""
_MOST_PREFIXES = 1024


class Sender:
    """What a client is sent of messages."""

    def __init__(self, client: MqttClient, *, largest_packet: int, aliases: int, most_unwritten: int) -> None:
        """``largest_packet``: bytes that the client takes; 0: any number.  ``aliases``: topic aliases."""
        self._client = client
        self._version = client.version
        self.largest_packet = largest_packet
        """Bytes of the largest packet that the client takes; 0: any number."""
        self._most_aliases = aliases
        self._most_unwritten = most_unwritten
        self._aliases: dict[str, int] = {}
        self._prefixes: dict[tuple[Envelope, Delivery, bool], PublishPrefix] = {}
        self._produced = 0
        """Bytes that were made and not written, if ``is_counted``."""
        self.is_counted = False
        """Whether ``_produced`` is right.  Not so at the beginning of a turn: what was made before is written
        by then."""

    def is_behind(self) -> bool:
        """Whether so much waits for the socket that more should wait."""
        return self._waiting() > _BEHIND_BYTES

    def _waiting(self) -> int:
        # To ask the connection is a call, which would be made for each of a thousand subscribers.
        if not self.is_counted:
            self.is_counted = True
            self._produced = self._client.unwritten
        return self._produced

    def deliver(
        self, span: Span, delivery: Delivery, ids: Sequence[int], now: float, *, again: bool = False
    ) -> None:
        """Send messages of a queue.  ``again``: they were sent to this client before [MQTT-3.3.1-1]."""
        # ``as_batch``, without the call for a span that has a whole batch.
        batch = span.batch
        if span.stop - span.start != len(batch.bodies):
            batch = span.as_batch()
        seconds_left = None
        if batch.envelope.expiration is not None and span.expires_at is not None:
            seconds_left = span.expires_at - now
        # [MQTT-3.3.1-2]: DUP must be 0 with QoS 0.
        dup = again and delivery.qos > 0
        prefix = None
        if seconds_left is None and not self._most_aliases:
            # What ``_prefix_of`` returns in most cases.
            prefix = self._prefixes.get((batch.envelope, delivery, dup))
        if prefix is None:
            prefix = self._prefix_of(batch, delivery, dup=dup, seconds_left=seconds_left)
        self._send(prefix, batch, ids)

    def deliver_live(self, batch: Batch, group: Group) -> bool:
        """Send messages that no queue has; return False if they are lost because the client is slow."""
        if (self._produced if self.is_counted else self._waiting()) > self._most_unwritten:
            return False
        if self.largest_packet or self._most_aliases:
            self._deliver_what_fits(batch, group.delivery)
            return True
        data = group.packets(self._version, batch)
        self._produced += len(data)
        client = self._client
        client.messages_out += len(batch.bodies)
        client.send(data)
        return True

    def deliver_live_together(self, packets: PacketsUnderTopics) -> bool:
        """Send messages that differ in their topics, which no queue has, in one write.

        False: nothing was sent.  Have each message delivered with ``deliver_live``, which looks at its size,
        gives its topic an alias, or finds that the client is too slow for it.
        """
        if self.largest_packet or self._most_aliases:
            return False
        data = packets.of(self._version)
        if self._waiting() + len(data) > self._most_unwritten:
            return False
        self._produced += len(data)
        client = self._client
        client.messages_out += packets.count
        client.send(data)
        return True

    def deliver_retained(self, step: Sequence[Retained], delivery: Delivery, now: float) -> None:
        """Send retained messages to a subscription without a queue."""
        packets: list[bytes] = []
        plain = not (self.largest_packet or self._most_aliases)
        for retained in step:
            if plain and self._is_plain(retained, delivery):
                # In one call for each, because each has a topic of its own.
                packets.append(
                    publish_plain(
                        self._version, retained.topic, retained.batch.bodies[0], retain=delivery.retain
                    )
                )
                continue
            if packets:
                self._send_packets(packets)
            self._deliver_one_retained(retained, delivery, now)
        if packets:
            self._send_packets(packets)

    def _is_plain(self, retained: Retained, delivery: Delivery) -> bool:
        """Whether its packet has no properties, and is small enough to be joined with others."""
        batch = retained.batch
        if batch.size >= REFERENCE_FROM:
            return False
        return self._version == 4 or (
            retained.expires_at is None
            and properties_of(batch.envelope, delivery.identifiers) is NO_PROPERTIES
        )

    def _send_packets(self, packets: list[bytes]) -> None:
        client, data = self._client, b"".join(packets)
        self._produced += len(data)
        client.send(data)
        client.messages_out += len(packets)
        packets.clear()

    def _deliver_one_retained(self, retained: Retained, delivery: Delivery, now: float) -> None:
        batch = retained.batch
        seconds_left = None if retained.expires_at is None else retained.expires_at - now
        if self.largest_packet or self._most_aliases:
            self._deliver_what_fits(batch, delivery, seconds_left)
        else:
            # Not remembered: each has a topic of its own.
            prefix = prefix_of(self._version, batch.envelope, delivery, seconds_left=seconds_left)
            self._send(prefix, batch, ())

    def _deliver_what_fits(self, batch: Batch, delivery: Delivery, seconds_left: float | None = None) -> None:
        """Send what the client takes: not what is too large for it [MQTT-3.1.2-24]."""
        bodies = batch.bodies
        if self.largest_packet:
            most = self._largest_payload(batch.envelope, delivery, seconds_left)
            bodies = [body for body in bodies if len(body) <= most]
        if bodies:
            fitting = Batch(bodies, 0, batch.envelope)
            prefix = self._prefix_of(fitting, delivery, dup=False, seconds_left=seconds_left)
            self._send(prefix, fitting, ())

    def is_too_large(self, span: Span, delivery: Delivery) -> bool:
        """Whether a message is larger than what the client takes, which has a limit (``largest_packet``)."""
        batch = span.as_batch()
        return max(map(len, batch.bodies)) > self._largest_payload(batch.envelope, delivery)

    def _largest_payload(
        self, envelope: Envelope, delivery: Delivery, seconds_left: float | None = None
    ) -> int:
        """Return how large a payload may be; the client may know a short alias of a long topic."""
        largest = self.largest_packet
        most = prefix_of(self._version, envelope, delivery, seconds_left=seconds_left).largest_payload(
            largest
        )
        alias = self._aliases.get(key_to_topic(envelope.key))
        if alias is None:
            return most
        aliased = self._with_alias("", alias, envelope, delivery, dup=False, seconds_left=seconds_left)
        return max(most, aliased.largest_payload(largest))

    def release(self, ids: Sequence[int], mark: int) -> None:
        """Send PUBREL when the store has reached ``mark``."""
        self._client.send_after(mark, acknowledge(PacketType.PUBREL, ids))

    def call_when_safe(self, store: Store) -> None:
        """Have the client's ``flush`` called when more is on the disk."""
        store.when_safe(self._client.is_busy)

    def _send(self, prefix: PublishPrefix, batch: Batch, ids: Sequence[int]) -> None:
        client, bodies = self._client, batch.bodies
        if len(bodies) == 1:
            packets = publish_one(prefix, bodies[0], ids[0] if ids else 0)
        else:
            packets = publish_batch(prefix, bodies, ids, batch.width)
        for data in packets:
            self._produced += len(data)
            client.send(data)
        client.messages_out += len(bodies)

    def _prefix_of(
        self, batch: Batch, delivery: Delivery, *, dup: bool, seconds_left: float | None
    ) -> PublishPrefix:
        """Return what the packets of a batch begin with."""
        envelope = batch.envelope
        if self._most_aliases:
            aliased = self._aliased(batch, delivery, dup=dup, seconds_left=seconds_left)
            if aliased is not None:
                return aliased
        # The time that is left is in the properties, and differs each time.
        if seconds_left is not None:
            return prefix_of(self._version, envelope, delivery, dup=dup, seconds_left=seconds_left)
        key = (envelope, delivery, dup)
        prefix = self._prefixes.get(key)
        if prefix is None:
            if len(self._prefixes) >= _MOST_PREFIXES:
                self._prefixes.clear()
            prefix = self._prefixes[key] = prefix_of(self._version, envelope, delivery, dup=dup)
        return prefix

    def _aliased(
        self, batch: Batch, delivery: Delivery, *, dup: bool, seconds_left: float | None
    ) -> PublishPrefix | None:
        """Return the same with a topic alias (MQTT 5.0, 3.3.2.3.4).

        None: the client takes no more aliases, or the alias would make a packet too large.
        """
        envelope = batch.envelope
        topic = key_to_topic(envelope.key)
        alias = self._aliases.get(topic)
        if alias is None and len(self._aliases) >= self._most_aliases:
            return None
        # Aliases are given once and never change their meaning, so the table only grows up to what the client
        # takes.
        number = len(self._aliases) + 1 if alias is None else alias
        said = topic if alias is None else ""
        prefix = self._with_alias(said, number, envelope, delivery, dup=dup, seconds_left=seconds_left)
        # An alias takes three bytes, which may be more than the topic has.
        largest = self.largest_packet
        if largest and max(map(len, batch.bodies)) > prefix.largest_payload(largest):
            return None
        if alias is None:
            self._aliases[topic] = number
        return prefix

    def _with_alias(
        self,
        topic: str,
        alias: int,
        envelope: Envelope,
        delivery: Delivery,
        *,
        dup: bool,
        seconds_left: float | None,
    ) -> PublishPrefix:
        """Return what packets with an alias begin with; an empty topic if the client knows the alias."""
        properties = properties_of(envelope, delivery.identifiers, seconds_left)
        properties = msgspec.structs.replace(properties, topic_alias=alias)
        return PublishPrefix(
            self._version, topic, properties, qos=delivery.qos, retain=delivery.retain, dup=dup
        )
