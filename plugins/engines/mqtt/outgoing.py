"""Outgoing: the messages on their way to one session, and what it has acknowledged of them.

Packet identifiers
    A message of the session's own queue has an identifier that is computed from its position:
    ``position % OWN_IDS + 1``.  Positions outlive a restart of the broker, and so do identifiers: what is
    sent again has the identifier under which the client knows it (decision 31).  Messages of shared
    subscriptions have identifiers above ``OWN_IDS``, in turn, because several sessions read their queues.
    An identifier that is still in use makes the messages behind it wait in ``_waiting``.

States of a message (MQTT 5.0, 4.3)
    ``_qos1`` and ``_qos2`` map the identifiers of messages that were sent to delivery tags of the receiver.
    PUBACK acknowledges a message of QoS 1, PUBREC one of QoS 2.  From PUBREC on only the identifier is left,
    in ``_released``, until PUBCOMP.

Before a crash
    A message of QoS 2 is sent to a session that outlives the broker when the disk has it.  Otherwise the
    client might know a message and its identifier that the broker does not know any more.  Such deliveries
    wait in ``_unsafe``, with what follows them.  Those of shared subscriptions are given their identifiers
    before (``_reserved``), and wait until these are on disk as well (``Begun``).

After a crash
    ``Released`` has the positions for which PUBREC had come.  If the crash came before they were
    acknowledged, the queue still has these messages.  They are in ``_acknowledged_before``, and are
    acknowledged instead of being sent.
    The description of the session has the positions that were sent with QoS 2 before the subscription got
    another one (``begun_otherwise``).  What ``Begun`` has of shared queues is taken from them before any
    consumer is there (``take_begun``), and sent again.

Flow control
    ``Receiver.prefetch`` is the client's receive maximum, less the identifiers in ``_released``: these count,
    too (4.9), but the receiver has no messages for them any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kernel.contracts.message import Envelope
from kernel.contracts.spelling import MQTT
from kernel.contracts.word_trie import WordTrie
from plugins.engines.broker.public import Consumer, Queue, Receiver, Span, UnackedRange, Window
from plugins.engines.broker.public import Delivery as Handed
from plugins.engines.mqtt.durable import SHARED, Begun, Released
from plugins.engines.mqtt.subscriptions import Delivery, Subscribed, deliver_as, deliver_without
from plugins.protocols.mqtt.messages import unsayable
from plugins.protocols.mqtt.topics import key_to_topic

if TYPE_CHECKING:
    from plugins.engines.mqtt.client import MqttClient
    from plugins.engines.mqtt.sender import Sender

OWN_IDS = 49_152
"""Packet identifiers from 1 to this are for the session's own queue, those above for shared subscriptions."""
_LAST_ID = 65_535
_TOO_LARGE = "it is larger than the client's maximum packet size"
_MOST_PLANS = 1024
"""Envelopes of which is remembered how they are delivered."""


class Outgoing:
    """What one session is sent from queues."""

    def __init__(self, client_id: str, released: Released, shared_begun: Begun | None) -> None:
        """``shared_begun``: what is noted of shared subscriptions.

        None: the session ends with its connection.
        """
        self.receiver = Receiver(Window(0), _nobody, _nobody_cares)
        self.receiver.detach()
        self._client_id = client_id
        self._filters: WordTrie[Subscribed] = WordTrie()
        self._plans: dict[tuple[Envelope, Subscribed | None], Delivery | str | None] = {}
        # Lists, and not deques: an empty deque takes 700 bytes, and there may be very many idle sessions.
        self._waiting: list[Handed] = []
        self._unsafe: list[tuple[int, list[Handed]]] = []
        """Deliveries, and the mark that the store has to reach before they are sent."""
        self._again: list[_Again] = []
        """What is to be sent again when the client has acknowledged some of it."""
        self._qos1: dict[int, int] = {}
        self._qos2: dict[int, int] = {}
        self._released: dict[int, int] = {}
        """The position in the session's queue, by identifier; of a shared subscription ``SHARED`` and the
        identifier."""
        self._noted = released
        for position in released.positions():
            self._released[_id_of(position)] = position
        self._acknowledged_before = {position for position in released.positions() if position < SHARED}
        self._limit = 1
        self._next_shared = OWN_IDS
        self._shared_begun = shared_begun
        self._reserved: dict[int, int] = {}
        """The identifiers of shared messages of QoS 2 that are noted and not sent yet, by delivery tag."""
        self._begun: set[int] = set()
        """Positions in the session's queue that were sent with QoS 2 before a restart, and not since then.
        What was begun with QoS 2 goes on with it, whatever the subscriptions say now [MQTT-4.3.3-1]."""
        self._recovered_up_to = 0
        """The position from which on messages have come since the start of the broker."""
        self.shared: dict[str, Subscribed] = {}
        """The shared subscriptions, by the tag of their consumer.  The tag of the own queue's
        consumer is empty."""

    # Subscriptions

    def add(self, subscribed: Subscribed) -> None:
        """The session's queue is bound for a subscription."""
        self._filters.add(MQTT.pattern(subscribed.topic_filter), subscribed)
        self._plans.clear()

    def remove(self, subscribed: Subscribed) -> None:
        """It is not any more."""
        self._filters.remove(MQTT.pattern(subscribed.topic_filter), subscribed)
        self._plans.clear()

    def recovered(self, queue: Queue, begun: Iterable[int]) -> None:
        """The session is there again after a restart: what its queue has may have been sent before.

        ``begun``: what ``begun_otherwise`` has returned.
        """
        self._recovered_up_to = queue.next_position
        self._begun.update(begun)

    def take_begun(self, consumers: Iterable[Consumer]) -> None:
        """Take what was begun with QoS 2 from the shared queues, after a restart, to send it again.

        ``consumers``: those of the shared subscriptions.
        """
        notes, receiver = self._shared_begun, self.receiver
        by_queue = {consumer.queue: consumer for consumer in consumers}
        for number, queue, position in () if notes is None else notes.take_found():
            taken = None
            if queue is not None:
                # The subscription may have ended before the crash.
                ended = Consumer(
                    "ended", queue, receiver, auto_ack=False, exclusive=False, prefetch=0, arguments={}
                )
                taken = receiver.take_again(by_queue.setdefault(queue, ended), position)
            if taken is None:
                # Somebody has deleted the message.  PUBREL ends what the client may know of it.
                if number not in self._released:
                    self._released[number] = SHARED + number
                    self._noted.add([SHARED + number])
                self._forget_begun((number,))
                continue
            tag, _ = taken
            if number in self._released:
                # PUBREC had come.
                self._accept([tag])
                self._forget_begun((number,))
            else:
                self._qos2[number] = tag
        # The alarms have to know what it has now.
        receiver.detach()

    def begun_otherwise(self) -> list[int]:
        """Return the positions of messages that were begun with QoS 2, and that now have another one.

        The plan of a delivery has the QoS.
        """
        found = list(self._begun)
        begun = set(self._qos2.values())
        for one in self.receiver.unacked if begun else ():
            consumer, span = one.consumer, one.span
            if consumer is None or consumer.tag:
                continue
            plan = self._plan(span.batch.envelope, consumer)
            if not (isinstance(plan, Delivery) and plan.qos == 2):
                found += [span.first + at for at in range(len(span)) if one.first_tag + at in begun]
        return found

    def changed(self) -> None:
        """A subscription has other options now."""
        self._plans.clear()

    def _plan(self, envelope: Envelope, consumer: Consumer) -> Delivery | str | None:
        """Return how a message is delivered; a text: why it cannot be; None: nobody wants it any more."""
        shared = self.shared.get(consumer.tag)
        known = self._plans.get((envelope, shared), _UNKNOWN)
        if known is not _UNKNOWN:
            return known
        plan: Delivery | str | None = unsayable(envelope)
        if not plan:
            if shared is not None:
                matching = [shared]
            else:
                topic = key_to_topic(envelope.key)
                matching = self._filters.find(topic.split("/"), hidden=topic.startswith(MQTT.hidden))
            plan = deliver_as(envelope, matching, self._client_id)
        # All at once: those in use are made again with their next messages, and nobody has to know which they
        # are.
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        self._plans[envelope, shared] = plan
        return plan

    # The connection

    def attach(self, client: MqttClient, sender: Sender, limit: int, now: float) -> None:
        """The session has a connection: send again what was not acknowledged (MQTT 5.0, 4.4)."""
        self._limit = limit
        # Before the receiver is attached, which delivers at once: what is sent again comes first (4.4, 4.6).
        if self._qos1 or self._qos2 or self._released:
            self._resend(sender, now)
        if self._waiting:
            self._give_back_expired(now)
        # ``detach`` has put all that waited for the disk into ``_waiting``, without the marks.
        if self._noted.durable and self._waiting:
            self._unsafe.append((self._noted.store.demand(), list(self._waiting)))
            self._waiting.clear()
        self.receiver.attach(client.window, client.is_busy, client.on_cancelled)
        self._set_credit()

    def detach(self) -> None:
        """The connection is lost.  Messages of shared subscriptions are for other members (4.8.2)."""
        receiver = self.receiver
        in_doubt = set(self._qos2.values())
        others = [
            tag
            for one in receiver.unacked
            if one.consumer is not None and one.consumer.tag in self.shared
            for tag in range(one.first_tag, one.first_tag + len(one))
            # A message of QoS 2 that was sent waits for this client [MQTT-4.8.2-4].
            if tag not in in_doubt
        ]
        self._take_back(others)
        unsafe = [handed for _, some in self._unsafe for handed in some]
        self._unsafe.clear()
        kept = [
            handed for handed in (*self._waiting, *unsafe, *receiver.take_deliveries()) if not handed[0].tag
        ]
        self._waiting = kept
        self._again.clear()
        receiver.detach()

    def _give_back_expired(self, now: float) -> None:
        """Give back to its queue, which drops it, what has expired and was never sent [MQTT-3.3.2-5]."""
        kept: list[Handed] = []
        tags: list[int] = []
        for handed in self._waiting:
            _, tag, span = handed
            if span.expires_at is None or span.expires_at >= now:
                kept.append(handed)
            else:
                tags.extend(range(tag, tag + len(span)))
        self._waiting = kept
        self._take_back(tags)

    def give_back(self, consumer: Consumer) -> None:
        """A shared subscription has ended: what was not sent is for the other members."""
        receiver = self.receiver
        waiting = [self._waiting, receiver.deliveries, *[deliveries for _, deliveries in self._unsafe]]
        taken: list[UnackedRange] = []
        for deliveries in waiting:
            # A list of its own: ``deliveries`` changes in the loop.
            for handed in [handed for handed in deliveries if handed[0] is consumer]:
                deliveries.remove(handed)
                _, tag, span = handed
                self._forget_reserved(range(tag, tag + len(span)))
                taken += receiver.take_unacked(tag, tag + len(span) - 1, multiple=False)[0]
        receiver.refuse(taken, requeue=True, now=0.0)

    def _take_back(self, tags: list[int]) -> None:
        among = set(tags)
        for number in [number for number, tag in self._qos1.items() if tag in among]:
            del self._qos1[number]
        self._forget_reserved(tags)
        self.receiver.refuse(self._take(tags), requeue=True, now=0.0)

    def end(self, now: float) -> None:
        """The session is over: what is unacknowledged goes back to its queues, or is dropped."""
        receiver = self.receiver
        # They count as unacknowledged as well, and go back with the others (``recover``).
        receiver.take_deliveries()
        self._waiting.clear()
        self._unsafe.clear()
        self._again.clear()
        # What QoS 2 has begun to send must not go to another member [MQTT-4.8.2-5].
        for tag in self._qos2.values():
            taken, _ = receiver.take_unacked(tag, tag, multiple=False)
            receiver.refuse(taken, requeue=False, now=now)
        self._qos1.clear()
        self._qos2.clear()
        self._released.clear()
        self._reserved.clear()
        receiver.recover()

    # Messages

    def has_something(self) -> bool:
        """Whether there is something that ``send`` may send."""
        return bool(self.receiver.deliveries or self._waiting or self._unsafe or self._again)

    def send(self, sender: Sender, now: float) -> None:
        """Send what the queues have delivered, if there is anything."""
        receiver = self.receiver
        # ``has_something``, without the call.
        if not (receiver.deliveries or self._waiting or self._unsafe or self._again):
            return
        # New messages come behind all that is sent again, so that the order stays (MQTT 5.0, 4.6).
        if self._again and not self._send_again(sender, now):
            return
        # ``take_deliveries``, without the call.
        deliveries, receiver.deliveries = receiver.deliveries, []
        if self._noted.durable:
            deliveries = self._safe(deliveries, sender)
        if self._waiting:
            deliveries = [*self._waiting, *deliveries]
            self._waiting.clear()
        done = _Done([], [])
        # Both are empty but for the first messages after a restart.
        if self._acknowledged_before or self._begun:
            deliveries = self._without_acknowledged(deliveries, done.processed)
            deliveries = self._with_begun_apart(deliveries)
        for index, handed in enumerate(deliveries):
            if not self._send(sender, handed, done, now):
                self._waiting.extend(deliveries[index:])
                break
        # With QoS 1 and 2 both are empty: the client has to answer first.
        if done.processed or done.undeliverable:
            self._finish(done, now)
        if self._waiting and self._reserve(self._waiting):
            self._wait_in_front(sender)

    def _finish(self, done: _Done, now: float) -> None:
        if done.processed:
            self._accept(done.processed)
        if self._reserved:
            # They need no identifier of QoS 2 any more.
            self._forget_reserved(done.processed)
        for (consumer, tag, span), why in done.undeliverable:
            self.receiver.give_up(consumer.queue, tag, span, why, now, auto_ack=False)
            self._forget_reserved(range(tag, tag + len(span)))

    def _safe(self, deliveries: list[Handed], sender: Sender) -> list[Handed]:
        """Return what may be sent now, of these deliveries and of those that wait for the disk."""
        store, unsafe = self._noted.store, self._unsafe
        if any(self._is_qos2(handed) for handed in deliveries):
            # Before the demand: one sync is for the messages and for their identifiers.
            self._reserve(deliveries)
            unsafe.append((store.demand(), deliveries))
            deliveries = []
        elif unsafe and deliveries:
            # In their order.
            unsafe.append((unsafe[-1][0], deliveries))
            deliveries = []
        ready: list[Handed] = []
        done = 0
        while done < len(unsafe) and unsafe[done][0] <= store.safe:
            ready += unsafe[done][1]
            done += 1
        del unsafe[:done]
        if unsafe:
            sender.call_when_safe(store)
        return ready + deliveries

    def _wait_in_front(self, sender: Sender) -> None:
        """Let what waits for its identifiers wait for the disk, in front of the others."""
        store = self._noted.store
        mark = store.demand()
        self._unsafe.insert(0, (mark, list(self._waiting)))
        self._waiting.clear()
        if mark > store.safe:
            sender.call_when_safe(store)
        else:
            # Nothing is stored.
            self.receiver.on_deliveries()

    def _reserve(self, deliveries: Iterable[Handed]) -> bool:
        """Note the identifiers under which shared messages will be sent with QoS 2.

        Return whether any is new.
        """
        notes, any_new = self._shared_begun, False
        if notes is None:
            return False
        for handed in deliveries:
            consumer, tag, span = handed
            if not consumer.tag or tag in self._reserved or not self._is_qos2(handed):
                continue
            ids = self._free_ids(len(span))
            if ids is None:
                break
            notes.add(ids, consumer.queue, span.first)
            self._reserved.update(zip(range(tag, tag + len(span)), ids, strict=True))
            any_new = True
        return any_new

    def _forget_reserved(self, tags: Iterable[int]) -> None:
        """These messages will not be sent with QoS 2."""
        if self._shared_begun is not None and self._reserved:
            ids = [self._reserved.pop(tag, None) for tag in tags]
            self._shared_begun.discard([number for number in ids if number is not None])

    def _is_qos2(self, handed: Handed) -> bool:
        plan = self._plan(handed[2].batch.envelope, handed[0])
        return isinstance(plan, Delivery) and plan.qos == 2

    def _send(self, sender: Sender, handed: Handed, done: _Done, now: float) -> bool:
        """Send messages of one envelope; return False if their packet identifiers are still in use."""
        consumer, tag, span = handed
        envelope = span.batch.envelope
        plan = self._plan(envelope, consumer)
        if self._begun and not consumer.tag and span.first in self._begun and not isinstance(plan, str):
            plan = deliver_without(envelope, 2) if plan is None else plan._replace(qos=2)
        if plan is None:
            done.processed.extend(range(tag, tag + len(span)))
        elif isinstance(plan, str):
            done.undeliverable.append((handed, plan))
        elif sender.largest_packet and sender.is_too_large(span, plan):
            return self._send_what_fits(sender, handed, done, now)
        elif not plan.qos:
            sender.deliver(span, plan, (), now)
            done.processed.extend(range(tag, tag + len(span)))
        else:
            ids = self._shared_ids(tag, span, plan.qos) if consumer.tag else self._ids_for(span)
            if ids is None:
                return False
            if self._begun and not consumer.tag:
                self._begun.discard(span.first)
            sent = self._qos1 if plan.qos == 1 else self._qos2
            if len(ids) == 1:
                sent[ids[0]] = tag
            else:
                sent.update(zip(ids, range(tag, tag + len(ids)), strict=True))
            # What comes back to a shared subscription was sent to another session, or under
            # another identifier.
            before = span.redelivered or span.base + span.start < self._recovered_up_to
            again = before and not consumer.tag
            sender.deliver(span, plan, ids, now, again=again)
        return True

    def _send_what_fits(self, sender: Sender, handed: Handed, done: _Done, now: float) -> bool:
        """Send the messages of a span one by one, and dead-letter what is too large for the client.

        MQTT lets the server act as if it had sent them [MQTT-3.1.2-25].
        """
        consumer, tag, span = handed
        if len(span) == 1:
            done.undeliverable.append((handed, _TOO_LARGE))
            return True
        for at, index in enumerate(range(span.start, span.stop), tag):
            if not self._send(sender, (consumer, at, _one_of(span, index)), done, now):
                # The rest waits as one span, behind this message.
                self._waiting.append((consumer, at, _part_of(span, index)))
                break
        return True

    def _without_acknowledged(self, deliveries: Sequence[Handed], processed: list[int]) -> list[Handed]:
        """Return the deliveries without the messages that were acknowledged before a crash."""
        left: list[Handed] = []
        for consumer, tag, span in deliveries:
            positions = range(span.first, span.base + span.stop)
            if consumer.tag or self._acknowledged_before.isdisjoint(positions):
                left.append((consumer, tag, span))
                continue
            for at, (position, index) in enumerate(
                zip(positions, range(span.start, span.stop), strict=True), tag
            ):
                if position in self._acknowledged_before:
                    self._acknowledged_before.discard(position)
                    processed.append(at)
                else:
                    left.append((consumer, at, _one_of(span, index)))
        return left

    def _with_begun_apart(self, deliveries: Sequence[Handed]) -> list[Handed]:
        """Return the deliveries with each message by itself where some were begun before a restart."""
        apart: list[Handed] = []
        for handed in deliveries:
            consumer, _, span = handed
            if consumer.tag or self._begun.isdisjoint(range(span.first, span.base + span.stop)):
                apart.append(handed)
            else:
                apart += _one_by_one(handed)
        return apart

    def _shared_ids(self, tag: int, span: Span, qos: int) -> Sequence[int] | None:
        """Return identifiers for messages of a shared subscription; None: they are not there yet."""
        count = len(span)
        if self._shared_begun is None or qos == 1:
            ids = self._free_ids(count)
            if ids is not None:
                # The subscription had QoS 2 before.
                self._forget_reserved(range(tag, tag + count))
            return ids
        # ``send`` reserves identifiers at its end.  The messages come back when the disk has the note.
        if tag not in self._reserved:
            return None
        return [self._reserved.pop(each) for each in range(tag, tag + count)]

    def _ids_for(self, span: Span) -> Sequence[int] | None:
        """Return the packet identifiers of a span's messages; None: one of them is still in use."""
        # Not ``span.first``: a call for each turn in which a client gets one message.
        first = (span.base + span.start) % OWN_IDS + 1
        if span.stop - span.start == 1:
            # ``_are_free``, of one.
            in_use = first in self._qos1 or first in self._qos2 or first in self._released
            return None if in_use else (first,)
        ids: Sequence[int] = range(first, first + span.stop - span.start)
        if ids[-1] > OWN_IDS:
            ids = [(number - 1) % OWN_IDS + 1 for number in ids]
        return ids if self._are_free(ids) else None

    def _free_ids(self, count: int) -> Sequence[int] | None:
        ids: list[int] = []
        # Once around: all of them may be in use.
        for _ in range(_LAST_ID - OWN_IDS):
            self._next_shared = self._next_shared + 1 if self._next_shared < _LAST_ID else OWN_IDS + 1
            number = self._next_shared
            # One that is noted may be in none of the three tables: its message waits for the disk
            # (``_reserved``).
            noted = self._shared_begun is not None and number in self._shared_begun
            if not noted and self._are_free((number,)):
                ids.append(number)
                if len(ids) == count:
                    return ids
        return None

    def _are_free(self, ids: Sequence[int]) -> bool:
        if not (self._qos1 or self._qos2 or self._released):
            return True
        return (
            self._qos1.keys().isdisjoint(ids)
            and self._qos2.keys().isdisjoint(ids)
            and self._released.keys().isdisjoint(ids)
        )

    def _resend(self, sender: Sender, now: float) -> None:
        """Begin to send again what was not acknowledged."""
        ids = {tag: number for numbers in (self._qos1, self._qos2) for number, tag in numbers.items()}
        # The client may take fewer than before, and then its limit may fall into the middle of a span.
        too_many = len(ids) + len(self._released) > self._limit
        self._again.clear()
        for one in self.receiver.unacked:
            # Those without an identifier were never sent.  They are in ``_waiting`` or in ``deliveries``.
            if one.consumer is None or one.first_tag not in ids:
                continue
            handed = (one.consumer, one.first_tag, one.span)
            for consumer, tag, span in _one_by_one(handed) if too_many else (handed,):
                numbers = [ids[at] for at in range(tag, tag + len(span))]
                self._again.append(_Again((consumer, tag, span), numbers))
        self._send_again(sender, now)
        if self._released:
            sender.release(list(self._released), self._noted.mark())

    def _send_again(self, sender: Sender, now: float) -> bool:
        """Send again as many messages as the client takes; return whether these were all.

        It may take fewer than it took before.
        """
        again = self._again
        unsent = {number for one in again for number in one.ids}
        # What is left for the client to take [MQTT-3.3.4-9].
        left = self._limit - len(self._released)
        left -= len(self._qos1.keys() - unsent) + len(self._qos2.keys() - unsent)
        done = 0
        while done < len(again) and left >= len(again[done].ids):
            handed, ids = again[done]
            left -= self._send_one_again(sender, handed, ids, now)
            done += 1
        del again[:done]
        return not again

    def _send_one_again(self, sender: Sender, handed: Handed, ids: Sequence[int], now: float) -> int:
        """Send messages of one envelope again; return how many were sent."""
        consumer, tag, span = handed
        numbers = self._qos1 if ids[0] in self._qos1 else self._qos2
        if ids[0] not in numbers:
            # Acknowledged while it waited for its turn.
            return 0
        qos = 1 if numbers is self._qos1 else 2
        envelope = span.batch.envelope
        plan = self._plan(envelope, consumer)
        # The subscription may be gone since.  What was begun is completed [MQTT-3.10.4-3].
        delivery = plan._replace(qos=qos) if isinstance(plan, Delivery) else deliver_without(envelope, qos)
        if not (sender.largest_packet and sender.is_too_large(span, delivery)):
            sender.deliver(span, delivery, ids, now, again=True)
            return len(ids)
        if len(span) > 1:
            singles = zip(_one_by_one(handed), ids, strict=True)
            return sum([self._send_one_again(sender, single, (number,), now) for single, number in singles])
        del numbers[ids[0]]
        self.receiver.give_up(consumer.queue, tag, span, _TOO_LARGE, now, auto_ack=False)
        self._forget_begun(ids)
        return 0

    # Acknowledgements

    def acknowledge(self, ids: Sequence[int]) -> None:
        """PUBACK has come."""
        pop = self._qos1.pop
        # As below, in fewer calls: a client with one message in flight sends each PUBACK alone.
        if len(ids) == 1:
            tag = pop(ids[0], None)
            if tag is not None:
                self.receiver.acknowledge(tag, tag, multiple=False)
            return
        # An identifier that is unknown was acknowledged before the connection was lost.
        tags = [tag for tag in [pop(number, None) for number in ids] if tag is not None]
        if tags:
            self._accept(tags)

    def give_up(self, ids: Sequence[int]) -> None:
        """PUBREC with a failure has come.

        The client does not want these messages, and knows no identifier.
        """
        # Acknowledged, and not put back: nobody else may get what a client has refused [MQTT-4.8.2-6].
        tags = [self._qos2.pop(number) for number in ids if number in self._qos2]
        if tags:
            self._accept(tags)
            self._forget_begun(ids)

    def _forget_begun(self, ids: Sequence[int]) -> None:
        """The messages are acknowledged.

        If this note came before that, a crash could give them to another member.
        """
        if self._shared_begun is not None:
            self._shared_begun.discard(ids)

    def received(self, ids: Sequence[int]) -> tuple[list[int], int]:
        """PUBREC has come: acknowledge the messages.

        Return the identifiers that are unknown, and the mark that the store has to reach before PUBREL may be
        sent for the others.
        """
        numbers: dict[int, int] = {}
        unknown: list[int] = []
        for number in ids:
            tag = self._qos2.pop(number, None)
            if tag is not None:
                numbers[tag] = number
                # In this order PUBREL is sent again.
                self._released[number] = SHARED + number
            elif number not in self._released:
                unknown.append(number)
        positions: list[int] = []
        shared: list[int] = []
        taken = self._take(list(numbers))
        for one in taken:
            # Not ``self.shared``: a subscription may have ended before PUBREC has come.
            if one.consumer is not None and not one.consumer.tag:
                for position in range(one.span.first, one.span.base + one.span.stop):
                    self._released[_id_of(position)] = position
                    positions.append(position)
            else:
                tags = range(one.first_tag, one.first_tag + len(one))
                shared += [numbers[tag] for tag in tags]
        positions += [SHARED + number for number in shared]
        # Noted before the messages are acknowledged: after a crash in between they are known as received, and
        # not sent again.
        mark = self._noted.add(positions)
        if taken:
            self._set_credit()
            self.receiver.accept(taken)
            self._forget_begun(shared)
        return unknown, mark

    def completed(self, ids: Sequence[int]) -> None:
        """PUBCOMP has come."""
        # Identifiers that are not known are ignored: PUBREL may have been sent twice, before and after a lost
        # connection, and then PUBCOMP comes twice.
        self._noted.discard([self._released.pop(number) for number in ids if number in self._released])
        self._set_credit()
        # The client takes one more: the queues may have messages that waited for it.
        self.receiver.wake()

    def _set_credit(self) -> None:
        left = self._limit - len(self._released)
        receiver = self.receiver
        # A prefetch of 0 would be no limit.
        receiver.prefetch = max(left, 1)
        if not receiver.detached:
            receiver.active = left > 0

    def _accept(self, tags: list[int]) -> None:
        """Acknowledge tags in the broker."""
        self.receiver.accept(self._take(tags))

    def _take(self, tags: list[int]) -> list[UnackedRange]:
        """Remove tags from what is unacknowledged, and return them in as few ranges as there are."""
        if not tags:
            return []
        receiver, first, last = self.receiver, min(tags), max(tags)
        # All are different, so that these are all tags from the first to the last.
        if last - first + 1 == len(tags):
            return receiver.take_unacked(first, last, multiple=False)[0]
        tags.sort()
        taken: list[UnackedRange] = []
        first = last = tags[0]
        for tag in tags[1:]:
            if tag != last + 1:
                taken += receiver.take_unacked(first, last, multiple=False)[0]
                first = tag
            last = tag
        return taken + receiver.take_unacked(first, last, multiple=False)[0]


class _Done(msgspec.Struct):
    """What becomes of deliveries in one turn."""

    processed: list[int]
    """Delivery tags of messages that are done with: they have QoS 0, or nobody wants them."""
    undeliverable: list[tuple[Handed, str]]
    """Messages that cannot be sent, and why."""


class _Again(NamedTuple):
    """Messages that are to be sent again."""

    handed: Handed
    ids: Sequence[int]


def _id_of(position: int) -> int:
    """Return the packet identifier of what was released (``Released``)."""
    return position - SHARED if position >= SHARED else position % OWN_IDS + 1


def _one_by_one(handed: Handed) -> Iterator[Handed]:
    consumer, tag, span = handed
    for at, index in enumerate(range(span.start, span.stop), tag):
        yield consumer, at, _one_of(span, index)


def _one_of(span: Span, index: int) -> Span:
    """Return one message of a span; ``index`` is that in the batch."""
    return Span(span.base, span.batch, index, index + 1, span.expires_at, span.redelivered, span.location)


def _part_of(span: Span, index: int) -> Span:
    """Return the messages of a span from ``index`` in the batch on."""
    return Span(span.base, span.batch, index, span.stop, span.expires_at, span.redelivered, span.location)


_UNKNOWN = Delivery(-1, False, ())


def _nobody() -> None:
    """A session without a connection."""


def _nobody_cares(consumer: Consumer) -> None:
    """A session without a connection."""
