"""Incoming: messages of the broker on their way to the routes, and their acknowledgements.

It lives as long as the engine.  A message is acknowledged (PUBACK, PUBREC) when the routes have confirmed it;
if no route confirms, when the port has taken it.

While the port is full, messages wait here without being acknowledged, and a broker stops by itself when the
receive maximum is used up.  So the socket can be read, and acknowledgements of what this engine publishes are
processed.  Only if more waits than that (messages of QoS 0, MQTT 3.1.1) it is not read.

QoS 2
    ``_received`` has the identifiers from the first PUBLISH to PUBREL, also from one connection to the next.
    What the broker sends again in between is no new message.  It outlives the connection, not the engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from kernel.contracts.engine import Port
from kernel.contracts.message import Batch, Buffer, Envelope
from plugins.engines.mqtt_client.counters import Counters
from plugins.engines.mqtt_client.options import MqttClientOptions
from plugins.protocols.mqtt.messages import envelope_of
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.packets import Publish
from plugins.protocols.mqtt.publishing import acknowledge
from plugins.protocols.mqtt.reason_codes import ReasonCode

_MOST_WAITING_BYTES = 64 * 1024 * 1024
"""Bytes that wait for the port before the socket is not read."""


class _Arrived(msgspec.Struct, gc=False):
    """Messages of one PUBLISH run."""

    batch: Batch
    qos: int
    ids: Sequence[int]
    connection: int
    """The connection on which they came.  An identifier of QoS 1 has no meaning on the next one."""
    session: int
    """The session of the broker.  An identifier of QoS 2 has no meaning in the next one."""
    end: int = 0
    """The port's count behind them."""


class Incoming:
    """The messages that came from the broker and are not acknowledged."""

    def __init__(self, options: MqttClientOptions, counters: Counters) -> None:
        self.port: Port
        self.going = True
        """Whether the port takes messages."""
        self._options = options
        self._counters = counters
        self._connection = 0
        self._session = 0
        self._arrived: deque[_Arrived] = deque()
        self._waiting = 0
        """Messages in ``_arrived``."""
        self._waiting_bytes = 0
        self._unconfirmed: deque[_Arrived] = deque()
        self._received: dict[int, bool] = {}
        """Identifiers of QoS 2, and whether the routes have confirmed the message."""
        self._asked_again: set[int] = set()
        """Those that the broker has sent again on this connection, and that are not confirmed."""
        self._answers: list[Buffer] = []

    @property
    def stops_reading(self) -> bool:
        """Whether the socket must not be read now."""
        return not self.going and (
            self._waiting > self._options.receive_maximum or self._waiting_bytes > _MOST_WAITING_BYTES
        )

    def begin(self, *, present: bool) -> None:
        """The broker has accepted a connection.  ``present``: whether it has the session."""
        self._connection += 1
        self._asked_again.clear()
        # What was confirmed without a connection: the broker sends it again, and is answered then.
        self._answers.clear()
        if not present:
            self._session += 1
            # Its identifiers begin anew.  Messages that wait for the routes stay where they are.
            self._received.clear()

    def lost(self) -> None:
        """The connection has ended."""
        self._answers.clear()

    def take_answers(self) -> list[Buffer]:
        """Return what has to be sent to the broker."""
        answers, self._answers = self._answers, []
        return answers

    # From the broker

    def publish(self, packet: Publish) -> None:
        """Messages have come: keep them until ``flush``, at the end of the turn."""
        payloads, ids = packet.payloads, packet.ids
        size, width = packet.size, packet.width
        if packet.qos == 2:
            payloads, ids = self._new_ones(packet)
            if not payloads:
                return
            if payloads is not packet.payloads:
                size, width = sum(map(len, payloads)), 0
        batch = Batch(payloads, size, self._envelope_of(packet), False, width)
        self._arrived.append(_Arrived(batch, packet.qos, ids, self._connection, self._session))
        self._waiting += len(payloads)
        self._waiting_bytes += size
        self._counters.messages_in += len(payloads)

    def _new_ones(self, packet: Publish) -> tuple[list[Buffer], Sequence[int]]:
        """Return which messages of QoS 2 are new [MQTT-4.3.3-10]."""
        received = self._received
        fresh: dict[int, Buffer] = {}
        for payload, identifier in zip(packet.payloads, packet.ids, strict=True):
            confirmed = received.get(identifier)
            if confirmed is None:
                received[identifier] = False
                fresh[identifier] = payload
            elif confirmed:
                self._answers.append(acknowledge(PacketType.PUBREC, (identifier,)))
            else:
                # Not answered yet: the routes still have to confirm it. PUBREC would say that it is safe.
                self._asked_again.add(identifier)
        if len(fresh) == len(packet.payloads):
            return packet.payloads, packet.ids
        return list(fresh.values()), list(fresh)

    def release(self, ids: Sequence[int]) -> None:
        """PUBREL has come: the broker will not send these messages again."""
        unknown = [identifier for identifier in ids if self._received.pop(identifier, None) is None]
        # After a restart of this engine it knows none.  The broker goes on with either answer.
        if unknown and self._options.version == 5:
            code = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
            self._answers.append(acknowledge(PacketType.PUBCOMP, unknown, code))
            ids = [identifier for identifier in ids if identifier not in set(unknown)]
        if ids:
            self._answers.append(acknowledge(PacketType.PUBCOMP, ids))

    def _envelope_of(self, packet: Publish) -> Envelope:
        """Return the envelope, the same object for the same topic, properties and flags."""
        head = packet.head
        if head.attached is None:
            head.attached = {}
        key = (packet.qos, packet.retain)
        envelope: Envelope | None = head.attached.get(key)
        if envelope is None:
            options = self._options
            envelope = head.attached[key] = envelope_of(
                options.exchange,
                options.receive_prefix + head.topic,
                head.properties,
                packet.qos,
                retain=packet.retain,
            )
        return envelope

    # To the routes

    def flush(self) -> None:
        """Send what has arrived to the port, unless it is full."""
        arrived = self._arrived
        if not arrived or not self.going:
            return
        self._arrived = deque()
        self._waiting = self._waiting_bytes = 0
        port = self.port
        confirms = port.confirms
        # Before ``send``: ``end`` then grows with each batch to the position behind it.
        end = port.sent()
        self.going = port.send([each.batch for each in arrived])
        for each in arrived:
            end += len(each.batch.bodies) if confirms else 0
            each.end = end
            # Without confirmations it is done at once, but not before what waits from a time in which a route
            # confirmed: acknowledgements have an order [MQTT-4.6.0-2].
            if confirms or self._unconfirmed:
                self._unconfirmed.append(each)
            else:
                self._acknowledge(each, each.ids)

    def confirmed(self, count: int) -> None:
        """The routes have confirmed the first ``count`` messages that the port was ever given."""
        waiting = self._unconfirmed
        while waiting:
            each = waiting[0]
            if each.end <= count:
                waiting.popleft()
                self._acknowledge(each, each.ids)
                continue
            # ``ids`` has those that are not acknowledged yet, up to ``end``; it is empty with QoS 0.
            done = len(each.ids) - (each.end - count)
            if done > 0:
                self._acknowledge(each, each.ids[:done])
                each.ids = each.ids[done:]
            break

    def _acknowledge(self, each: _Arrived, ids: Sequence[int]) -> None:
        """The routes have the responsibility for messages: tell the broker."""
        if not each.qos or not ids:
            return
        if each.qos == 1:
            # On another connection this identifier may be another message's, which would be lost.
            if each.connection == self._connection:
                self._answers.append(acknowledge(PacketType.PUBACK, ids))
            return
        # The broker has forgotten the identifier, and may use it for another message by now.
        if each.session != self._session:
            return
        received = self._received
        if each.connection != self._connection:
            # After a reconnection only what the broker has sent again is waited for.
            known = [identifier for identifier in ids if identifier in received]
            received.update(dict.fromkeys(known, True))
            ids = [identifier for identifier in known if identifier in self._asked_again]
            self._asked_again.difference_update(ids)
            if not ids:
                return
        else:
            received.update(dict.fromkeys(ids, True))
        self._answers.append(acknowledge(PacketType.PUBREC, ids))
