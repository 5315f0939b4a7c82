"""Incoming: what one connection publishes, and the answers to it.

The parser makes one ``Publish`` of consecutive PUBLISH packets with the same topic.  So almost everything
here is done once for many messages.

Order of answers
    PUBACK and PUBREC are sent in the order of the PUBLISH packets [MQTT-4.6.0-2, MQTT-4.6.0-3].  ``answers``
    has them in that order, each with the number of its last message in ``Publisher.confirms``.  What has no
    message (a refusal, a PUBREC that is sent again) is in there, too, so that it does not overtake others.

Two publishers
    Messages of QoS 0 are never confirmed, so they go through a publisher without ``Confirms``: they would
    wait there behind those that wait for the disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from kernel.contracts.message import Batch, Buffer, Envelope
from kernel.contracts.mixed_batch import KeyedBatch
from plugins.engines.broker.public import AccessRefused, BrokerError, Login, Publisher
from plugins.protocols.mqtt.messages import envelope_of
from plugins.protocols.mqtt.packet_types import PUBACK, PUBREC, PacketType
from plugins.protocols.mqtt.packets import AcknowledgementType, Publish, PublishUnderTopics
from plugins.protocols.mqtt.properties import NO_PROPERTIES
from plugins.protocols.mqtt.publishing import acknowledge
from plugins.protocols.mqtt.reason_codes import FAILED, ReasonCode
from plugins.protocols.mqtt.topics import is_bridge_state, swap_all

if TYPE_CHECKING:
    from plugins.engines.mqtt.client import MqttClient
    from plugins.engines.mqtt.options import MqttListenerOptions
    from plugins.engines.mqtt.session import Session

_SUCCESS = ReasonCode.SUCCESS
_MOST_ENVELOPES = 1024
"""Envelopes that are remembered for one head of packets."""


class _Answer(msgspec.Struct):
    """PUBACK or PUBREC that is due."""

    last: int
    """The number of its last message among the publisher's; of one without messages, the last before it."""
    kind: AcknowledgementType
    ids: Sequence[int]
    reason_code: int
    counts: bool
    """Whether it has messages that wait for a confirmation: one for each identifier."""


class _Publisher(Publisher):
    """A publisher that knows whether the last batch has reached anybody."""

    reached = True

    def on_unroutable(self, batch: Batch) -> None:
        """Nobody has subscribed."""
        self.reached = False


class Incoming:
    """What a client publishes into its session's virtual host."""

    def __init__(
        self, client: MqttClient, session: Session, login: Login, options: MqttListenerOptions
    ) -> None:
        self._client = client
        self._session = session
        self._options = options
        self._envelopes = client.sessions.envelopes(session.exchange)
        feed = client.engine.feed
        self._unconfirmed = _Publisher(session.vhost, login, feed)
        self._publisher = _Publisher(session.vhost, login, feed)
        self._confirms = self._publisher.confirms = feed.make_confirms()
        self.answers: deque[_Answer] = deque()
        """What is due for messages of QoS 1 and 2 and not sent yet, in order."""
        self._unanswered = 0
        """Messages of QoS 1 that are not answered yet.  Those of QoS 2 are in ``Session.received``."""

    def publish(self, packet: Publish, now: float) -> None:
        """Publish messages."""
        session, client, qos = self._session, self._client, packet.qos
        # The parser has put topics in the place of aliases.
        topic = packet.head.topic
        payloads, ids = packet.payloads, packet.ids
        if qos:
            if qos == 1:
                self._unanswered += len(ids)
                new = 0
            else:
                payloads, ids = self._new_ones(packet)
                if not payloads:
                    return
                new = len(ids)
            # QoS 1 counts until PUBACK, and QoS 2 until PUBREL has come: so long its identifier is in
            # ``received``.
            unreleased = 0 if session.unreleased is None else len(session.unreleased)
            if self._unanswered + unreleased + new > self._options.receive_maximum:
                # MQTT 5.0, 3.3.4
                client.disconnect(
                    ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
                    f"more than {self._options.receive_maximum} messages are not acknowledged",
                )
                return
        reason = self._publish(packet, topic, payloads, ids, now)
        if reason is None or not qos:
            return
        kind: AcknowledgementType = PUBACK if qos == 1 else PUBREC
        self._answer(kind, ids, reason, counts=reason < FAILED)

    def publish_under_topics(self, packet: PublishUnderTopics, now: float) -> None:
        """Publish messages with QoS 0, each with a topic of its own."""
        session, client, publisher = self._session, self._client, self._unconfirmed
        envelopes = self._envelopes
        # With a subscription of this client that does not want its own messages, the envelopes say who has
        # published them, and each message is looked at.
        no_local = session.no_local > 0
        batch = KeyedBatch(
            packet.payloads,
            packet.size,
            envelopes.common,
            False,
            packet.width,
            keys=swap_all(packet.topics),
            envelope_of=partial(envelopes.of_key, publisher=session.client_id)
            if no_local
            else envelopes.of_key,
        )
        try:
            if not no_local and publisher.publish_keyed(batch, now):
                client.messages_in += len(batch.bodies)
                return
            for part in batch.divided():
                client.messages_in += len(part.bodies)
                envelope = publisher.admit(part.envelope)
                publisher.publish(part if envelope is part.envelope else part.under(envelope), now)
        except BrokerError as refusal:
            client.disconnect(ReasonCode.NOT_AUTHORIZED, refusal.text)

    def _publish(
        self, packet: Publish, topic: str, payloads: list[Buffer], ids: Sequence[int], now: float
    ) -> int | None:
        """Publish; return the reason code of the answer, None if the connection is closed instead."""
        client, session, qos = self._client, self._session, packet.qos
        if topic.startswith("$") and not is_bridge_state(topic):
            # The broker's own topics (MQTT 5.0, 4.7.2).
            return ReasonCode.NOT_AUTHORIZED
        publisher = self._publisher if qos else self._unconfirmed
        whole = payloads is packet.payloads
        try:
            envelope = publisher.admit(self._envelope_of(packet, topic))
            size = packet.size if whole else sum(map(len, payloads))
            batch = Batch(payloads, size, envelope, False, packet.width)
            publisher.reached = True
            if packet.retain:
                # First, so that the answer waits until the disk has this, too.
                client.sessions.keep_retained(session.vhost, topic, payloads[-1], envelope, now)
            if qos < 2:
                # Only MQTT 5.0 has a reason code for "nobody has subscribed" (0x10), and only with QoS 1 and
                # 2 there is an answer. Otherwise nobody need find out.
                publisher.publish(batch, now, mandatory=qos > 0 and client.version == 5)
            else:
                self._publish_once(batch, ids, now)
        except BrokerError as refusal:
            if not qos or client.version == 4:
                # What cannot be refused by itself ends the connection [MQTT-3.3.5-2, of MQTT 3.1.1].
                client.disconnect(ReasonCode.NOT_AUTHORIZED, refusal.text)
                return None
            refused = isinstance(refusal, AccessRefused)
            return ReasonCode.NOT_AUTHORIZED if refused else ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
        return _SUCCESS if publisher.reached else ReasonCode.NO_MATCHING_SUBSCRIBERS

    def _publish_once(self, batch: Batch, ids: Sequence[int], now: float) -> None:
        """Publish messages of QoS 2, and note their identifiers."""
        session, mandatory = self._session, self._client.version == 5
        parts = [(batch, ids)]
        # A queue that refuses some of a batch keeps a copy of the rest, and so in another record.
        if len(ids) > 1 and not session.vhost.has_room_for(batch):
            parts = [(batch.slice(at, at + 1), ids[at : at + 1]) for at in range(len(ids))]
        for part, numbers in parts:
            accepted = self._publisher.publish(part, now, mandatory=mandatory)
            if accepted:
                # Directly behind it: the store then has both in one record.
                session.received.add(numbers[:accepted], part)

    def _envelope_of(self, packet: Publish, topic: str) -> Envelope:
        """Return the envelope of a PUBLISH, the same object for the same topic, properties and flags."""
        head, session = packet.head, self._session
        # A retained message may meet such a subscription later.
        publisher = session.client_id if session.no_local or packet.retain else ""
        key = (topic, packet.qos, packet.retain, publisher)
        if head.properties is NO_PROPERTIES:
            return self._envelopes.known.get(key) or self._envelopes.make(key)
        known: dict[tuple[str, int, bool, str], Envelope] | None = head.attached
        if known is None:
            known = head.attached = {}
        envelope = known.get(key)
        if envelope is None:
            if len(known) >= _MOST_ENVELOPES:
                known.clear()
            envelope = envelope_of(
                session.exchange,
                topic,
                head.properties,
                packet.qos,
                retain=packet.retain,
                publisher=publisher,
            )
            known[key] = envelope
        return envelope

    def _new_ones(self, packet: Publish) -> tuple[list[Buffer], Sequence[int]]:
        """Return what of a PUBLISH of QoS 2 is new; answer the rest again [MQTT-4.3.3-10]."""
        received = self._session.received
        if received.has_none_of(packet.ids) and len(set(packet.ids)) == len(packet.ids):
            return packet.payloads, packet.ids
        fresh: dict[int, Buffer] = {}
        again: list[int] = []
        for payload, number in zip(packet.payloads, packet.ids, strict=True):
            if number in received or number in fresh:
                again.append(number)
            else:
                fresh[number] = payload
        # A PUBREC that is not sent yet comes by itself.
        due = {number for answer in self.answers if answer.kind == PUBREC for number in answer.ids}
        if repeated := [number for number in again if number not in due and number not in fresh]:
            self._answer(PUBREC, repeated, _SUCCESS, counts=False)
        return list(fresh.values()), list(fresh)

    def release(self, ids: Sequence[int]) -> None:
        """PUBREL has come: forget the identifiers, and answer."""
        client, received = self._client, self._session.received
        unknown = [number for number in ids if number not in received]
        # "This is not an error during recovery" (MQTT 5.0, 3.7.2.1): the message has come, and our PUBCOMP
        # was lost with the connection.  Who were told of an error might publish it again (Paho C).
        if unknown and client.version == 5 and not client.resumed:
            ids = [number for number in ids if number in received]
            code = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
            client.send_after(0, acknowledge(PacketType.PUBCOMP, unknown, code))
        if ids:
            client.send_after(received.discard(ids), acknowledge(PacketType.PUBCOMP, ids))

    # Answers

    def _answer(self, kind: AcknowledgementType, ids: Sequence[int], reason: int, *, counts: bool) -> None:
        # PUBACK of MQTT 3.1.1 has no reason code. So a message to one of the broker's own topics is answered
        # as any other, and goes nowhere.
        code = reason if self._client.version == 5 else _SUCCESS
        # Mostly nothing has to be waited for: then it is sent now, and nothing is noted for the end of the
        # turn.
        if not self.answers and self._confirms.tell_all():
            self._send(kind, ids, code)
            return
        self.answers.append(_Answer(self._confirms.published, kind, ids, code, counts))

    def send_answers(self) -> None:
        """Send PUBACK and PUBREC for what is safe by now."""
        confirms, feed, store = self._confirms, self._publisher.feed, self._session.vhost.store
        for outcome in confirms.outcomes(feed.confirmed, store.safe):
            self._send_up_to(outcome.last, accepted=outcome.accepted)
        # Those without messages wait for nothing but their turn.
        if self.answers:
            self._send_up_to(confirms.told, accepted=True)
        if confirms.told < confirms.published:
            # Routes call by themselves; the store has to be asked each time.
            store.when_safe(self._client.is_busy)

    def _send_up_to(self, last: int, *, accepted: bool) -> None:
        """Send the answers for the publisher's messages up to this number."""
        answers = self.answers
        # The same as the loop below does, in fewer steps: a client with one message in flight has one answer
        # a turn.
        if len(answers) == 1 and accepted and answers[0].last <= last:
            one = answers.popleft()
            self._send(one.kind, one.ids, one.reason_code)
            return
        kind: AcknowledgementType = PUBACK
        code, ids = 0, list[int]()
        while answers:
            answer = answers[0]
            ready, reason = answer.ids, answer.reason_code
            if not answer.counts:
                if answer.last > last:
                    break
                answers.popleft()
            else:
                before = answer.last - len(answer.ids)
                if before >= last:
                    break
                if answer.last <= last:
                    answers.popleft()
                else:
                    ready = answer.ids[: last - before]
                    answer.ids = answer.ids[last - before :]
                if not accepted:
                    reason = ReasonCode.QUOTA_EXCEEDED
            # Consecutive answers of one kind are one call of the encoder.
            if (answer.kind, reason) != (kind, code):
                self._send(kind, ids, code)
                kind, code, ids = answer.kind, reason, []
            ids += ready
        self._send(kind, ids, code)

    def _send(self, kind: AcknowledgementType, ids: Sequence[int], reason: int) -> None:
        if not ids:
            return
        if kind == PUBACK:
            self._unanswered -= len(ids)
        client = self._client
        if reason >= FAILED:
            if client.version == 4:
                client.disconnect(reason, "a full queue refuses messages, and MQTT 3.1.1 cannot say that")
                return
            # 4.3.3: with a reason code of 0x80 or greater the identifier is free at once, and no PUBREL
            # comes.
            if kind == PUBREC:
                self._session.received.discard(ids)
        client.send(acknowledge(kind, ids, reason))
